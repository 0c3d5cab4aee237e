package planner

import (
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// rest puts rows of a leaf into the quarantine, by their keys.
func (w *world) rest(p *record.InForce, leaf string, retry string, keys ...[]string) {
	w.t.Helper()
	for _, key := range keys {
		must(w.t, runSQL(w.admin, `
			insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at)
			values ($1, $2::text::regclass, sha256(convert_to($3::text[]::text, 'UTF8')), $3, '23503', now() + $4::text::interval)`, p.ID, leaf, key, retry))
	}
}

// quarantined returns how many rows of a leaf are in quarantine, as a batch asks for it.
func (w *world) quarantined(p *record.InForce, leaf string) (rows int, sql string) {
	w.t.Helper()
	sql = valueOn[string](w.t, w.admin, `select coalesce(lapse.quarantined($1, $2, $3::text::regclass), '')`, p.ID, p.Version, leaf)
	if sql == "" {
		return 0, ""
	}
	must(w.t, runSQL(w.admin, "set role "+w.deleter()))
	defer func() { must(w.t, runSQL(w.admin, "reset role")) }()
	return valueOn[int](w.t, w.admin, `select count(*) from only `+leaf+` as t where (`+sql+`)`), sql
}

func TestRowsInQuarantineAreFoundByKeysOfEveryType(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		for n, c := range []struct{ columns, row string }{
			{"id bigint", "41"},
			{"id numeric(10,2)", "41.5"},
			{"id timestamp(3) with time zone", "'2031-01-01 00:00:00.123+00'"},
			{"id date", "'infinity'"},
			{"id float8", "0.1::float8 + 0.2::float8"},
			{"id bytea", `'\x00ff5c'`},
			{"id inet", "'10.0.0.1/8'"},
			{"id uuid", "'00000000-0000-0000-0000-000000000041'"},
			{`id text collate "C"`, `E'it''s {"a",\\} NULL\n'`},
			{"id varchar(9)", "''"},
			{`"I D" text, part int`, "'NULL', 1"},
			{"id interval", "'1 mon'"},
			{"id char(5)", "'a'"},
		} {
			table := fmt.Sprintf("shop.t%d", n)
			names := "id"
			if strings.Contains(c.columns, ", part") {
				names = `"I D", part`
			}
			w.do(fmt.Sprintf("create table %s (%s, at timestamptz, primary key (%s))", table, c.columns, names))
			w.do(fmt.Sprintf("insert into %s values (%s, now() - interval '40 days')", table, c.row))
			w.apply(strings.Replace(policyText(table, "at", "30 days", "    state: armed"), "name: p", fmt.Sprintf("name: p%d", n), 1))
			p := w.named(schemas.PolicyName(fmt.Sprintf("p%d", n)))
			key := valueOn[[]string](w.t, w.admin, "select "+p.Definition.KeyTexts()+" from "+table+" t")
			w.rest(&p, table, "1 hour", key)
			if rows, sql := w.quarantined(&p, table); rows != 1 {
				t.Errorf("%s: %d rows rest by %s, want the one", c.columns, rows, sql)
			}
			must(t, runSQL(w.admin, `update lapse.quarantine set retry_at = now()`))
			if rows, _ := w.quarantined(&p, table); rows != 0 {
				t.Errorf("%s: %d rows rest whose next try has come", c.columns, rows)
			}
		}
	})
}

func TestManyRowsInQuarantineAreOneListInTheCondition(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 1000)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		must(t, runSQL(w.admin, `
			insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at)
			select $1, 'shop.sessions'::regclass, sha256(g::text::bytea), array[g::text], '23503', now() + interval '1 hour' from generate_series(1, 10000) g`, p.ID))
		_, sql := w.quarantined(&p, "shop.sessions")
		rows, err := w.admin.Query(t.Context(), `explain select from shop.sessions t where (`+sql+`) is not true`)
		must(t, err)
		var text strings.Builder
		var plan string
		for rows.Next() {
			must(t, rows.Scan(&plan))
			text.WriteString(plan + "\n")
		}
		must(t, rows.Err())
		if strings.Contains(sql, "9999") {
			t.Errorf("the server would log keys, with the statement of any error: %s", sql)
		}
		if !strings.Contains(text.String(), "hashed SubPlan") {
			t.Errorf("the list is not looked up by a hash:\n%s", text.String())
		}
	})
}

func TestTheQuarantineFollowsItsPolicy(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 3)
		armed := policyText("shop.sessions", "last_seen", "30 days", "    state: armed")
		left := func() string {
			return valueOn[string](t, w.admin, `select coalesce(string_agg(key[1], ' ' order by key[1]), '') from lapse.quarantine`)
		}
		p := w.armed(armed)
		w.rest(&p, "shop.sessions", "1 hour", []string{"1"}, []string{"2"})
		if q := w.named("p").Quarantine; q.Rows != 2 || q.String() != "2 rows in quarantine" || q.Oldest.IsZero() || q.NextTry.IsZero() {
			t.Errorf("the policy has %+v", q)
		}
		// Another version keeps them, one with another key does not, nor one that was dropped.
		w.apply(policyText("shop.sessions", "last_seen", "31 days", "    state: armed"))
		if got := left(); got != "1 2" {
			t.Errorf("after a longer period %q are left", got)
		}
		w.do(`alter table sessions drop constraint sessions_pkey, add primary key (id, last_seen)`)
		w.apply(policyText("shop.sessions", "last_seen", "32 days", "    state: armed"))
		if got := left(); got != "" {
			t.Errorf("under another key %q are left", got)
		}
		w.rest(&p, "shop.sessions", "1 hour", []string{"1"})
		changes, err := w.difference("policies: []\n", true)
		must(t, err)
		for i := range changes {
			must(t, w.write(&changes[i]))
		}
		if got := left(); got != "" {
			t.Errorf("of a dropped policy %q are left", got)
		}
	})
}

func TestAForgivenRowIsGoneOrNotDue(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table visits (id bigint, at timestamptz, part int, primary key (id, part)) partition by list (part)`,
			`create table visits_1 partition of visits for values in (1)`, `create table visits_2 partition of visits for values in (2)`)
		p := w.armed(policyText("shop.visits", "at", "30 days", "    state: armed"))
		w.rest(&p, "shop.visits_1", "-1 hour", []string{"1", "1"})
		w.rest(&p, "shop.visits_1", "1 hour", []string{"2", "1"})
		w.rest(&p, "shop.visits_2", "1 hour", []string{"3", "2"})
		left := func() string {
			return valueOn[string](t, w.admin, `select coalesce(string_agg(key[1], ' ' order by key[1]), '') from lapse.quarantine`)
		}
		w.stolen() // what the executor may say, a stolen login may say too
		for _, c := range []struct{ before, since, want string }{
			{"", "clock_timestamp() - interval '2 hours'", "1 2 3"},
			{"", "(select min(tried_at) from lapse.quarantine)", "1 2 3"}, // tried since
			{"update lapse.quarantine set tried_at = now() - interval '3 hours'", "now()", "2 3"},
			{"", "'infinity'", "2 3"},
			{"alter table shop.visits detach partition shop.visits_2", "now() - interval '1 day'", "2"},
		} {
			if c.before != "" {
				must(t, runSQL(w.admin, c.before))
			}
			must(t, runSQL(w.exec, `select lapse.forgive(1, `+c.since+`)`))
			if got := left(); got != c.want {
				t.Errorf("looked through since %s: %q are left, want %q", c.since, got, c.want)
			}
		}
		wantState(t, runSQL(w.owner, `select lapse.forgive(1, now())`), schemas.SQLStateInsufficientPrivilege)
	})
}

func TestTheQueryForReferringRowsFindsThem(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table visits (id bigint, "P ""1" int, at timestamptz, primary key (id, "P ""1")) partition by list ("P ""1")`,
			`create table visits_1 partition of visits for values in (1)`,
			`create table "Keeps" (visit bigint, "part%" int unique, constraint "the 'key'" foreign key (visit, "part%") references visits on delete cascade)`,
			`create table chain (keeps int references "Keeps" ("part%"))`,
			`insert into visits select g, 1, now() - interval '20 days' * g from generate_series(1, 3) g`,
			`insert into "Keeps" values (2, 1)`, `insert into chain values (1)`)
		p := w.armed(policyText("shop.visits", "at", "30 days", "    state: armed"))
		for _, c := range []struct {
			relation, constraint string
			rows                 int
		}{
			{`shop."Keeps"`, "the 'key'", 1},
			{`shop.chain`, "chain_keeps_fkey", 1},
			{`shop.chain`, "chain_pkey", -1},
			{`shop.gone`, "chain_keeps_fkey", -1},
		} {
			query, err := run.Referring(t.Context(), w.exec, &p, c.relation, c.constraint)
			must(t, err)
			switch {
			case c.rows < 0 && query != "":
				t.Errorf("%s of %s: %s, want no query", c.constraint, c.relation, query)
			case c.rows >= 0:
				if got := valueOn[int](t, w.admin, "select count(*) from ("+query+") found"); got != c.rows || strings.Contains(query, "\n") {
					t.Errorf("%s of %s: %d rows by %s, want %d", c.constraint, c.relation, got, query, c.rows)
				}
			}
		}
		// A row that refers to one which is not due is none of them.
		w.do(`update "Keeps" set visit = 1`)
		query, err := run.Referring(t.Context(), w.exec, &p, `shop."Keeps"`, "the 'key'")
		must(t, err)
		if got := valueOn[int](t, w.admin, "select count(*) from ("+query+") found"); got != 0 {
			t.Errorf("%d rows are found that refer to rows which are not due", got)
		}
	})
}
