package planner

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/internal/yamldoc"
	"lapse/schemas"
)

// A table with an identity of its own is what evidence and events need more than a key for.
const stays = `create table stays (id bigint primary key, seen timestamptz not null, "Plan" text, till bigint not null default 0,
	half numeric not null default 0, doc jsonb not null default '{}', ttl int, made text generated always as ('x') stored)`

// complaint is the one complaint about a file.
func (w *world) complaint(file string) string {
	w.t.Helper()
	_, err := w.difference(file, false)
	var all yamldoc.Errors
	if !errors.As(err, &all) || len(all) != 1 {
		w.t.Fatalf("%d complaints: %v", len(all), err)
	}
	return all[0].Error()
}

func TestWhatTheEvidenceIsToHaveMustBeInTheReplicaIdentity(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, stays, `create index on stays (seen, id)`)
		file := func(expire string, more ...string) string {
			return "policies:\n  - name: p\n    table: shop.stays\n    expire: " + expire + "\n    every: 1 second\n    state: armed\n    " + strings.Join(more, "\n    ") + "\n"
		}
		const seen = "{column: seen, after: 30 days}"
		for _, c := range []struct{ expire, line, want string }{
			{seen, "evidence: due", `7:15: policy p: "seen" of shop.stays is not in its replica identity`},
			{seen, `events: {columns: [id]}`, `7:23: policy p: of the replica identity of shop.stays (id) no column is left that names the row`},
			{seen, `events: {columns: [made]}`, `column "made" of shop.stays is generated`},
			{seen, `events: {columns: [plan]}`, `shop.stays has no column "plan"`},
			{"{column: seen, ttl_column: ttl}", "evidence: due", "each row has a ttl of its own"},
			{"{column: half, epoch: s, after: 1 day}", "evidence: due", "column half is numeric"},
			{"{column: doc, epoch: s, path: a.b, after: 1 day}", "evidence: due", "inside a document"},
			{"{column: doc, instant: true, path: a.b, after: 1 day}", "evidence: due", "a text"},
			{`{expression: "seen + interval '1 day'"}`, "evidence: due", "only PostgreSQL can compute it"},
		} {
			if got := w.complaint(file(c.expire, c.line)); !strings.Contains(got, c.want) {
				t.Errorf("%s with %s: %s; want %s", c.line, c.expire, got, c.want)
			}
		}

		// What fixes it is said, and fixes it: one index for both.
		_, err := w.difference(file(seen, "evidence: due", `events: {columns: [Plan, till]}`), false)
		var all yamldoc.Errors
		if !errors.As(err, &all) || len(all) != 2 {
			t.Fatalf("got %v", err)
		}
		_, fix, _ := strings.Cut(all[1].Error(), "deleted row: ")
		if _, first, _ := strings.Cut(all[0].Error(), "deleted row: "); first != fix {
			t.Errorf("two ways to fix it: %s and %s", first, fix)
		}
		for sql := range strings.SplitSeq(fix, "; ") {
			w.do(sql)
		}
		_, err = w.difference(file(seen, "evidence: due", `events: {columns: [Plan, till]}`), false)
		must(t, err)
	})
}

func TestABatchSaysWhatItsEventsAndTheAuditAreToHave(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, stays, `alter table stays alter "Plan" set not null`,
			`create unique index by on stays (id, seen, "Plan")`, `alter table stays replica identity using index by`, `create index on stays (seen, id, "Plan")`,
			`insert into stays select n, now() - interval '1 year', 'free' from generate_series(1, 10) n`)
		file := func(more string) string {
			return "policies:\n  - name: p\n    table: shop.stays\n    expire: {column: seen, after: 1 month}\n    every: 1 second\n    state: armed\n" + more
		}
		const promised = "    evidence: due\n    events: {columns: [Plan]}\n"
		p := w.armed(file(promised))
		b := w.lease(p, w.open(&p))
		tx, err := w.admin.Begin(t.Context())
		must(t, err)
		must(t, script(t.Context(), tx, `alter table shop.stays replica identity default; set local session authorization `+testRoles.Executor))
		_, err = w.callIn(tx, b, nil)
		wantState(t, err, "LP012")
		must(t, tx.Rollback(t.Context()))

		_, err = w.call(b, nil)
		must(t, err)
		if got, want := w.ledger(), `["Plan"] {"as": "timestamptz", "after": [{"months": 1}], "column": "seen"}`; got != want {
			t.Errorf("the batch says %s, want %s", got, want)
		}

		// Another version, for which the table is checked, promises nothing.
		changes := w.apply(file(""))
		if diff := changes[0].Diff(); !strings.Contains(diff, "evidence: due -> claimed") && !strings.Contains(diff, "evidence") {
			t.Errorf("the difference is %s", diff)
		}
		w.do(`alter table stays replica identity default`)
		if _, err := w.difference(file(promised), false); err == nil {
			t.Error("a version on record is gone back to although the table has lost its identity")
		}
	})
}

// ledger is what the newest batch says of events and evidence.
func (w *world) ledger() (said string) {
	w.t.Helper()
	must(w.t, w.admin.QueryRow(w.t.Context(), `select concat_ws(' ', told, due) from lapse.batch order by started_at desc limit 1`).Scan(&said))
	return said
}

func TestADueTimeThatTheLogCanShowIsTheKindsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), `create table v (id bigint, a timestamptz not null, b timestamp not null, c date not null, d bigint not null,
		primary key (id, a, b, c, d))`)
	for _, c := range []struct{ expire, want string }{
		{"{column: a}", `{"column":"a","as":"timestamptz"}`},
		{"{column: b, after: 1 mon 2 days}", `{"column":"b","as":"timestamp","after":[{"months":1,"days":2}]}`},
		{"{column: c, after: 00:00:01.5, zone: UTC}", `{"column":"c","as":"date","after":[{"microseconds":1500000}]}`},
		{"{column: d, epoch: s, after: 1 year}", `{"column":"d","as":"seconds","after":[{"months":12}]}`},
		{"{column: d, epoch: ms}", `{"column":"d","as":"milliseconds"}`},
		{"{bucket: {column: a, span: 1 day}, after: 1 mon}", `{"column":"a","as":"timestamptz","after":[{"days":1},{"months":1}]}`},
		{"{column: b, after: 1 day, zone: Europe/Berlin}", "zone Europe/Berlin"},
	} {
		changes, err := w.difference(fmt.Sprintf("policies:\n  - {name: p, table: shop.v, expire: %s, every: 1 hour, evidence: due}\n", c.expire), false)
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", c.expire, err, c.want)
			}
			continue
		}
		if got := dueText(t, changes[0].Resolved.Spec.Due); got != c.want {
			t.Errorf("%s: %s, want %s", c.expire, got, c.want)
		}
	}
}

func dueText(t *testing.T, due *schemas.Due) string {
	t.Helper()
	text, err := json.Marshal(due)
	must(t, err)
	return string(text)
}
