package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// exampleTables are those that the examples of the help name.
const exampleStory = `
	set timezone = 'UTC';
	create schema shop;
	create table public.sessions (id bigint primary key, last_seen timestamptz not null);
	create table public.logins (session bigint references public.sessions);
	create table public.visits (site bigint, day int, at timestamptz not null, primary key (site, day));
	create table public.tokens (id bigint primary key, expires_at timestamptz not null);
	create table shop.orders (id bigint primary key, customer bigint not null, closed_at timestamptz);
	create table shop.orders_v2 (like shop.orders including all);
	create table shop.items (id bigint primary key, kind text not null);
	create table shop.carts (id bigint primary key);
	insert into public.sessions select n, now() - interval '90 days' from generate_series(1, 50) n union all select 4711, now() - interval '90 days';
	insert into public.logins values (4711);
	insert into public.visits values (4711, 7, now() - interval '2 years');
	insert into shop.orders select n, n % 9, now() - interval '1 year' from generate_series(1001, 1020) n;
	insert into shop.items values (1, 'recalled');
	create schema cron;
	create table cron.job (jobid bigint, schedule text, command text, database text, username text, active boolean, jobname text);
	insert into cron.job values (1, '0 3 * * *', $$delete from public.tokens where expires_at < now()$$, current_database(), 'postgres', true, 'tokens')`

// examplePolicyFile has the policies that the examples name. A version of it has another period.
const examplePolicyFile = `policies:
  - name: sessions-30d
    table: public.sessions
    expire: { column: last_seen, after: %d days }
    state: armed
  - name: visits-1y
    table: public.visits
    expire: { column: at, after: 1 year }
  - name: orders-7y
    table: shop.orders
    expire: { column: closed_at, after: 7 years }
`

// notRun are the examples that are not run, each with the reason.
var notRun = map[string]string{
	"lapse verify --known verified.json --save verified.json --ask": "it asks witnesses: TestAskingAWitnessFindsAnOlderExport",
}

// end is how a line ends: with a code, and with a text of its output that is the reason. The zero value is success, whatever it says.
type end struct {
	code int
	says string
}

// exampleEnds are the examples that do not end with 0: the story has a row that a foreign key keeps, and these commands say that a person has
// to see to it.
var exampleEnds = map[string]end{
	"lapse doctor":        {exitPerson, "policy sessions-30d, quarantine: 1 row in quarantine"},
	"lapse doctor --json": {exitPerson, "policy sessions-30d, quarantine: 1 row in quarantine"},
	"lapse status":        {exitPerson, "sessions-30d: quarantine: 1 row in quarantine"},
	"lapse status --json": {exitPerson, `"reason": "quarantine"`},
	"lapse status --config app.yaml --config billing.yaml": {exitPerson, "app.yaml: sessions-30d: quarantine: 1 row in quarantine"},
	"lapse quarantine list":                                {exitPerson, "in the way: logins_session_fkey of public.logins"},
	"lapse quarantine list sessions-30d":                   {exitPerson, "in the way: logins_session_fkey of public.logins"},
	"lapse quarantine list sessions-30d --json":            {exitPerson, `"constraint": "logins_session_fkey"`},
	"lapse run --once":                                     {exitPerson, "SQLSTATE 23503, constraint logins_session_fkey"},
	"lapse run --now sessions-30d --json":                  {exitPerson, "SQLSTATE 23503, constraint logins_session_fkey"},
}

// story is where the examples are run: a database, a folder of files, and what the made-up names of an example stand for.
type story struct {
	t        *testing.T
	m        *machine
	db       *pgtest.DB
	stands   *strings.Replacer
	public   string            // the log's public key, of now
	prepares map[string]func() // what has to be there before each example of a command and of those below it
}

const exampleDays = 80 // from September on

const examplePublic = "app.example.com/lapse+1f2e3d4c+AWVhc3R..."

var exampleURL = regexp.MustCompile(`postgres://(\w+)@[\w.]+/app`)

// Each line of a command's examples is run as it stands, by a shell, in one database: a line that comes to the help is run too.
//
//lapse:long
func TestEveryExampleOfTheHelpRuns(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	ran, last := 0, []*cobra.Command{}
	var each func(cmd *cobra.Command)
	each = func(cmd *cobra.Command) {
		if cmd.Name() == "uninstall" && len(last) == 0 {
			last = append(last, cmd)
			return
		}
		for line := range strings.Lines(cmd.Example) {
			if line = strings.TrimSpace(line); notRun[line] == "" {
				s.run(cmd, line)
				ran++
			}
		}
		for _, sub := range cmd.Commands() {
			each(sub)
		}
	}
	each(newRoot(&app{}))
	for _, cmd := range last {
		each(cmd)
	}
	if ran < 80 {
		t.Errorf("only %d examples were run", ran)
	}
}

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{t: t, db: pgtest.New(t, pgtest.Newest(t))}
	app := s.db.NewRole(t, "app")
	s.db.Exec(t, exampleStory, `alter database `+s.db.Name+` set timezone = 'UTC'`, `grant create on schema public, shop to `+app, `alter schema shop owner to `+app)
	for _, table := range []string{"public.sessions", "public.logins", "public.visits", "public.tokens", "shop.orders", "shop.orders_v2", "shop.items", "shop.carts"} {
		s.db.Exec(t, `alter table `+table+` owner to `+app)
	}
	settings := fmt.Sprintf("database: %q\nkeys: keys\nsink: dir:sink\n", s.db.As("lapse"))
	s.m = newMachine(t, settings)
	m := s.m
	m.env = append(m.env, "PATH="+filepath.Dir(m.bin)+":"+os.Getenv("PATH"), "LAPSE_HTTP=127.0.0.1:0")
	m.write("app.yaml", settings)
	m.write("billing.yaml", settings)
	m.write("customers.csv", "3\n4\n")
	if err := os.MkdirAll(filepath.Join(m.dir, ".config", "fish", "completions"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.lapse("init", "--database", s.db.URL, "--keys", "keys")
	s.db.Exec(t, `grant `+app+` to lapse`)
	m.lapse("keys", "rotate", "--epoch", "2025-02")
	for _, days := range []int{32, 31, 30} {
		m.lapse("apply", "--database", s.db.URL, "--yes", "--arm", "-f", m.write("policies.yaml", fmt.Sprintf(examplePolicyFile, days)))
	}
	m.lapse("audit", "--once")
	m.answers("run", "--once")
	m.lapse("audit", "--once")
	for _, key := range []string{"1001", "1002", "1003"} {
		m.lapse("hold", "place", "--table", "shop.orders", "--keys", key, "--matter", "2026-14", "--reason", "claim")
	}
	m.lapse("events", "--export", "last-month")
	var jobs string
	if err := s.db.Connect(t).QueryRow(t.Context(), `select json_agg(j) from cron.job j`).Scan(&jobs); err != nil {
		t.Fatal(err)
	}
	m.write("jobs.json", jobs)
	public := s.archive()
	s.prepares = map[string]func(){
		"lapse quarantine": s.quarantine,
		"lapse run":        func() { m.lapse("audit", "--once") },
		"lapse prove":      func() { m.lapse("audit", "--once"); m.lapse("events", "--export", "evidence") },
		"lapse verify":     func() { s.public = m.publicKey() }, // a key that was rotated is another
		"lapse uninstall":  s.noHolds,
	}
	archive := "report --dir archive --public-key " + public + " "
	s.stands = strings.NewReplacer(
		// A log of that month is in an archive: the one that has just begun cannot answer for it.
		"report --last ", archive+"--last ", "report --month ", archive+"--month ", "report --dir ./evidence ", archive,
		"report.html --dir ./evidence --public-key "+examplePublic, "report.html --dir archive --public-key "+public,
		"-o report.json --public-key "+examplePublic, "-o report.json --public-key "+public,
		"0198f1d0-0000-7000-8000-000000000002", uuid.UUID{3, exampleDays - 1}.String(),
		"source <(lapse completion bash)", "source <(lapse completion bash) && complete -p lapse", // source alone ends well without any
		"127.0.0.1:7432", "127.0.0.1:0", "127.0.0.1:7433", "127.0.0.1:0",
	)
	return s
}

// archive writes an export of a log of autumn 2026, and returns the log's public key.
func (s *story) archive() string {
	s.t.Helper()
	dir := filepath.Join(s.m.dir, "archive")
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	y := yearOf(s.t, dir, yearLog)
	y.at = time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	for month := range 4 {
		y.keys[schemas.EpochOf(y.at.AddDate(0, month, 0))] = evidencetest.RowsKey
	}
	y.route.RowsKeys = evidence.RowsKeysOf(y.keys)
	y.begin()
	beat := &evidence.Heartbeat{History: 1, Timeline: 1, ServerStart: y.at}
	for day := range exampleDays {
		y.transaction(evidence.User, "public.sessions", 1, nil)
		y.transaction(evidence.System, "public.sessions", 7, &schemas.Claim{
			Batch: uuid.UUID{2, byte(day)}, Policy: "sessions-30d", PolicyVersion: 1, Run: uuid.UUID{3, byte(day)}, Cutoff: y.at, StartedAt: y.at, Functions: schemas.Digest{1},
		})
		beat.Nonce, beat.Former, beat.At = uuid.UUID{4, byte(day)}, beat.Nonce, y.at.Add(time.Hour)
		y.lsn += 0x1000
		y.record(&evidence.CoverageContent{Heartbeat: beat}, y.lsn, 0)
		y.sign()
		y.at = y.at.Add(24 * time.Hour)
	}
	return y.close()
}

// quarantine has a row of each policy in quarantine.
func (s *story) quarantine() {
	s.db.Exec(s.t, `
		delete from lapse.quarantine;
		insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, relation, constraint_name, retry_at)
		select policy_id, leaf::regclass, sha256(leaf::bytea), key, '23503', 'public.logins', 'logins_session_fkey', now() + interval '1 day'
		  from (select distinct id as policy_id, name as policy from lapse.policy) p
		  join (values ('sessions-30d', 'public.sessions', array['4711']), ('visits-1y', 'public.visits', array['4711', '7'])) r (policy, leaf, key) using (policy)`)
}

// noHolds releases what the examples hold: an uninstall would forget it.
func (s *story) noHolds() {
	var holds int
	if err := s.db.Connect(s.t).QueryRow(s.t.Context(), `select max(id) from lapse.hold`).Scan(&holds); err != nil {
		s.t.Fatal(err)
	}
	for hold := range holds {
		s.m.answers("hold", "release", strconv.Itoa(hold+1), "--now", "--reason", "over") // one that is over already stays so
	}
}

// runsOn says whether a line ends only when it is stopped.
func runsOn(path, line string) bool {
	switch path {
	case "lapse serve":
		return true
	case "lapse audit", "lapse run":
		return !strings.Contains(line, " --once") && !strings.Contains(line, " --now ")
	}
	return strings.Contains(line, " --follow") || strings.Contains(line, " --watch")
}

// run runs an example of a command. The command that it gives may be another one.
func (s *story) run(of *cobra.Command, line string) {
	s.t.Helper()
	path := of.CommandPath()
	if rest, is := strings.CutPrefix(line, "lapse "); is {
		if given, _, err := of.Root().Find(arguments(rest)); err == nil {
			path = given.CommandPath()
		}
	}
	for of, prepare := range s.prepares {
		if strings.HasPrefix(path+" ", of+" ") {
			prepare()
		}
	}
	given := exampleURL.ReplaceAllStringFunc(strings.ReplaceAll(s.stands.Replace(line), examplePublic, s.public), func(url string) string { return s.db.As(exampleURL.FindStringSubmatch(url)[1]) })
	code, out := s.types(given, runsOn(path, line))
	s.ends(path, line, exampleEnds[line], code, out)
}

// ends compares how a line of a page or of a command's help ended with how it should have.
func (s *story) ends(of, line string, want end, code int, out string) {
	s.t.Helper()
	if code != want.code || !strings.Contains(out, want.says) {
		s.t.Errorf("%s: $ %s\nends with %d, and not with %d and %q:\n%s", of, line, code, want.code, want.says, last([]byte(out), 2000))
	}
}

// types runs a line as a person does, who says yes where a command asks.
func (s *story) types(line string, runsOn bool) (code int, out string) {
	s.t.Helper()
	code, out = s.shell(line, runsOn)
	if code == exitInvalid && strings.Contains(out, "there is no terminal to ask on") {
		code, out = s.shell(line+" --yes", false)
	}
	return code, out
}

// shellPatience is for a machine that is busy with other things. A command that hangs is a failure anyhow.
const shellPatience = 5 * time.Minute

// shell runs a line as a person's shell would. One that runs on is stopped as soon as it has written something.
func (s *story) shell(line string, runsOn bool) (code int, out string) {
	s.t.Helper()
	var written output
	sh := exec.CommandContext(s.t.Context(), "bash", "-c", line)
	sh.Dir, sh.Env, sh.Stdout, sh.Stderr = s.m.dir, s.m.env, &written, &written
	if err := sh.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = sh.Wait(); close(ended) }()
	if runsOn {
		ctx, cancel := context.WithTimeout(s.t.Context(), shellPatience)
		defer cancel()
		if err := eventually(ctx, func() (bool, error) { return written.len() > 0, nil }); err != nil {
			s.t.Errorf("$ %s\nwrites nothing: %v", line, err)
		}
		_ = sh.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-ended:
	case <-time.After(shellPatience):
		_ = sh.Process.Signal(syscall.SIGQUIT)
		<-ended
		s.t.Errorf("$ %s\ndoes not end", line)
	}
	return sh.ProcessState.ExitCode(), written.text()
}

// output is what a program writes while it runs.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(p)
}

func (o *output) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Len()
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}
