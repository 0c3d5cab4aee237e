package executor

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

// world is a table, what is in it, and what an application does to it while the executor runs.
type world struct {
	schema string
	kind   string // how the table is partitioned
	typ    string // of the column
	zone   string
	after  string
	batch  int
	heap   bool   // whether batches go by the table's file
	child  string // the action of a foreign key on the table, "" for no child
	rows   []string
	deeds  []string
}

// instants are SQL of what the column may hold: few, so that many rows share one, and the odd ones among them. Many lie
// close to where due ends.
func instants(rt *rapid.T, after string, nullable bool) []string {
	odd := []string{"'infinity'", "'-infinity'"}
	if nullable {
		odd = append(odd, "null")
	}
	return rapid.SliceOfN(rapid.OneOf(
		rapid.SampledFrom(odd),
		rapid.Map(rapid.IntRange(-70*24, 24), func(hours int) string { return fmt.Sprintf("now() + interval '%d hours'", hours) }),
		rapid.Map(rapid.IntRange(-90*86400, 86400), func(seconds int) string { return fmt.Sprintf("now() + interval '%d.000001 seconds'", seconds) }),
		rapid.Map(rapid.IntRange(-100, 100), func(hours int) string {
			return fmt.Sprintf("now() - interval '%s' + interval '%d hours'", after, hours)
		}),
		rapid.Map(rapid.IntRange(-20, 20), func(minutes int) string {
			return fmt.Sprintf("now() - interval '%s' + interval '%d minutes'", after, minutes)
		}),
	), 1, 8).Draw(rt, "instants")
}

func drawWorld(rt *rapid.T, schema string) *world {
	w := &world{
		schema: schema,
		kind:   rapid.SampledFrom([]string{"plain", "hash", "list", "range"}).Draw(rt, "kind"),
		typ:    rapid.SampledFrom([]string{"timestamptz", "timestamptz", "timestamp", "date"}).Draw(rt, "type"),
		after:  rapid.SampledFrom([]string{"30 days", "1 mon", "1 mon 2 days", "2 hours", "36:15:00"}).Draw(rt, "after"),
		batch:  rapid.IntRange(1, 40).Draw(rt, "batch"),
		heap:   rapid.Bool().Draw(rt, "heap"),
		child:  rapid.SampledFrom([]string{"", "", "cascade", "set null"}).Draw(rt, "child"),
	}
	if w.typ != "timestamptz" {
		w.zone = rapid.SampledFrom([]string{"", "Europe/Berlin", "America/St_Johns"}).Draw(rt, "zone")
	}
	some := instants(rt, w.after, w.kind != "range")
	for id := range rapid.IntRange(0, 250).Draw(rt, "rows") {
		w.rows = append(w.rows, fmt.Sprintf("(%d, %d, (%s)::%s)", id, id%4, rapid.SampledFrom(some).Draw(rt, "at"), w.typ))
	}
	for range rapid.IntRange(0, 25).Draw(rt, "deeds") {
		w.deeds = append(w.deeds, w.drawDeed(rt))
	}
	return w
}

// drawDeed is one transaction of the application's. "hold" locks rows until the end.
func (w *world) drawDeed(rt *rapid.T) string {
	from := rapid.IntRange(0, 250).Draw(rt, "from")
	these := fmt.Sprintf("where id between %d and %d", from, from+rapid.IntRange(0, 30).Draw(rt, "many"))
	switch rapid.SampledFrom([]string{"refresh", "expire", "touch", "hold", "delete", "insert due", "insert live", "re-key", "move"}).Draw(rt, "deed") {
	case "refresh":
		return "update t set at = now()::" + w.typ + " " + these
	case "expire":
		return "update t set at = (now() - interval '400 days')::" + w.typ + " " + these
	case "touch":
		return "update t set note = 'touched' " + these
	case "hold":
		return "select from t " + these + " for update"
	case "re-key":
		return "update t set id = id + 100000 " + these
	case "move": // to another partition, where there are some
		return "update t set tenant = (tenant + 1) % 4 " + these
	case "delete":
		return "delete from t " + these
	case "insert due":
		return "insert into t select 1000 + max(id), 1, (now() - interval '500 days')::" + w.typ + " from t"
	default:
		return "insert into t select 1000 + max(id), 2, now()::" + w.typ + " from t"
	}
}

// create makes the table as the application's role.
func (w *world) create(t *testing.T, db *pgtest.DB) {
	t.Helper()
	columns := "id bigint, tenant int not null, at " + w.typ + ", note text default repeat('x', 700), primary key (%s)"
	key := map[string]string{"plain": "id", "hash": "id", "list": "tenant, id", "range": "id, at"}[w.kind]
	parts := map[string][]string{
		"plain": {"create table t (" + columns + ")"},
		"hash": {
			"create table t (" + columns + ") partition by hash (id)",
			"create table t1 partition of t for values with (modulus 3, remainder 0)",
			"create table t2 partition of t for values with (modulus 3, remainder 1)",
			"create table t3 partition of t for values with (modulus 3, remainder 2)",
		},
		"list": {
			"create table t (" + columns + ") partition by list (tenant)",
			"create table t1 partition of t for values in (1)",
			"create table t2 partition of t default partition by hash (id)",
			"create table t21 partition of t2 for values with (modulus 2, remainder 0)",
			"create table t22 partition of t2 for values with (modulus 2, remainder 1)",
		},
		"range": {
			"create table t (" + columns + ") partition by range (at)",
			"create table t1 partition of t for values from (minvalue) to ('" + time.Now().AddDate(0, 0, -40).Format(time.DateOnly) + "')",
			"create table t2 partition of t for values from ('" + time.Now().AddDate(0, 0, -40).Format(time.DateOnly) + "') to ('" + time.Now().AddDate(0, 0, -10).Format(time.DateOnly) + "')",
			"create table t3 partition of t default",
		},
	}[w.kind]
	statements := []string{"create schema " + w.schema, "set search_path = " + w.schema, fmt.Sprintf(parts[0], key)}
	statements = append(statements, parts[1:]...)
	if len(w.rows) > 0 {
		statements = append(statements, "insert into t values "+strings.Join(w.rows, ", "))
	}
	statements = append(statements, "create index on t (at, id)")
	if w.child != "" {
		statements = append(statements,
			"create table child as select row_number() over () as n, "+key+" from t where id % 3 <> 0",
			"alter table child add primary key (n), add foreign key ("+key+") references t on delete "+w.child,
			"create table grandchild as select n as parent from child where n % 2 = 0",
			"alter table grandchild add foreign key (parent) references child on delete cascade")
		if w.child == "set null" {
			statements = append(statements, "alter table child alter id drop not null")
		}
	}
	db.Exec(t, "grant create on database "+db.Name+" to "+appRole)
	owned(t, db, statements...)
}

// watch makes the log carry whole rows. It is done after apply, which refuses such a table.
func (w *world) watch(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, `do $$ declare r regclass; begin
		for r in select oid from pg_class where relnamespace = '`+w.schema+`'::regnamespace and relkind = 'r' loop
			execute 'alter table ' || r || ' replica identity full; analyze ' || r;
		end loop; end $$`)
}

func (w *world) file() string {
	zone := ""
	if w.zone != "" {
		zone = ", zone: " + w.zone
	}
	return policies(fmt.Sprintf("  - {name: p, table: %s.t, expire: {column: at, after: %q%s}, batch: %d, state: armed}\n", w.schema, w.after, zone, w.batch))
}

// executor is one whose batches find their rows as the world says.
func (w *world) executor(t *testing.T, db *pgtest.DB) *Executor {
	t.Helper()
	e := newExecutor(t, db)
	e.readBacklog = func(ctx context.Context, conn *pgx.Conn, _ *record.InForce, _ time.Time, _ *survey.Judgement) (b survey.Backlog, err error) {
		if !w.heap {
			return b, nil
		}
		rows, err := conn.Query(ctx, "select c.oid from pg_class c where c.relnamespace = $1::regnamespace and c.relkind = 'r'", w.schema)
		if err == nil {
			b.Heaps, err = pgx.CollectRows(rows, pgx.RowTo[uint32])
		}
		return b, err
	}
	return e
}

// due is the SQL of the plain meaning of a policy, written apart from the planner's.
func (w *world) due(value, cutoff string) string {
	zone := w.zone
	if zone == "" {
		zone = "UTC"
	}
	instant := map[string]string{
		"timestamptz": "%s", "timestamp": "(%s at time zone '" + zone + "')", "date": "(%s::timestamp at time zone '" + zone + "')",
	}[w.typ]
	value = "(" + value + ")::" + w.typ
	return "(case when isfinite(" + value + ") then " + fmt.Sprintf(instant, value) + " + interval '" + w.after + "' <= " + cutoff + " else false end)"
}

// live does the application's deeds, and returns the transactions that did them.
func (w *world) live(ctx context.Context, db *pgtest.DB) (xids []string, err error) {
	conn, err := pgx.Connect(ctx, db.As(appRole))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	holder, err := pgx.Connect(ctx, db.As(appRole))
	if err != nil {
		return nil, err
	}
	defer func() { _ = holder.Close(ctx) }()
	if _, err := holder.Exec(ctx, "set search_path = "+w.schema+"; set lock_timeout = '20ms'; begin"); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "set search_path = "+w.schema+"; set lock_timeout = '200ms'"); err != nil {
		return nil, err
	}
	for _, deed := range w.deeds {
		if strings.HasPrefix(deed, "select") {
			// Rows that are in somebody's hand just then are left alone; the transaction goes on.
			if _, err := holder.Exec(ctx, deed+" skip locked"); err != nil {
				return nil, err
			}
			continue
		}
		var xid string
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, "select (pg_current_xact_id()::text::bigint & 4294967295)::text").Scan(&xid); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, deed)
			return err
		})
		// What fails for a lock or a foreign key did nothing.
		if state := schemas.StateOf(err); err != nil && !strings.HasPrefix(state, "23") && !strings.HasPrefix(state, "40") && state != "55P03" {
			return nil, fmt.Errorf("%s: %w", deed, err)
		}
		xids = append(xids, xid)
	}
	return xids, nil
}

// The oracle is the write-ahead log: whatever the executor's transactions deleted was due by the plain meaning of the
// policy at the cutoff they claim, or went with such a row; they signed for it; and when nobody holds rows any more, nothing
// due is left.
func TestExactlyTheDueRowsGo(t *testing.T) {
	t.Parallel()
	if rapidChecks := flag.Lookup("rapid.checks"); rapidChecks.Value.String() == rapidChecks.DefValue {
		if err := rapidChecks.Value.Set("15"); err != nil {
			t.Fatal(err)
		}
	}
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		h := recorded(t, db)
		var worlds atomic.Int64
		rapid.Check(t, func(rt *rapid.T) {
			w := drawWorld(rt, fmt.Sprintf("w%d", worlds.Add(1)))
			w.create(t, db)
			arm(t, db, w.file())
			w.watch(t, db)
			h.read(t) // what was done so far is no deletion

			type life struct {
				xids []string
				err  error
			}
			lives := make(chan life, 1)
			go func() {
				xids, err := w.live(t.Context(), db)
				lives <- life{xids, err}
			}()
			first := once(t, w.executor(t, db), "p")
			application := <-lives
			if application.err != nil {
				rt.Fatal(application.err)
			}
			second := once(t, w.executor(t, db), "p")

			said := only(t, first).Deleted + only(t, second).Deleted
			cascaded := only(t, first).Cascaded + only(t, second).Cascaded
			w.judge(rt, t, db, h.read(t), application.xids, said, cascaded)
		})
	})
}

// judge holds the history against the policy.
func (w *world) judge(rt *rapid.T, t *testing.T, db *pgtest.DB, past []*transaction, application []string, said, cascaded int64) {
	known := map[string]bool{}
	for _, xid := range application {
		known[xid] = true
	}
	results := results(t, db)
	var values, cutoffs []string
	var gone, alsoGone int64
	for _, tx := range past {
		claim := tx.batch(t)
		perTable := map[string]int64{}
		for _, c := range tx.changes {
			if c.kind != "DELETE" || !strings.HasPrefix(c.table, w.schema+".") {
				continue
			}
			if claim == nil {
				if !known[tx.xid] {
					rt.Errorf("transaction %s deleted from %s and is nobody's", tx.xid, c.table)
				}
				continue
			}
			perTable[c.table]++
			if strings.Contains(c.table, "child") {
				alsoGone++
				continue
			}
			gone++
			values, cutoffs = append(values, c.row["at"]), append(cutoffs, claim["cutoff"])
		}
		if claim != nil {
			w.judgeBatch(rt, tx, claim, perTable, results[claim["batch"]])
		}
	}
	if gone != said || alsoGone != cascaded {
		rt.Errorf("%d rows and %d by cascade went, the executor says %d and %d", gone, alsoGone, said, cascaded)
	}
	if early := one[int](t, db, "select count(*) from unnest($1::text[], $2::timestamptz[]) u(v, cutoff) where not "+w.due("u.v", "u.cutoff"), values, cutoffs); early > 0 {
		rt.Errorf("%d rows were deleted that were not due", early)
	}
	if left := one[int](t, db, "select count(*) from "+w.schema+".t where "+w.due("at::text", "(select max(cutoff) from lapse.run)")); left > 0 {
		rt.Errorf("%d due rows are left", left)
	}
}

// results are the counts of every batch on record, by batch and table.
func results(t *testing.T, db *pgtest.DB) map[string]map[string]int64 {
	t.Helper()
	return one[map[string]map[string]int64](t, db, `
		select coalesce(jsonb_object_agg(b.batch, b.counts), '{}')
		  from (select b.batch, jsonb_object_agg(n.nspname || '.' || c.relname, r.value::bigint) as counts
		          from lapse.batch_result b
		         cross join lateral jsonb_each_text(b.by_relation) r
		          join pg_class c on c.oid = r.key::oid
		          join pg_namespace n on n.oid = c.relnamespace
		         group by b.batch) b`)
}

// judgeBatch holds one transaction against its ledger rows: counts per relation, and each child gone with a parent.
func (w *world) judgeBatch(rt *rapid.T, tx *transaction, claim map[string]string, perTable, said map[string]int64) {
	if !maps.Equal(said, perTable) {
		rt.Errorf("batch %s says %v, the log %v", claim["batch"], said, perTable)
	}
	parents := map[string]bool{}
	for table := range perTable {
		if !strings.Contains(table, "child") {
			for _, row := range tx.deleted(table) {
				parents[row["id"]] = true
			}
		}
	}
	for _, row := range tx.deleted(w.schema + ".child") {
		if !parents[row["id"]] {
			rt.Errorf("batch %s took a child along whose parent stays", claim["batch"])
		}
	}
}
