package executor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// shop is a table of one kind of expiry, and how its rows are made due, or not due, all of it written apart from the planner.
type shop struct {
	name, column, expire, index string
	due, live                   []string // values of column v, and of column w, as SQL
	more                        []string // further keys of the policy
	where                       string   // SQL: only such rows are deleted
	registry                    bool     // v is a column of a table beside it
}

const ago, soon = "(now() - interval '400 days')", "(now() + interval '400 days')"

func shops() []shop {
	iso := func(at string) string {
		return "to_char(" + at + " at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
	}
	epoch := func(at, times string) string { return "floor(extract(epoch from " + at + ") * " + times + ")" }
	object := func(value string) string { return "jsonb_build_object('a', jsonb_build_object('b.c', " + value + "))" }
	const path = `, path: 'a."b.c"'`
	return []shop{
		{
			name: "alone", column: "timestamptz", expire: "column: v", index: "v, id",
			due: []string{ago, "now()", "'4713-01-02 BC'"}, live: []string{soon, "null", "'infinity'", "'-infinity'"},
		},
		{
			name: "months", column: "timestamp", expire: "column: v, after: 1 mon 2 days, zone: Australia/Lord_Howe", index: "v, id", more: []string{"shards: {count: 3}"},
			due: []string{ago, "now() - interval '40 days'"}, live: []string{"now() - interval '25 days'", "null", "'-infinity'"},
		},
		{
			name: "filtered", column: "date", expire: "column: v, after: 10 days", index: "v, id", where: "w > 0", more: []string{"shards: {count: 2, by: [w]}"},
			due: []string{ago, "now() - interval '12 days'"}, live: []string{"now()", "null", "'infinity'"},
		},
		{
			name: "ttl", column: "timestamptz", expire: "column: v, ttl_column: w, ttl_default: 1000 days", index: "v, id",
			due: []string{"(now() - interval '3000 days')"}, live: []string{"now() + interval '1 day'", soon, "null", "'-infinity'"},
		},
		{
			name: "seconds", column: "numeric", expire: "column: v, epoch: s", index: "v, id",
			due: []string{epoch(ago, "1"), "0.5", "-1e9"}, live: []string{epoch(soon, "1"), "'NaN'", "null", "-1e300", "1e300"},
		},
		{
			name: "milliseconds", column: "jsonb", expire: "column: v, epoch: ms" + path + ", after: 1 day", more: []string{"shards: {count: 2}"},
			due: []string{object(epoch(ago, "1000")), object("0")}, live: []string{object(epoch(soon, "1000")), object("'0'::text"), object("1e400::numeric"), "'{}'", "'[]'", "null"},
		},
		{
			name: "texts", column: "text", expire: "column: v, iso8601: true", index: `v collate "C", id`,
			due: []string{iso(ago), "'2019-05-27'", "'2019-05-27T21:20:00.123+01:30'"}, live: []string{iso(soon), "'2019-05-27 '", "'2026-02-30'", "''", "null", "repeat('2019-05-27', 9000)"},
		},
		{
			name: "instant", column: "jsonb", expire: "column: v, instant: true" + path,
			due: []string{object(iso(ago)), object(epoch(ago, "1"))}, live: []string{object(iso(soon)), object(epoch(soon, "1")), object("null::text"), object("true"), "null"},
		},
		{
			name: "bucket", column: "timestamptz", expire: "bucket: {column: v, span: 1 day}, after: 1 hour", index: "v, id",
			due: []string{ago, "now() - interval '26 hours'"}, live: []string{"now() - interval '24 hours'", "null", "'-infinity'"},
		},
		{
			name: "beside", column: "timestamptz", expire: "sidecar: public.beside_r, column: v, after: 1 day", registry: true,
			due: []string{ago, "now() - interval '25 hours'"}, live: []string{"now()", soon, "null", "'-infinity'"},
		},
		{
			name: "expression", column: "timestamptz", expire: "expression: 'case when w > 0 then v end'", where: "w > 0",
			due: []string{ago}, live: []string{soon, "null", "'-infinity'"},
		},
	}
}

// create makes the table, in three partitions between which rows move when w changes.
func (s *shop) create(t *testing.T, db *pgtest.DB, r *rand.Rand, rows int) {
	t.Helper()
	statements := []string{
		"create table " + s.name + " (w int, id bigint, v " + s.column + ", primary key (id, w)) partition by list (w)",
		"create table " + s.name + "_1 partition of " + s.name + " for values in (1, 2)",
		"create table " + s.name + "_2 partition of " + s.name + " for values in (3)",
		"create table " + s.name + "_3 partition of " + s.name + " default",
	}
	if s.index != "" {
		statements = append(statements, "create index on "+s.name+" ("+s.index+")")
	}
	for id := range rows {
		statements = append(statements, fmt.Sprintf("insert into %s values (%d, %d, %s)", s.name, 1+r.IntN(4), id, s.any(r)))
	}
	if s.registry {
		statements = append(statements, "create table "+s.name+"_r as select * from "+s.name, "alter table "+s.name+"_r add primary key (id, w)", "create index on "+s.name+"_r (v, id, w)",
			"update "+s.name+" set v = '2000-01-01'")
	}
	owned(t, db, statements...)
}

func (s *shop) any(r *rand.Rand) string {
	values := slices.Concat(s.due, s.live)
	return values[r.IntN(len(values))]
}

func (s *shop) policy() string {
	lines := slices.Clone(s.more)
	if s.where != "" {
		lines = append(lines, "where: "+s.where)
	}
	return fmt.Sprintf("  - name: %s\n    table: public.%[1]s\n    expire: {%s}\n    batch: 7\n    state: armed\n    %s\n", s.name, s.expire, strings.Join(lines, "\n    "))
}

// change changes rows at random, and returns by their ids those that it has changed: true if they must stay, false if they must go.
func (s *shop) change(ctx context.Context, db *pgtest.DB, r *rand.Rand, rows int) (map[int]bool, error) {
	conn, err := pgx.Connect(ctx, db.As(appRole))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	stays := map[int]bool{}
	for range 3 * rows {
		id := r.IntN(rows)
		live := r.IntN(2) == 0
		value := s.due[r.IntN(len(s.due))]
		if live {
			value = s.live[r.IntN(len(s.live))]
		}
		to := id
		set := fmt.Sprintf("v = %s, w = %d", value, 1+r.IntN(4)) // perhaps in another partition
		if s.where != "" && r.IntN(4) == 0 {
			set, live = fmt.Sprintf("v = %s, w = -%d", value, 1+r.IntN(4)), true
		}
		if r.IntN(3) == 0 {
			to = rows + r.IntN(1_000_000_000)
			set += fmt.Sprintf(", id = %d", to)
		}
		statement := fmt.Sprintf("update %s set %s where id = %d", s.name, set, id)
		if s.registry {
			statement = fmt.Sprintf("with here as (%s returning 1) update %s_r set %s where id = %d and exists (select from here)", statement, s.name, set, id)
		}
		tag, err := conn.Exec(ctx, statement)
		if err != nil {
			if strings.HasPrefix(schemas.StateOf(err), "40") { // a deadlock, or a row that went to another partition
				continue
			}
			return nil, err
		}
		if tag.RowsAffected() == 1 {
			delete(stays, id)
			stays[to] = live
		}
	}
	return stays, nil
}

//lapse:long
func TestNoKindLosesARowThatABusyApplicationKeepsNorKeepsOneThatIsDue(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		seed := uint64(time.Now().UnixNano())
		const rows = 60
		var entries []string
		all := shops()
		for i := range all {
			all[i].create(t, db, rand.New(rand.NewPCG(seed, uint64(i))), rows)
			entries = append(entries, all[i].policy())
		}
		arm(t, db, policies(entries...))
		ctx, cancel := context.WithCancel(t.Context())
		stays := make([]map[int]bool, len(all))
		var busy, executors sync.WaitGroup
		for i := range all {
			busy.Go(func() {
				var err error
				if stays[i], err = all[i].change(t.Context(), db, rand.New(rand.NewPCG(seed, uint64(100+i))), rows); err != nil {
					t.Error(all[i].name, err)
				}
			})
		}
		for range 2 {
			e := newExecutor(t, db)
			executors.Go(func() {
				for ctx.Err() == nil {
					for i := range all {
						_, _ = e.Once(ctx, []schemas.PolicyName{schemas.PolicyName(all[i].name)})
					}
				}
			})
		}
		busy.Wait()
		cancel()
		executors.Wait()
		for i := range all {
			s := &all[i]
			e := newExecutor(t, db)
			once(t, e, schemas.PolicyName(s.name)) // it goes on with a run that was left, whose shards may be done
			sum := once(t, e, schemas.PolicyName(s.name))
			gone := 0
			for id, must := range stays[i] {
				if there := one[int](t, db, fmt.Sprintf("select count(*) from %s where id = %d", s.name, id)) == 1; there != must {
					t.Errorf("seed %d, %s: row %d is there: %t", seed, s.name, id, there)
				}
				if !must {
					gone++
				}
			}
			t.Logf("%s: %d rows changed, %d of them gone, last run %+v", s.name, len(stays[i]), gone, only(t, sum).Deleted)
		}
	})
}
