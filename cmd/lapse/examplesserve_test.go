package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/planner/database"
)

// witness is a checker that trusts neither Lapse nor its log. It reads the tables before and after, keeps what a user's own
// statements have returned, and reads the topics with another library than the one that publishes. Rows are named by table, the
// partition that they lie in, and by what their key must be in the topics.
type witness struct {
	t      *testing.T
	db     *pgtest.DB
	tables map[string]string // by partition or table, what a row's key must be, in SQL

	base   map[string]bool // the rows of examples/schema.sql
	more   map[string]bool // those that the user deletes some of, and whether they are due
	byUser map[string]bool
}

// moreRows are rows beside those of the examples: of each table as many that are due as that are not, and none in between.
const moreRows = `
	set timezone = 'UTC';
	insert into example.sessions (last_seen) select now() - interval '40 days' + n * interval '1 minute' from generate_series(1, 80) n;
	insert into example.sessions (last_seen) select now() + n * interval '1 minute' from generate_series(1, 80) n;
	insert into example.tokens (expires_at) select now() - n * interval '1 minute' from generate_series(1, 80) n;
	insert into example.tokens (expires_at) select now() + interval '1 day' from generate_series(1, 80) n;
	insert into example.orders (closed_at, status) select now() - interval '8 years' - n * interval '1 minute', 'closed' from generate_series(1, 80) n;
	insert into example.orders (closed_at, status) select now() - interval '8 years' - n * interval '1 minute', 'open' from generate_series(1, 80) n;
	with made as (insert into example.uploads (name) select 'more' from generate_series(1, 160) returning id)
		insert into example.upload_expiry select id, now() + case when id % 2 = 0 then - interval '1 day' else interval '1 day' end from made;
	insert into example.readings (sensor, at) select n, date '2024-03-01' + n % 7 from generate_series(1001, 1080) n;
	insert into example.readings (sensor, at) select n, now() - interval '1 hour' from generate_series(1001, 1080) n`

// moreDue says of those rows which are due. It is not how the policies say it.
var moreDue = map[string]string{
	"example.sessions":      "last_seen < now() - interval '35 days'",
	"example.tokens":        "expires_at < now()",
	"example.orders":        "status = 'closed' and closed_at < now() - interval '7.5 years'",
	"example.uploads":       "id % 2 = 0",
	"example.upload_expiry": "id % 2 = 0",
	"example.readings_old":  "true",
	"example.readings_new":  "false",
}

// newWitness makes the example database, with more rows in it.
func newWitness(t *testing.T, db *pgtest.DB) *witness {
	t.Helper()
	w := &witness{t: t, db: db, tables: map[string]string{}, more: map[string]bool{}, byUser: map[string]bool{}}
	schema, err := os.ReadFile(exampleSchema)
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, string(schema))
	rows, err := db.Connect(t).Query(t.Context(), `
		select c.oid::regclass::text,
		       '''{"' || string_agg(format('%s":"'' || %I || ''"', a.attname, a.attname), ',"' order by a.attnum) || '}'''
		  from pg_class c
		  join pg_index i on i.indrelid = c.oid and i.indisprimary
		  join pg_attribute a on a.attrelid = c.oid and a.attnum = any (i.indkey)
		 where c.relnamespace = 'example'::regnamespace and c.relkind = 'r'
		 group by c.oid`)
	if err != nil {
		t.Fatal(err)
	}
	var table, key string
	if _, err := pgx.ForEachRow(rows, []any{&table, &key}, func() error { w.tables[table] = key; return nil }); err != nil {
		t.Fatal(err)
	}
	w.base = w.rows(nil)
	db.Exec(t, moreRows)
	due := w.rows(moreDue)
	for row := range w.rows(nil) {
		if !w.base[row] {
			w.more[row] = due[row]
		}
	}
	return w
}

// rows are the keys of all rows, or of those that meet a condition, in the tables that have one.
func (w *witness) rows(where map[string]string) map[string]bool {
	w.t.Helper()
	var parts []string
	for _, table := range slices.Sorted(maps.Keys(w.tables)) {
		condition := "true"
		if where != nil {
			condition = where[table]
		}
		if condition != "" {
			parts = append(parts, fmt.Sprintf(`select '%s ' || %s from %s where %s`, table, w.tables[table], table, condition))
		}
	}
	conn := w.db.Connect(w.t)
	defer database.Close(conn)
	all := map[string]bool{}
	for _, row := range w.query(conn, strings.Join(parts, " union all ")) {
		all[row] = true
	}
	return all
}

// query returns the texts that a query has for an answer, in a session that writes times as an event must have them.
func (w *witness) query(conn *pgx.Conn, sql string, args ...any) []string {
	w.t.Helper()
	ctx := w.t.Context()
	if _, err := conn.Exec(ctx, `select set_config('timezone', 'UTC', false), set_config('datestyle', 'ISO', false)`); err != nil {
		w.t.Fatal(err)
	}
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	return texts
}

// deletes lets a user delete rows, due or not, until it is told to end: a few in each transaction. Some transactions are rolled
// back, and some write Lapse's tag into the log. What the statements return is what the user deleted.
func (w *witness) deletes(ctx context.Context, random *rand.Rand) error {
	conn, err := pgx.Connect(w.t.Context(), w.db.As(w.db.Name+"_app"))
	if err != nil {
		return err
	}
	defer database.Close(conn)
	if _, err := conn.Exec(w.t.Context(), `set timezone = 'UTC'`); err != nil {
		return err
	}
	rows := slices.DeleteFunc(slices.Sorted(maps.Keys(w.more)), func(row string) bool { return strings.HasPrefix(row, "example.upload_expiry ") })
	random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	for ctx.Err() == nil && len(rows) > 0 {
		n := min(1+random.IntN(3), len(rows))
		gone, err := w.transact(conn, rows[:n], random.IntN(6))
		if err != nil {
			return err
		}
		for _, row := range gone {
			w.byUser[row] = true
		}
		rows = rows[n:]
		wait(ctx, time.Duration(random.IntN(30))*time.Millisecond)
	}
	return nil
}

// errTakenBack has a transaction rolled back.
var errTakenBack = errors.New("the user takes it back")

// transact deletes rows in one transaction, and returns those that it deleted for good.
func (w *witness) transact(conn *pgx.Conn, rows []string, kind int) (gone []string, err error) {
	ctx := w.t.Context()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if kind == 1 {
			_, err := tx.Exec(ctx, `select pg_logical_emit_message(true, 'lapse', '{"transaction_tag":"RowDeletionPolicy","is_system_transaction":true}')`)
			if err != nil {
				return err
			}
		}
		for _, row := range rows {
			table, key, _ := strings.Cut(row, " ")
			var found string
			err := tx.QueryRow(ctx, fmt.Sprintf(`delete from %s where %s = $1 returning '%[1]s ' || %[2]s`, table, w.tables[table]), key).Scan(&found)
			switch {
			case errors.Is(err, pgx.ErrNoRows): // Lapse was there before
			case err != nil:
				return err
			default:
				gone = append(gone, found)
				if entry := "example.upload_expiry " + key; table == "example.uploads" {
					gone = append(gone, entry) // by its foreign key
				}
			}
		}
		if kind == 0 {
			return errTakenBack
		}
		return nil
	})
	if errors.Is(err, errTakenBack) {
		return nil, nil
	}
	return gone, err
}

// done says whether nothing is due any more: none of the further rows, and of the examples' as many as their comment says.
func (w *witness) done(due map[string]int64) bool {
	left, gone := w.rows(nil), map[string]int64{}
	for row := range w.base {
		if !left[row] {
			gone[policyOf(row)]++
		}
	}
	for row, due := range w.more {
		if due && left[row] {
			return false
		}
	}
	delete(gone, "upload_expiry")
	return maps.Equal(gone, due)
}

// policyOf is the policy of examples/policies.yaml that deletes a row.
func policyOf(row string) string {
	table, _, _ := strings.Cut(strings.TrimPrefix(row, "example."), " ")
	if strings.HasPrefix(table, "readings_") {
		return "readings"
	}
	return table
}

// topic is how often each row is in a topic, and the times of the transactions, read by another library.
func (w *witness) topic(broker *kafkaserver.Server, topic, cause string) (rows map[string]int, times []time.Time) {
	w.t.Helper()
	rows = map[string]int{}
	for _, record := range kafkatest.ReadAllOn(w.t, broker, topic) {
		if record.Header("lapse-op") == "fence" {
			continue
		}
		if record.Header("lapse-op") != "delete" || record.Header("lapse-cause") != cause {
			w.t.Errorf("%s has a %s of cause %s", topic, record.Header("lapse-op"), record.Header("lapse-cause"))
		}
		rows[record.Header("lapse-table")+" "+string(record.Key)]++
		times = append(times, record.Time)
	}
	slices.SortFunc(times, time.Time.Compare)
	return rows, times
}

// same wants each of the rows in a topic once, and nothing else.
func (w *witness) same(topic string, found map[string]int, want map[string]bool) {
	w.t.Helper()
	missing, twice, unknown := 0, 0, 0
	for row := range want {
		if found[row] == 0 {
			missing++
		}
	}
	for row, n := range found {
		if !want[row] {
			unknown++
		} else if n > 1 {
			twice++
		}
	}
	w.t.Logf("%s: %d rows deleted, %d events; missing %d, twice %d, unknown %d", topic, len(want), len(found), missing, twice, unknown)
	if missing+twice+unknown > 0 {
		w.t.Errorf("%s is not what was deleted", topic)
	}
}

// compare holds the topics against the tables. What is gone, and no statement of the user's has returned, Lapse deleted.
func (w *witness) compare(broker *kafkaserver.Server, name string) {
	w.t.Helper()
	left, byLapse, taken := w.rows(nil), map[string]bool{}, 0
	for row := range w.byUser {
		if left[row] {
			w.t.Fatalf("the user deleted %s, and it is there", row)
		}
		if w.more[row] {
			taken++
		}
	}
	for _, rows := range []map[string]bool{w.base, w.more} {
		for row := range rows {
			if left[row] || w.byUser[row] {
				continue
			}
			byLapse[row] = true
			if due, more := w.more[row]; more && !due {
				w.t.Errorf("Lapse deleted %s, which was not due", row)
			}
		}
	}
	system, times := w.topic(broker, name+".system", "system")
	w.same("system", system, byLapse)
	user, others := w.topic(broker, name+".user", "user")
	w.same("user", user, w.byUser)
	meanwhile := slices.DeleteFunc(others, func(at time.Time) bool { return at.Before(times[0]) || at.After(times[len(times)-1]) })
	w.t.Logf("of the user's rows %d were due, and %d were deleted while Lapse deleted", taken, len(meanwhile))
	if taken == 0 || len(meanwhile) == 0 {
		w.t.Error("the user and Lapse did not meet")
	}
}

// Of the example database, with a user who deletes at the same time what is due and what is not, the system's topic has exactly
// the retention deletes, and the user's exactly the user's. LAPSE_TEST_SEED repeats what the user chooses.
func TestServeTellsItsDeletesInTheExamplesFromAUsers(t *testing.T) {
	t.Parallel()
	due := dueCounts(t)
	policies, err := filepath.Abs(examplePolicies)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		seed := time.Now().UnixNano()
		if given, err := strconv.ParseInt(os.Getenv("LAPSE_TEST_SEED"), 10, 64); err == nil {
			seed = given
		}
		t.Logf("LAPSE_TEST_SEED=%d", seed)
		w, broker, name := newWitness(t, db), kafkatest.Broker(t), kafkatest.Name()
		app := db.NewRole(t, "app")
		db.Exec(t, `grant usage on schema example to `+app, `grant select, delete on all tables in schema example to `+app)
		m := newMachine(t, fmt.Sprintf(`
database: { owner: %q, executor: %q, auditor: %q }
keys: keys
kafka: { brokers: %q }
topics: { system: %[5]s.system, user: %[5]s.user, log: %[5]s.log, partitions: 3 }
`, db.URL, db.As("lapse_executor"), db.As("lapse_auditor"), broker.Addr(), name))
		m.lapse("init", "--keys", "keys")
		m.lapse("apply", "--yes", "-f", policies)
		m.lapse(append([]string{"policy", "arm"}, slices.Sorted(maps.Keys(due))...)...)

		deleting, stop := context.WithCancel(ctx)
		var user errgroup.Group
		user.Go(func() error { return w.deletes(deleting, rand.New(rand.NewPCG(uint64(seed), 0))) })
		d := m.serve()
		err := eventually(ctx, func() (bool, error) { return w.done(due), d.alive() })
		stop()
		if err = errors.Join(err, user.Wait()); err != nil {
			t.Fatal(err)
		}
		lintMetrics(t, d.metrics(ctx))
		d.stop()
		m.lapse("audit", "--once")
		w.compare(broker, name)
	})
}
