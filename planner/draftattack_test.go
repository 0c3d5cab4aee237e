package planner

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/survey"
)

// greedy is code of an attacker's that PostgreSQL runs when it plans a query: it tries what an owner of a table must not be able to
// do in a session of somebody else's, and says by warnings as whom it ran, and what it could do. It belongs to a superuser, so that
// lapse.intruders lets it pass: as code that was planted right after the look for it would be there.
const greedy = `
	create function shop.greedy(at timestamptz) returns timestamptz language plpgsql immutable as $f$
	declare
	  attempt text;
	begin
	  if to_regprocedure('pg_temp.survey(timestamptz, bigint, bigint)') is null then
	    return at; -- its index is being made
	  end if;
	  raise warning 'ran as %', current_user;
	  foreach attempt in array array[
	    'set role postgres', 'reset role', 'set session authorization postgres', 'set local role none',
	    'alter role ATTACKER superuser', 'create role more', 'insert into shop.loot values (1)', 'delete from shop.loot',
	    'select pg_read_file(''postmaster.pid'')', 'set transaction read write', 'create table pg_temp.more (a int)',
	    'create function shop.more() returns int language sql as ''select 1''', 'copy shop.loot to program ''true''',
	    'alter function pg_temp.survey(timestamptz, bigint, bigint) security invoker'
	  ] loop
	    begin
	      execute attempt;
	      raise warning 'did %, as %', attempt, current_user;
	    exception when others then
	      null;
	    end;
	  end loop;
	  return at;
	end $f$`

// warned collects warnings.
type warned struct {
	mutex sync.Mutex
	lines []string
}

func (w *warned) text() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return strings.Join(w.lines, "\n")
}

func (w *warned) add(_ *pgconn.PgConn, n *pgconn.Notice) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.lines = append(w.lines, n.Message)
}

// attacked surveys sessions, with greedy code on it as plant makes it, and returns what it says.
func (b *bare) attacked(plant string) string {
	b.t.Helper()
	resolved := b.proposals(untilSessions)[0].Resolved
	if resolved == nil {
		b.t.Fatal("the table was refused before the attack")
	}
	must(b.t, b.script(strings.ReplaceAll(greedy, "ATTACKER", b.app)))
	must(b.t, b.script(plant))
	b.hear = &warned{}
	s, err := change.SurveyDraft(b.t.Context(), b.draft(nil), survey.Ask{}, resolved)
	must(b.t, err)
	if s.Trouble != "" || s.Due != 5 {
		b.t.Errorf("got %+v", s)
	}
	if got := valueOn[bool](b.t, b.admin, `select rolsuper from pg_roles where rolname = $1`, b.app); got {
		b.t.Error("the attacker is a superuser")
	}
	return b.hear.text()
}

// Planted between the look for it and the count, code runs; it can do no more than the table's owner, and write nothing.
func TestCodeThatRunsInADraftHasTheRightsOfTheTablesOwnerAndWritesNothing(t *testing.T) {
	t.Parallel()
	plants := map[string]string{
		"an index":   `create index on shop.sessions (shop.greedy('2020-01-01'::timestamptz))`,
		"statistics": `create statistics shop.s on (shop.greedy('2020-01-01'::timestamptz)), id from shop.sessions; alter statistics shop.s set statistics 0`,
	}
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		for what, plant := range plants {
			t.Run(what, func(t *testing.T) {
				db := pgtest.New(t, db.Major)
				b := newBare(t, db, "postgres", sessions, `create table loot (a int)`)
				b.fill("sessions", 5)
				reader := db.NewRole(t, "reader")
				superuser := db.NewRole(t, "dba", "in role postgres")
				b.do("grant usage on schema shop to " + reader)
				b.do("grant select on sessions to " + reader)
				for login, as := range map[string]string{"postgres": b.app, superuser: b.app, reader: reader, b.app: b.app} {
					b.login = login
					said := b.attacked(plant)
					if !strings.Contains(said, "ran as "+as) || strings.Contains(said, "ran as postgres") {
						t.Errorf("as %s: code ran as %q", login, said)
					}
					for line := range strings.Lines(said) {
						if did, done := strings.CutPrefix(line, "did "); done && !strings.HasPrefix(did, "set local role none") {
							t.Errorf("as %s: the code could %s", login, did)
						}
					}
					must(t, b.script(`drop function shop.greedy cascade`))
				}
			})
		}
	})
}

// Code that ran in one count leaves nothing behind for the next one in the session, and finds no statement there that it could replace.
func TestCodeThatRanInACountLeavesNothingToTheNext(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		b := newBare(t, db, "postgres")
		all := b.proposals(manyPolicies(b, 2))
		for i, code := range []string{
			`perform set_config('search_path', 'shop', false), set_config('work_mem', '77kB', false), set_config('transaction_read_only', 'on', false)`,
			`raise warning 'it found %, %, and % statements', current_setting('work_mem'), pg_backend_pid(),
			   (select count(*) from pg_prepared_statements where not from_sql)`,
		} {
			must(t, b.script(fmt.Sprintf(`
				create function shop.code_%d(at timestamptz) returns timestamptz language plpgsql immutable as $f$ begin %s; return at; end $f$;
				create index on shop.many_%[1]d (shop.code_%[1]d('2020-01-01'::timestamptz))`, i, code)))
		}
		b.hear = &warned{}
		d := b.draft(nil)
		defer d.Together()()
		for _, p := range []proposal{all[1], all[0], all[1]} {
			s, err := change.SurveyDraft(t.Context(), d, survey.Ask{}, p.Resolved)
			must(t, err)
			if s.Trouble != "" || s.DueIs != survey.Exact {
				t.Errorf("got %+v", s)
			}
		}
		said := strings.Split(b.hear.text(), "\n")
		slices.Sort(said)
		if said = slices.Compact(said); len(said) != 1 || !strings.HasPrefix(said[0], "it found 4MB, ") || !strings.HasSuffix(said[0], "and 0 statements") {
			t.Errorf("the code said %q", said)
		}
	})
}

func TestATableOfASuperusersIsCountedByARoleThatMayOnlyRead(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		b := newBare(t, db, "postgres", sessions, `create table loot (a int)`)
		b.fill("sessions", 5)
		must(t, b.script(`alter table shop.sessions owner to postgres`))
		said := b.attacked(`create index on shop.sessions (shop.greedy('2020-01-01'::timestamptz))`)
		if !strings.Contains(said, "ran as lapse_plan_") || strings.Contains(said, "did ") && !strings.Contains(said, "did set local role none") {
			t.Errorf("the code said %q", said)
		}
	})
}

// What is there when it is looked for is refused, and never runs.
func TestCodeOfTheTablesOwnerIsRefusedBeforeAnythingOfItRuns(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		for what, plant := range map[string][]string{
			"an index":   {`create index on sessions (ran('2020-01-01'::timestamptz))`},
			"statistics": {`create statistics s on (ran('2020-01-01'::timestamptz)), id from sessions`},
			"a check":    {`alter table sessions add check (ran('2020-01-01'::timestamptz) is not null) not valid`},
			"a domain's check": {
				`create domain checked as bigint check (ran(now()) is not null)`, `alter table sessions add more checked`,
			},
		} {
			t.Run(what, func(t *testing.T) {
				db := pgtest.New(t, db.Major)
				b := newBare(t, db, "postgres", sessions,
					`create function ran(at timestamptz) returns timestamptz language plpgsql immutable as $$ begin raise warning 'it ran'; return at; end $$`)
				b.fill("sessions", 5)
				resolved := b.proposals(untilSessions)[0].Resolved
				for _, sql := range plant {
					b.do(strings.ReplaceAll(sql, "ran(", "shop.ran("))
				}
				heard := &warned{}
				b.hear = heard
				if all := b.proposals(untilSessions); all[0].Resolved != nil || !strings.Contains(all[0].Errors.Error(), "function ran") {
					t.Errorf("it was not refused: %+v", all[0])
				}
				// Planted after the tables were checked: the function that counts looks again.
				s, err := change.SurveyDraft(t.Context(), b.draft(nil), survey.Ask{}, resolved)
				must(t, err)
				if !strings.Contains(s.Trouble, "triggers, rules or functions") {
					t.Errorf("after the look: %+v", s)
				}
				if said := heard.text(); said != "" {
					t.Error(said)
				}
			})
		}
	})
}

// A policy's author may trust the owner's code; who asks about the policy lends it no rights by that.
func TestTrustedCodeIsNotRunWithTheCallersRights(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		b := newBare(t, db, "postgres", sessions,
			`create function ran(at timestamptz) returns timestamptz language plpgsql immutable as $$ begin raise warning 'ran as %', current_user; return at; end $$`)
		b.fill("sessions", 5)
		b.do(`create index on sessions (ran('2020-01-01'::timestamptz))`)
		reader := db.NewRole(t, "reader")
		b.do("grant usage on schema shop to " + reader)
		b.do("grant select on sessions to " + reader)
		file := policyText("shop.sessions", "last_seen", "30 days", "    triggers: trusted")
		for login, as := range map[string]string{"postgres": b.app, b.app: b.app, reader: ""} {
			b.login, b.hear = login, &warned{}
			s := b.survey(file, survey.Ask{})
			if said := b.hear.text(); (as == "") != (said == "") || strings.Count(said, "ran as ") != strings.Count(said, "ran as "+as) {
				t.Errorf("as %s: %q", login, said)
			}
			if as == "" && !strings.Contains(s.Trouble, "with the rights of "+reader) || as != "" && s.Due != 5 {
				t.Errorf("as %s: %+v", login, s)
			}
		}
	})
}

// What is not the table that was checked is not read.
func TestAViewInTheTablesPlaceIsNotRead(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	b := newBare(t, db, "postgres", sessions)
	b.fill("sessions", 5)
	resolved := b.proposals(untilSessions)[0].Resolved
	s, err := change.SurveyDraft(t.Context(), b.draft(func() {
		b.do(`alter table sessions rename to real`)
		b.do(`create view sessions as select * from real`)
	}), survey.Ask{}, resolved)
	must(t, err)
	if s.Trouble != "shop.sessions is gone, renamed or another table" {
		t.Errorf("got %+v", s)
	}
}
