package main

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// premises are a database of an application, in which nobody has heard of Lapse yet. The roles' prefix is the test's own.
type premises struct {
	*shop
	app string // owns the tables
}

func newPremises(t *testing.T, db *pgtest.DB, broker *kafkaserver.Server, database string) *premises {
	t.Helper()
	p := &premises{app: db.NewRole(t, "app")}
	p.shop = &shop{t: t, db: db, broker: broker, name: kafkatest.Name(), due: 40}
	db.Exec(t, fmt.Sprintf(`grant create, usage on schema public to %[1]s; set role %[1]s;
		create table public.sessions (id bigint primary key, last_seen timestamptz not null, note text);
		create index on public.sessions (last_seen, id);
		insert into public.sessions select n, now() - case when n <= 40 then interval '40 days' else '0' end from generate_series(1, 70) n`, p.app))
	p.m = newMachine(t, "")
	p.configure(database)
	p.m.write("policies.yaml", fmt.Sprintf(policyText, 100))
	return p
}

// configure writes lapse.yaml. In database, LOGIN(x) is the connection string of a login.
func (p *premises) configure(database string) {
	p.t.Helper()
	database = regexp.MustCompile(`LOGIN\((\w+)\)`).ReplaceAllStringFunc(database, func(call string) string {
		return fmt.Sprintf("%q", p.db.As(strings.TrimSuffix(strings.TrimPrefix(call, "LOGIN("), ")")))
	})
	p.m.write("lapse.yaml", fmt.Sprintf(`
database: %s
roles: { prefix: %s_ }
keys: keys
kafka: { brokers: %q }
topics: { system: %[4]s.system, user: %[4]s.user, log: %[4]s.log, partitions: 3 }
`, database, p.db.Name, p.broker.Addr(), p.name))
}

// grants is the script that a DBA runs, without the line that is psql's own.
func (p *premises) grants(args ...string) string {
	p.t.Helper()
	script, found := strings.CutPrefix(p.m.lapse(append(args, "--grants")...), stopOnError)
	if !found {
		p.t.Errorf("the script does not stop psql on errors:\n%s", script)
	}
	return script
}

// fails runs a command that must fail with this code and returns what it says.
func (p *premises) fails(code int, args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), p.m.bin, args...)
	cmd.Dir, cmd.Env = p.m.dir, p.m.env
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		p.t.Fatalf("lapse %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, code, said)
	}
	return string(said)
}

// goOn is the README's way from init to the first event.
func (p *premises) goOn() {
	p.t.Helper()
	ctx, cancel := patience(p.t)
	defer cancel()
	p.m.lapse("init", "--keys", "keys")
	p.m.lapse("apply", "-f", "policies.yaml", "--yes")
	p.m.lapse("plan")
	d := p.m.serve()
	p.settled(ctx, d)
	d.stop()
	if found := p.read(); len(found["system"]) != 40 || len(found) != 1 {
		p.t.Errorf("%d system events, want 40, and causes %d, want 1", len(found["system"]), len(found))
	}
	p.m.lapse("apply", "-f", "policies.yaml", "--yes")
}

func TestTheWholeWayWithoutASuperuser(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 15, 16, 18), func(t *testing.T, db *pgtest.DB) {
		for name, logins := range map[string][]string{"one login": {"one", "one", "one"}, "three logins": {"apply", "run", "audit"}} {
			t.Run(name, func(t *testing.T) {
				db := pgtest.New(t, db.Major)
				for i := range logins {
					logins[i] = db.Name + "_" + logins[i]
				}
				database := fmt.Sprintf("{ owner: LOGIN(%s), executor: LOGIN(%s), auditor: LOGIN(%s) }", logins[0], logins[1], logins[2])
				if name == "one login" {
					database = fmt.Sprintf("LOGIN(%s)", logins[0])
				}
				p := newPremises(t, db, kafkatest.Broker(t), database)
				db.Exec(t, p.grants("apply", "-f", "policies.yaml"))
				for _, login := range logins {
					var can bool
					err := db.Connect(t).QueryRow(t.Context(),
						`select rolsuper or rolcreaterole or rolcreatedb from pg_roles where rolname = $1`, login).Scan(&can)
					if err != nil || can {
						t.Errorf("%s has more than it needs: %v, %v", login, can, err)
					}
				}
				p.goOn()
			})
		}
	})
}

// statement finds what the message says a superuser must run.
var statement = regexp.MustCompile(`have a superuser run: (revoke [^;]*?), then take three logins`)

func TestALoginThatOwnsTheTablesIsToldTheWayAndTheWayWorks(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 16, 18), func(t *testing.T, db *pgtest.DB) {
		p := newPremises(t, db, kafkatest.Broker(t), fmt.Sprintf("LOGIN(%s_app)", db.Name))
		// The script says so before it changes anything.
		script := p.grants("apply", "-f", "policies.yaml")
		admin := db.Connect(t)
		_, err := admin.PgConn().Exec(t.Context(), script).ReadAll()
		if err == nil || !strings.Contains(err.Error(), "would own the catalog") {
			t.Errorf("the script was not refused: %v", err)
		}
		_, _ = admin.Exec(t.Context(), "rollback")

		// Without it, apply says what is missing.
		db.Exec(t, p.grants("init"))
		p.m.lapse("init", "--keys", "keys")
		said := p.fails(exitInvalid, "apply", "-f", "policies.yaml", "--yes")
		revoke := statement.FindStringSubmatch(said)
		mapping := regexp.MustCompile(`\{ owner: [^}]*\}`).FindString(said)
		if revoke == nil || mapping == "" {
			t.Fatalf("there is no recipe: %s", said)
		}
		p.configure(regexp.MustCompile(`postgres://(\w+)@HOST/DATABASE`).ReplaceAllString(mapping, "LOGIN($1)"))
		db.Exec(t, revoke[1], p.grants("apply", "-f", "policies.yaml"))
		p.goOn()
	})
}

func TestInitAsASuperuserEquipsTheLoginsOfTheFileAndMakesNoOther(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := newPremises(t, db, kafkatest.Broker(t), fmt.Sprintf("{ owner: LOGIN(%[1]s_apply), executor: LOGIN(%[1]s_run), auditor: LOGIN(%[1]s_audit) }", db.Name))
		p.m.lapse("init", "--keys", "keys", "--database", db.URL)
		var one bool
		err := db.Connect(t).QueryRow(t.Context(), `select exists (select from pg_roles where rolname = $1)`, db.Name).Scan(&one)
		if err != nil || one {
			t.Errorf("the one login is there: %v, %v", one, err)
		}
		p.m.lapse("apply", "-f", "policies.yaml", "--yes", "--database", db.URL)
		p.goOn()
	})
}

func TestInitAsASuperuserMakesALoginThatDoesEverythingElse(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := newPremises(t, db, kafkatest.Broker(t), fmt.Sprintf("LOGIN(%s)", "postgres"))
		said := p.m.lapse("init", "--keys", "keys")
		next := regexp.MustCompile(`export LAPSE_DATABASE_URL='?([^'\n]+)`).FindStringSubmatch(said)
		if next == nil || strings.Contains(next[1], "postgres@") {
			t.Fatalf("init does not say how to go on: %s", said)
		}
		p.m.lapse("apply", "-f", "policies.yaml", "--yes")
		p.m.env = append(p.m.env, "LAPSE_DATABASE_URL="+next[1])
		p.m.lapse("plan")
		if strings.Contains(p.m.lapse("init"), "next:") {
			t.Error("the second time there is nothing to do next")
		}
		p.m.lapse("audit", "--once")
		p.m.lapse("run", "--once")
		p.m.lapse("audit", "--once")
		if found := p.read(); len(found["system"]) != 40 {
			t.Errorf("%d system events, want 40", len(found["system"]))
		}
		// It is not a member of the tables' owners: a DBA's script makes it one, where it is to apply.
		p.m.write("policies.yaml", strings.Replace(fmt.Sprintf(policyText, 100), "30 days", "20 days", 1)+fmt.Sprintf(
			"  - { name: more, table: %s.more, expire: { column: at, after: 1 day } }\n", "public"))
		db.Exec(t, fmt.Sprintf(`set role %s; create table public.more (id int primary key, at timestamptz)`, p.app))
		if said := p.fails(exitInvalid, "apply", "-f", "policies.yaml", "--yes"); !strings.Contains(said, "grant") {
			t.Errorf("apply says: %s", said)
		}
		db.Exec(t, p.grants("apply", "-f", "policies.yaml"))
		p.m.exits(exitPerson, "apply", "-f", "policies.yaml", "--yes")
	})
}

func TestARoleThatWasThereBeforeIsNamedOrLeftAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	p := newPremises(t, db, kafkatest.Broker(t), "LOGIN(postgres)")
	db.Exec(t, fmt.Sprintf(`create role %s login; grant %[1]s to %s`, db.Name, p.app))
	said := p.fails(exitFailed, "init", "--keys", "keys")
	if !strings.Contains(said, "is there, and has a member") {
		t.Errorf("a role with a member: %s", said)
	}
	db.Exec(t, fmt.Sprintf(`revoke %s from %s`, db.Name, p.app))
	if said = p.fails(exitFailed, "init", "--keys", "keys"); !strings.Contains(said, "neither init nor the script of --grants made it") {
		t.Errorf("a login without members: %s", said)
	}
	var given int
	if err := db.Connect(t).QueryRow(t.Context(), `select count(*) from pg_auth_members m join pg_roles r on r.oid = m.member where r.rolname = $1`, db.Name).Scan(&given); err != nil || given > 0 {
		t.Errorf("it was given %d roles, %v", given, err)
	}
	db.Exec(t, fmt.Sprintf(`drop role %s`, db.Name))
	if said = p.m.lapse("init", "--keys", "keys"); !strings.Contains(said, "next:") {
		t.Errorf("a login of init's own: %s", said)
	}
	db.Exec(t, fmt.Sprintf(`revoke %[1]s_owner, %[1]s_executor, %[1]s_auditor from %[1]s`, db.Name)) // as if init had been killed before it gave them
	if said = p.m.lapse("init"); !strings.Contains(said, "next:") {
		t.Errorf("a login that init made and did not equip: %s", said)
	}
	db.Exec(t, fmt.Sprintf(`grant %s_owner to %s`, db.Name, p.app))
	if said = p.m.lapse("init"); !strings.Contains(said, "is a member of "+db.Name+"_owner, and no login of these settings") {
		t.Errorf("a stranger: %s", said)
	}
	db.Exec(t, fmt.Sprintf(`alter role %s_owner superuser`, db.Name))
	if said = p.fails(exitFailed, "init"); !strings.Contains(said, "nosuperuser") {
		t.Errorf("a superuser: %s", said)
	}
}

// What only psql understands of a printed script is said by psql itself.
func TestAPrintedScriptEndsInPsqlAtItsFirstError(t *testing.T) {
	t.Parallel()
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("psql is not installed: apt-get install postgresql-client")
	}
	cmd := exec.CommandContext(t.Context(), psql, "-X", pgtest.New(t, pgtest.Newest(t)).URL)
	cmd.Stdin = strings.NewReader(stopOnError + "select 1/0;\n\\echo it goes on\n")
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || strings.Contains(string(said), "goes on") || !strings.Contains(string(said), "division by zero") {
		t.Errorf("%v, want exit code 3 and the error:\n%s", err, said)
	}
}
