package executor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"lapse/internal/pgtest"
	"lapse/internal/setup/holds"
	"lapse/internal/setup/tables"
	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

// executor is one whose batches find their rows in a way of their own.
func (m *mixture) executor(t *testing.T, db *pgtest.DB, way int) *Executor {
	t.Helper()
	e := newExecutor(t, db, func(c *Config) {
		c.Limits.Workers, c.Limits.TurnRows = m.workers, 150
	})
	e.readBacklog = func(ctx context.Context, conn *pgx.Conn, p *record.InForce, _ time.Time, _ *survey.Judgement) (b survey.Backlog, err error) {
		if way == 0 || way == 2 && slices.Contains(m.entry, "shards: {count: 3}") {
			return b, nil
		}
		rows, err := conn.Query(ctx, "select l.relation from lapse.leaves($1::regclass) l", m.schema+".t")
		if err != nil {
			return b, err
		}
		leaves, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
		if b.Heaps = leaves; way == 2 {
			b.Heaps = nil
			for _, leaf := range leaves {
				b.Cuts = append(b.Cuts, survey.Cut{Leaf: leaf, At: time.Now().AddDate(0, 0, -50)}, survey.Cut{Leaf: leaf, At: time.Now().AddDate(0, 0, -40)})
			}
		}
		return b, err
	}
	return e
}

// live does the application's deeds, beside which rows stay locked to the end, and its owner's.
func (m *mixture) live(ctx context.Context, t *testing.T, db *pgtest.DB) {
	conn, holder := db.ConnectAs(t, appRole), db.ConnectAs(t, appRole)
	defer func() { _ = conn.Close(ctx); _ = holder.Close(ctx) }()
	for _, c := range []*pgx.Conn{conn, holder} {
		if _, err := c.Exec(ctx, "set search_path = "+m.schema+"; set lock_timeout = '100ms'; set default_transaction_isolation = 'read committed'"); err != nil {
			t.Error(err)
			return
		}
	}
	if _, err := holder.Exec(ctx, "begin"); err != nil {
		t.Error(err)
		return
	}
	for _, deed := range m.deeds {
		c := conn
		switch {
		case strings.HasPrefix(deed, "select"):
			c = holder
		case deed == "cluster" && m.parts == "":
			deed = "cluster t using t_pkey"
		case deed == "cluster":
			continue
		}
		if _, err := c.Exec(ctx, deed); err != nil {
			if state := schemas.StateOf(err); !strings.HasPrefix(state, "23") && !strings.HasPrefix(state, "40") && state != "55P03" && state != "P0001" {
				t.Errorf("%s: %v", deed, err)
				return
			}
			if c == holder {
				return
			}
		}
	}
}

// past is what the executors' transactions did, by the log.
type past struct {
	gone    map[string]bool // n of each row
	deleted int64
	dropped int64
}

// read takes what was done since, and holds each batch against its policy.
func (m *mixture) read(rt *rapid.T, t *testing.T, db *pgtest.DB, h *history) past {
	p := past{gone: map[string]bool{}}
	var values, ages, cutoffs []string
	for _, tx := range h.read(t) {
		claim := tx.batch(t)
		if claim == nil {
			for _, c := range tx.changes {
				if c.table == "lapse.dropped" {
					p.dropped += one[int64](t, db, "select rows from lapse.dropped where batch = $1::uuid", c.row["batch"])
				}
			}
			continue
		}
		for _, c := range tx.changes {
			if c.kind == "DELETE" && strings.HasPrefix(c.table, m.schema+".") {
				p.gone[c.row["n"]] = true
				p.deleted++
				values, ages, cutoffs = append(values, c.row["at"]), append(ages, c.row["ttl"]), append(cutoffs, claim["cutoff"])
			}
		}
	}
	if early := one[int](t, db, "select count(*) from unnest($1::timestamptz[], $2::interval[], $3::timestamptz[]) u(at, ttl, cutoff) where u.at is null or "+m.falls()+" > u.cutoff", values, ages, cutoffs); early > 0 {
		rt.Errorf("%d rows were deleted that were not due", early)
	}
	return p
}

// pass lets all executors come to the end of a run, at once.
func (m *mixture) pass(t *testing.T, all []*Executor) (said int64) {
	var sum atomic.Int64
	var wait sync.WaitGroup
	for _, e := range all {
		wait.Go(func() {
			s, err := e.Once(t.Context(), []schemas.PolicyName{"p"})
			if len(s.Policies) != 1 {
				t.Errorf("%+v: %v", s, err)
				return
			}
			if o := s.Policies[0].Outcome; o != Finished && o != Limited && o != Resisted {
				t.Errorf("%s: %v", o, err)
			}
			sum.Add(s.Policies[0].Deleted)
		})
	}
	wait.Wait()
	return sum.Load()
}

// due is SQL of the rows that are, by the plain meaning of the policy.
func (m *mixture) due() string {
	blue := ""
	if slices.ContainsFunc(m.entry, func(e string) bool { return strings.HasPrefix(e, "where") }) {
		blue = " and color is distinct from 'blue'"
	}
	return m.schema + ".t where isfinite(at) and " + m.falls() + " <= (select max(cutoff) from lapse.run)" + blue
}

// settled runs one executor until it finds no more.
func (m *mixture) settled(rt *rapid.T, t *testing.T, e *Executor) (said int64) {
	for range 60 {
		went := m.pass(t, []*Executor{e})
		if said += went; went == 0 || t.Failed() {
			return said
		}
	}
	rt.Error("runs follow each other without an end")
	return said
}

func (m *mixture) judge(rt *rapid.T, t *testing.T, db *pgtest.DB, h *history) {
	s := holdSession(t, db)
	executors := make([]*Executor, 0, len(m.ways))
	for _, way := range m.ways {
		executors = append(executors, m.executor(t, db, way))
	}
	var beside sync.WaitGroup
	inForce := map[schemas.HoldID]string{}
	held := map[string]bool{}
	beside.Go(func() { m.live(t.Context(), t, db) })
	beside.Go(func() {
		for _, span := range m.held {
			where := fmt.Sprintf("n between %d and %d", span[0], span[1])
			placed, err := holds.Place(t.Context(), s, holds.Order{Request: byWhere(m.schema+".t", where), Matter: "M", Reason: "a test"})
			if err != nil {
				t.Errorf("hold: %v", err)
				return
			}
			inForce[placed.ID] = where
			for _, n := range one[[]string](t, db, "select coalesce(array_agg(n::text), '{}') from "+m.schema+".t where "+where) {
				held[n] = true
			}
		}
	})
	said := m.pass(t, executors)
	beside.Wait()
	db.Exec(t, "update lapse.quarantine set retry_at = clock_timestamp()")
	said += m.settled(rt, t, executors[0])
	resists := "false"
	switch m.resist {
	case "trigger":
		resists = "n % 17 = 0 and color is null"
	case "foreign key", "deferred":
		resists = "(" + m.key[2] + ") in (select " + m.key[2] + " from " + m.schema + ".child)"
	}
	isHeld := "false"
	if len(inForce) > 0 {
		isHeld = strings.Join(slices.Collect(maps.Values(inForce)), " or ")
	}
	if left := one[int](t, db, fmt.Sprintf("select count(*) from %s and not (%s) and not (%s)", m.due(), isHeld, resists)); left > 0 {
		rt.Errorf("%d due rows are left that nothing holds", left)
	}
	m.judgeRun(rt, t, db, isHeld)
	first := m.read(rt, t, db, h)
	for n := range held {
		if first.gone[n] {
			rt.Errorf("row %s went while it was held", n)
		}
	}
	// Nothing holds anything any more.
	for id := range inForce {
		if err := holds.Release(t.Context(), s, id, 0, "a test"); err != nil {
			t.Fatal(err)
		}
	}
	switch m.resist {
	case "trigger":
		owned(t, db, "drop trigger refuse on "+m.schema+".t")
	case "foreign key", "deferred":
		owned(t, db, "delete from "+m.schema+".child")
	}
	if _, err := tables.RetryQuarantined(t.Context(), s, "p", nil); err != nil {
		t.Fatal(err)
	}
	said += m.settled(rt, t, executors[len(executors)-1])
	if left := one[int](t, db, "select count(*) from "+m.due()); left > 0 {
		rt.Errorf("%d due rows are left in the end", left)
	}
	m.judgeRun(rt, t, db, "false")
	last := m.read(rt, t, db, h)
	if went := first.deleted + first.dropped + last.deleted + last.dropped; went != said {
		rt.Errorf("%d rows were deleted, the executors say %d", went, said)
	}
	ledger := one[int64](t, db, `select coalesce(sum(s.deleted), 0)::bigint from lapse.run r, lapse.statistics(r.run) s, lapse.policy p
		where p.id = r.policy_id and p.version = r.version and p.table_oid = $1::regclass`, m.schema+".t")
	if went := first.deleted + first.dropped + last.deleted + last.dropped; went != ledger {
		rt.Errorf("%d rows were deleted, the runs say %d", went, ledger)
	}
	if n := one[int64](t, db, "select count(*) from lapse.quarantine where policy_id = (select policy_id from lapse.policy p join lapse.gate g on g.policy_id = p.id and g.version = p.version where p.name = 'p')"); n > 0 {
		rt.Errorf("%d rows are in quarantine that are gone", n)
	}
}

// judgeRun holds what the last run says of what it left against the table.
func (m *mixture) judgeRun(rt *rapid.T, t *testing.T, db *pgtest.DB, held string) {
	due := strings.Replace(m.due(), "(select max(cutoff) from lapse.run)", "r.cutoff", 1)
	wrong := one[string](t, db, fmt.Sprintf(`
		select coalesce(string_agg(format('%%s left %%s of %%s, watermark %%s, oldest %%s', r.outcome, r.left_due, l.due, r.watermark, l.oldest), '; '), '')
		  from (select * from lapse.run order by number desc limit 1) r
		 cross join lateral (select count(*) filter (where not (%[1]s)) as due, min(%[2]s) filter (where not (%[1]s)) as oldest from %[3]s) l
		 where r.left_due <> l.due or r.watermark > l.oldest or r.outcome is null`, held, m.falls(), due))
	if wrong != "" {
		rt.Errorf("the run is wrong about what it left: %s", wrong)
	}
}

// Everything meets everything, on tables and policies at random, beside a busy application.
//
//lapse:long
func TestWhateverMeetsInARunExactlyTheDueRowsGo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		h := recorded(t, db)
		var worlds atomic.Int64
		rapid.Check(t, func(rt *rapid.T) {
			n := worlds.Add(1)
			if n > 6 && os.Getenv("LAPSE_TORTURE") == "" {
				return // enough outside of make torture
			}
			m := drawMixture(rt, fmt.Sprintf("m%d", n))
			m.create(t, db)
			arm(t, db, policies(m.policy()))
			db.Exec(t, `do $$ declare r regclass; begin
				for r in select oid from pg_class where relnamespace = '`+m.schema+`'::regnamespace and relkind = 'r' loop
					execute 'alter table ' || r || ' replica identity full';
				end loop; end $$`)
			h.read(t)
			m.judge(rt, t, db, h)
			if rt.Failed() {
				t.Logf("%+v", m)
			}
		})
	})
}
