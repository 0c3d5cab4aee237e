package importer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/planner/expiry"
	"lapse/planner/expression"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// condition is Lapse's own of a policy: what its functions restate.
func (s *site) condition(p *policyfile.Policy) expiry.Condition {
	s.t.Helper()
	var oid uint32
	must(s.t, s.conn.QueryRow(s.t.Context(), `select $1::text::regclass::oid`, p.Table).Scan(&oid))
	kind, problems, err := expiry.Read(s.t.Context(), s.conn, p.Expire)
	must(s.t, err)
	more, err := kind.Resolve(s.t.Context(), s.conn, expiry.Table{OID: oid, Name: p.Table})
	must(s.t, err)
	if problems = append(problems, more...); len(problems) > 0 {
		s.t.Fatalf("%v: %v", p.Expire, problems)
	}
	c := expiry.Condition{Kind: kind}
	if p.Where != "" {
		e, problem, err := expression.Read(s.t.Context(), s.conn, oid, p.Where, expression.Boolean)
		must(s.t, err)
		if problem != "" {
			s.t.Fatalf("%s: %s", p.Where, problem)
		}
		c.Where = e.SQL
	}
	return c
}

// due are the rows that are due at an instant.
func (s *site) due(c expiry.Condition, table, at string) []int64 {
	s.t.Helper()
	now, bound := schemas.Literal(at)+"::timestamptz", ""
	if b := c.Kind.Bound(now); !b.IsZero() {
		bound = "(" + b.Value + ")"
	}
	sql := "select t.id from " + c.From(table) + " where " + c.Exact(now, bound)
	rows, err := s.conn.Query(s.t.Context(), sql)
	must(s.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return ids
}

// deleted are the rows that a job deletes at an instant.
func (s *site) deleted(admin *pgx.Conn, j job, at string) (ids []int64) {
	s.t.Helper()
	must(s.t, exec(admin, "begin"))
	defer func() { must(s.t, exec(admin, "rollback")) }()
	must(s.t, exec(admin, fmt.Sprintf("set local search_path = app, public; set local timezone = %s", schemas.Literal(zoneOr(j.zone)))))
	sql := strings.ReplaceAll(atNow(j.text), "$1", schemas.Literal(at))
	if err := exec(admin, sql); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	rows, err := admin.Query(s.t.Context(), "select i from generate_series(0, 1300) i except select id from app.logs")
	must(s.t, err)
	ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	must(s.t, err)
	return ids
}

// A day that is a row's own has 25 hours when clocks are set back: a policy by ttl_column counts 24 and would have a row due that the job
// leaves.
func TestARowsOwnDaysAreNotCountedInAZone(t *testing.T) {
	t.Parallel()
	s := newReader(t)
	admin := s.db.Connect(t)
	must(t, exec(admin, "insert into app.logs (id, created_at, ts, ttl, keep) values (1, '2025-10-25 12:00+02', '2025-10-25 12:00', 86400, '1 day')"))
	const at = "2025-10-26 10:30+00"
	for _, c := range []struct{ text, zone, column, ttl string }{
		{`created_at + keep < now()`, "Europe/Berlin", "created_at", "keep"},
		{`ts + keep < localtimestamp`, "Europe/Berlin", "ts", "keep"},
		{`ts + ttl * interval '1 second' < now()`, "Europe/Berlin", "ts", "ttl"},
		{`ts + keep < now() at time zone 'Europe/Berlin'`, utc, "ts", "keep"},
		{`(ts + keep) at time zone 'Europe/Berlin' < now()`, utc, "ts", "keep"},
	} {
		j := job{text: "delete from logs where " + c.text, zone: c.zone}
		want := "AT TIME ZONE ''Europe/Berlin''" // an expression, which counts as the job does
		if c.column == "created_at" {
			want = "does not know"
		}
		i := s.read(j.text, j.zone)
		if got := policyLine(i); !strings.Contains(got, want) || i.Policy != nil && len(s.due(s.condition(i.Policy), "app.logs", at)) > 0 {
			t.Errorf("%s in %s: %s", c.text, c.zone, got)
		}
		expire := expiry.Entry{"column": c.column, "ttl_column": c.ttl}
		if c.column == "ts" {
			expire["zone"] = "Europe/Berlin"
		}
		due := s.due(s.condition(&policyfile.Policy{Table: "app.logs", Expire: expire}), "app.logs", at)
		if deleted := s.deleted(admin, j, at); len(due) != 1 || slices.Contains(deleted, 1) {
			t.Errorf("%s in %s: %d rows are due, and the job deletes them: it shows nothing", c.text, c.zone, len(due))
		}
	}
}
