package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed sample.sql
var sampleSQL string

//go:embed policies.yaml
var policiesYAML string

// story is one telling of the demonstration.
type story struct {
	lapse string   // path of the lapse binary
	dir   string   // policies, keys and logs
	env   []string // what the commands are told about the servers
	db    *pgx.Conn
	url   func(user string) string
	out   io.Writer
	color bool // out is a terminal

	serve  *exec.Cmd
	signal context.CancelFunc // tells serve to stop
	step   int
}

// tell runs the steps in order. It returns an error if a command fails or a count is not what it must be.
func (s *story) tell(ctx context.Context) error {
	for _, step := range []struct {
		title, why string
		do         func(context.Context) error
	}{
		{"An application with 20,000 sessions and a partitioned table of page views", "Ordinary tables: nothing in them is made for Lapse.", s.fill},
		{"Lapse moves in: schema, roles, publications, slot, keys", "One command of a superuser. Everything after it runs with logins that can do little.", s.install},
		{"What may live how long, and what that means now", "A policy is five lines. The plan says what it will delete before anything is deleted.", s.plan},
		{"Two of the sessions that are due are wanted in a lawsuit: a hold keeps them", "It is in force before the command returns, whatever runs at that moment.", s.hold},
		{"Deleting and auditing, while others delete too", "Two of the others want their deletions to look like the policy's.", s.run},
		{"`lapse serve` is killed without warning, and started again", "No row is deleted twice, and no event is lost.", s.crash},
		{"One session could not be deleted: a payment refers to it", "It waits in quarantine, with its reason, and keeps nothing else from going.", s.resist},
		{"600 of 1,000 carts fall due at once: the breaker trips, and a person says how many rows may go", "A wrong clock or a wrong column must not empty a table.", s.trip},
		{"The login that deletes may delete nothing by itself", "It may call functions that delete what is due, and a DBA can read them.", s.refuse},
		{"What the topics say", "What PostgreSQL's own log has, by who deleted it. The forgers are not taken for the policy.", s.count},
		{"The log verifies without the database, and without trusting its owner", "Signatures, the tree over all records, and every event against its transaction.", s.verify},
		{"The report for an auditor", "One page, made from the log alone. The two forgeries and the row that stays are in it.", s.report},
	} {
		s.step++
		fmt.Fprintf(s.out, "\n%s\n%s\n\n", s.style(bold, fmt.Sprintf("%d. %s", s.step, step.title)), s.style(dim, "   "+step.why))
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("step %d, %s: %w", s.step, step.title, err)
		}
	}
	return nil
}

// The styles of text on a terminal, as its escape sequences have them.
const (
	bold = "1"
	dim  = "2"
	blue = "34"
)

func (s *story) style(style, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func (s *story) fill(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, sampleSQL); err != nil {
		return err
	}
	return s.say(ctx, `select 'public.sessions: ' || count(*) || ' rows, ' || count(*) filter (where last_seen < now() - interval '30 days')
	  || ' not seen for 30 days' from public.sessions
	  union all select 'public.page_view: ' || count(*) || ' rows, ' || count(*) filter (where seen < now() - interval '1 year')
	  || ' older than a year' from public.page_view`)
}

// install logs in as a superuser, as apply does after it. Everything else is done by logins of its own that init makes,
// and is refused to a superuser.
func (s *story) install(ctx context.Context) error {
	return s.command(ctx, "init", "--database", s.url("postgres"))
}

func (s *story) plan(ctx context.Context) error {
	file := filepath.Join(s.dir, "policies.yaml")
	if err := os.WriteFile(file, []byte(policiesYAML), 0o600); err != nil {
		return err
	}
	fmt.Fprintln(s.out, indent(policiesYAML))
	if err := s.command(ctx, "apply", "--database", s.url("postgres"), "-f", file, "--yes"); err != nil {
		return err
	}
	return s.command(ctx, "plan")
}

// hold keeps two sessions that are due, one of them with a tag, and shows what is said of a mistyped key. To place a hold one
// needs no right on the table; with a right to read it one is told.
func (s *story) hold(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, `grant select on public.sessions to `+login); err != nil {
		return err
	}
	return s.command(ctx, "hold", "place", "--table", "public.sessions", "--keys", "17,1010,80000", "--matter", "2026-14", "--reason", "claim of a customer")
}

// run starts `lapse serve` and lets three others delete while it works.
func (s *story) run(ctx context.Context) error {
	if err := s.startServe(ctx, anyHTTP); err != nil {
		return err
	}
	for _, other := range []struct{ user, what, sql string }{
		{"app", "the application deletes 25 sessions and 7 page views that are not due", `delete from public.sessions where id between 9001 and 9025;
			delete from public.page_view where id <= 7 and seen > '2020-01-01'`},
		{"mallory", "a forger emits Lapse's own tag message, then deletes 5", `begin;
			select pg_logical_emit_message(true, 'lapse', '{"transaction_tag":"RowDeletionPolicy","is_system_transaction":true}');
			delete from public.sessions where id between 9101 and 9105; commit`},
		{"postgres", "a superuser writes a ledger row by hand, then deletes 3", `begin;
			insert into lapse.batch select gen_random_uuid(), policy_id, name, version, gen_random_uuid(), now(), 0, table_oid, '{}',
			  decode(repeat('00', 32), 'hex'),
			  (select system_identifier::text from pg_control_system()), (select oid from pg_database where datname = current_database()),
			  (select max(number) from lapse.history), lapse.timeline(), pg_current_xact_id(), now(), decode(repeat('00', 32), 'hex') from lapse.gate where name = 'sessions-30d';
			delete from public.sessions where id between 9201 and 9203; commit`},
	} {
		fmt.Fprintf(s.out, "   %s\n", other.what)
		conn, err := session(ctx, s.url(other.user))
		if err != nil {
			return err
		}
		_, err = conn.PgConn().Exec(ctx, other.sql).ReadAll()
		if err = errors.Join(err, conn.Close(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// crash kills the process in the middle of its work if there is still some, and lets a second one finish it.
func (s *story) crash(ctx context.Context) error {
	if err := s.until(ctx, `select count(*) > 2 from lapse.batch`); err != nil {
		return err
	}
	if err := s.serve.Process.Kill(); err != nil {
		return err
	}
	_ = s.serve.Wait() // killed on purpose: its status says just that
	if err := s.say(ctx, `select 'killed after ' || count(*) || ' batches' from lapse.batch_result`); err != nil {
		return err
	}
	if err := s.startServe(ctx, anyHTTP); err != nil {
		return err
	}
	if err := s.until(ctx, dueRowsAreGone); err != nil {
		return err
	}
	return s.say(ctx, `select 'all due rows are gone after ' || count(*) || ' batches, but for those that are held:' from lapse.batch_result
		union all select '  session ' || id || ', not seen for ' || extract(day from now() - last_seen) || ' days' || coalesce(', with tag ' || tag, '')
		  from public.sessions left join public.session_tag on session = id where last_seen + interval '30 days' <= now() and id <> 42`)
}

const dueRowsAreGone = `select not exists (select from public.sessions where last_seen + interval '30 days' <= now() and id not in (17, 1010, 42))
	and not exists (select from public.page_view where seen + interval '1 year' <= now())`

// resist shows the session that a payment refers to.
func (s *story) resist(ctx context.Context) error {
	if err := s.until(ctx, `select exists (select from lapse.quarantine)`); err != nil {
		return err
	}
	return s.commandThatNeedsPerson(ctx, "quarantine", "list")
}

// trip makes far more rows due than max_fraction allows. Nothing of them goes until somebody says yes.
func (s *story) trip(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, `update public.cart set changed_at = '2020-01-01' where id <= 600; analyze public.cart`); err != nil {
		return err
	}
	if err := s.until(ctx, `select exists (select from lapse.gate join lapse.breaker using (policy_id) where name = 'carts-90d')`); err != nil {
		return err
	}
	if err := s.commandThatNeedsPerson(ctx, "status"); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "   It ends with %d: somebody is needed. Here all 600 may go:\n\n", needsPerson)
	if err := s.command(ctx, "policy", "arm", "carts-90d", "--accept", "600"); err != nil {
		return err
	}
	return s.until(ctx, `select count(*) = 400 from public.cart`)
}

// needsPerson is the exit code of a command that found something that needs a person.
const needsPerson = 3

func (s *story) commandThatNeedsPerson(ctx context.Context, args ...string) error {
	var exit *exec.ExitError
	if err := s.command(ctx, args...); !errors.As(err, &exit) || exit.ExitCode() != needsPerson {
		return errors.Join(fmt.Errorf("lapse %s must end with %d here", args[0], needsPerson), err)
	}
	return nil
}

func (s *story) refuse(ctx context.Context) error {
	conn, err := session(ctx, s.url(login))
	if err != nil {
		return err
	}
	_, refusal := conn.Exec(ctx, `delete from public.sessions`)
	if err := conn.Close(ctx); err != nil {
		return err
	}
	if refusal == nil {
		return fmt.Errorf("login %s was allowed a plain DELETE", login)
	}
	fmt.Fprintf(s.out, "   login %s: delete from public.sessions\n   %v\n", login, refusal)
	return nil
}

// anyHTTP is a port of the system's choice.
const anyHTTP = "127.0.0.1:0"

// startServe starts `lapse serve`; its log goes to a file. It stops with stopServe, and not with ctx: a second signal would
// make it give up at once. For the same reason it is in a process group of its own, which the terminal's Ctrl-C does not reach.
func (s *story) startServe(ctx context.Context, http string) error {
	log, err := os.OpenFile(filepath.Join(s.dir, "serve.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	fmt.Fprintln(s.out, s.style(blue, "   $ lapse serve &"))
	ctx, s.signal = context.WithCancel(context.WithoutCancel(ctx))
	serve := exec.CommandContext(ctx, s.lapse, "serve", "--http", http)
	serve.Cancel = func() error { return serve.Process.Signal(syscall.SIGTERM) }
	s.serve = serve
	s.serve.WaitDelay = 20 * time.Second
	s.serve.Env, s.serve.Stdout, s.serve.Stderr = s.env, log, log
	s.serve.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return errors.Join(s.serve.Start(), log.Close()) // the process has a copy of its own
}

// stopServe asks it to finish, and waits.
func (s *story) stopServe() error {
	if s.serve == nil {
		return nil
	}
	serve := s.serve
	s.serve = nil
	s.signal()
	if err := serve.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// command runs one lapse command and shows it as a user would have seen it.
func (s *story) command(ctx context.Context, args ...string) error {
	fmt.Fprintln(s.out, s.style(blue, "   $ lapse "+strings.ReplaceAll(strings.Join(args, " "), s.dir+"/", "")))
	cmd := exec.CommandContext(ctx, s.lapse, args...)
	cmd.Env = s.env
	output, err := cmd.CombinedOutput()
	fmt.Fprintln(s.out, indent(strings.ReplaceAll(string(output), s.dir+"/", "")))
	return err
}

// say prints the rows of a query of one text column.
func (s *story) say(ctx context.Context, sql string) error {
	rows, err := s.db.Query(ctx, sql)
	if err != nil {
		return err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, line := range lines {
		fmt.Fprintln(s.out, "   "+line)
	}
	return err
}

// until waits for a query to say true.
func (s *story) until(ctx context.Context, sql string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var done bool
		if err := s.db.QueryRow(ctx, sql).Scan(&done); err != nil || done {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %q: %w", strings.Join(strings.Fields(sql), " "), ctx.Err())
		}
	}
}

func indent(text string) string {
	var b bytes.Buffer
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		b.WriteString("     " + line)
	}
	return b.String()
}

// showLog prints the end of what `lapse serve` logged, for a demonstration that went wrong.
func (s *story) showLog() error {
	log, err := os.ReadFile(filepath.Join(s.dir, "serve.log"))
	if err != nil {
		return nil // it was never started
	}
	const end = 4000
	fmt.Fprintf(s.out, "\nThe end of serve.log:\n%s", log[max(0, len(log)-end):])
	return nil
}
