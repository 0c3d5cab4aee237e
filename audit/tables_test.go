package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/fixture"
	"lapse/internal/kafkatest"
	"lapse/replication"
	"lapse/schemas"
)

// joins publishes a table as apply does, or takes it out.
func (r *rig) joins(t *testing.T, conn *pgx.Conn, table string, join func(context.Context, pgx.Tx, uint32) error) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		var oid uint32
		if err := tx.QueryRow(t.Context(), `select $1::regclass::oid`, table).Scan(&oid); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), `select lapse.begin_publications()`); err != nil {
			return err
		}
		if err := join(t.Context(), tx, oid); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `select lapse.record_published(array[$1::oid])`, oid)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", table, err)
	}
}

// recordsOf are the records of a topic, each as the bytes that a consumer gets.
func (r *rig) recordsOf(t *testing.T, topics ...string) (all []string) {
	t.Helper()
	for _, topic := range topics {
		for _, record := range r.read(t, topic) {
			text := fmt.Sprint(record.Partition, " ", string(record.Key), " ", string(record.Value))
			for _, h := range record.Headers {
				text += fmt.Sprintf(" %s=%s", h.Name, h.Value)
			}
			all = append(all, text)
		}
	}
	slices.Sort(all)
	return all
}

// An auditor that is started again between any two heartbeats writes the bytes that one writes which reads everything at once: what
// is a partition of what comes in the order of the log, whatever the catalog says by then.
func TestEventsNameTheRootThatTheTableHadForEveryReader(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		conn := r.db.Connect(t)
		twin := *r
		name := kafkatest.Name()
		twin.settings.Slot, twin.settings.System, twin.settings.User, twin.settings.Log = r.settings.Slot+"_twin", name+".system", name+".user", name+".log"
		r.db.Exec(t, fmt.Sprintf(`select pg_copy_logical_replication_slot('%s', '%s')`, r.settings.Slot, twin.settings.Slot))
		n := 0
		lose := func(table string) {
			n++
			r.db.Exec(t, fmt.Sprintf(`insert into %s values (%d)`, table, n), fmt.Sprintf(`delete from %s where id = %d`, table, n))
		}
		var want []string
		expect := func(table, root string) {
			lose(table)
			want = append(want, fmt.Sprintf("%s/%s", table, root))
		}
		beat := func() { r.db.Exec(t, beatNow) }
		r.db.Exec(t, `create table parts (id int primary key) partition by range (id)`, `create table parts_a partition of parts for values from (0) to (100)`,
			`create table parts_b partition of parts default`)
		expect("public.scratch", "")
		r.joins(t, conn, "parts", replication.Join)
		expect("public.parts_a", "")
		beat()
		expect("public.parts_a", "public.parts")
		expect("public.scratch", "")
		r.once(t)
		r.db.Exec(t, `create table parts_c partition of parts for values from (1000) to (2000)`)
		n = 1000
		expect("public.parts_c", "")
		beat()
		expect("public.parts_c", "public.parts")
		r.db.Exec(t, `alter table parts detach partition parts_a`)
		n = 10
		if r.db.Major > 14 { // where a server that has sent a table goes on sending it, up to the next heartbeat
			lose("public.parts_a")
		}
		beat()
		lose("public.parts_a")
		r.once(t)
		r.db.Exec(t, `alter table parts rename to "The whole"`, `alter table parts_c rename to parts_d`)
		n = 1010
		expect("public.parts_d", "public.parts")
		beat()
		r.once(t)
		expect("public.parts_d", `public."The whole"`)
		r.db.Exec(t, `alter table "The whole" attach partition parts_a for values from (0) to (100)`, `drop table parts_b`)
		beat()
		n = 20
		expect("public.parts_a", `public."The whole"`)
		r.joins(t, conn, `"The whole"`, replication.Leave)
		lose("public.parts_a")
		beat()
		r.once(t)
		r.joins(t, conn, `"The whole"`, replication.Join)
		beat()
		expect("public.parts_a", `public."The whole"`)
		r.once(t)
		var got []string
		for _, record := range r.read(t, r.settings.User) {
			got = append(got, record.Header("lapse-lsn")+record.Header("lapse-table")+"/"+record.Header("lapse-root"))
		}
		slices.Sort(got)
		for i := range got {
			got[i] = got[i][16:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("tables and roots\n%q, want\n%q", got, want)
		}
		twin.once(t)
		all, again := r.recordsOf(t, r.settings.System, r.settings.User), r.recordsOf(t, twin.settings.System, twin.settings.User)
		if !slices.Equal(all, again) {
			t.Errorf("%q\nread at once is\n%q", all, again)
		}
		if text := strings.Join(r.changes(t), ", "); text != wantedChanges || strings.Join(twin.changes(t), ", ") != wantedChanges {
			t.Errorf("the log has\n%s\nand\n%s, want\n%s", text, strings.Join(twin.changes(t), ", "), wantedChanges)
		}
	})
}

const wantedChanges = `begins public.sessions , begins public.notes , begins public.scratch , begins public.elsewhere , begins public.parts_a public.parts, ` +
	`begins public.parts_b public.parts, begins public.parts_c public.parts, ends public.parts_a public.parts, renamed public.parts_b public."The whole", ` +
	`renamed public.parts_d public."The whole", begins public.parts_a public."The whole", ends public.parts_b public."The whole", ` +
	`ends public.parts_a public."The whole", ends public.parts_d public."The whole", begins public.parts_a public."The whole", begins public.parts_d public."The whole"`

// tableChange is a line of the log about a table.
type tableChange struct {
	Table, Root, Change string
	OID                 uint32 `json:"table_oid"`
	Until               struct{ LSN string }
	from                schemas.LSN
}

// tableChanges are what the log says of tables.
func (r *rig) tableChanges(t *testing.T) (all []tableChange) {
	t.Helper()
	r.readLog(t) // which holds each record to its schema
	for _, record := range r.read(t, r.settings.Log) {
		var l struct {
			Reached string
			Tables  []tableChange
		}
		if err := json.Unmarshal(record.Value, &l); err != nil {
			t.Fatal(err)
		}
		for _, c := range l.Tables {
			c.from = lsnOf(t, l.Reached)
			all = append(all, c)
		}
	}
	return all
}

func (r *rig) changes(t *testing.T) (all []string) {
	t.Helper()
	for _, c := range r.tableChanges(t) {
		all = append(all, fmt.Sprint(c.Change, " ", c.Table, " ", c.Root))
	}
	return all
}

// loss is a row that was deleted between two positions.
type loss struct {
	relation      uint32
	id            int64
	before, after schemas.LSN
}

// Tables join, leave, are renamed, detached, attached and dropped while rows are deleted from all of them. Wherever the log says
// that a table is covered, every deletion from it is in the topics, once.
func TestWhatTheLogSaysIsCoveredIsWholeInTheTopics(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		conn := r.db.Connect(t)
		r.db.Exec(t, `create table loaded (id bigint primary key)`, `create table parts (id bigint primary key) partition by list (id)`,
			`create table parts_a (id bigint primary key)`, `create table parts_b (id bigint primary key)`, `set lock_timeout = '1s'`)
		run := r.start(t, r.beating(50*time.Millisecond))
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		lost := make([][]loss, 2)
		var deleted [3]atomic.Int64
		for i := range lost {
			w := r.db.Connect(t)
			wait.Go(func() { lost[i] = loseRows(ctx, t, w, int64(i+1)*1_000_000, &deleted, "loaded", "parts_a", "parts_b") })
		}
		seen := func(change, table string) {
			t.Helper()
			eventually(t, change+" "+table, func() bool {
				return fixture.One[bool](t, conn, `select exists (select from lapse.covered c where c.relation = $1::regclass and
					(select h.covered from lapse.heartbeat h order by h.id desc limit 1) >= c.number and c.ended = $2 and c.number =
					(select max(k.number) from lapse.covered k where k.relation = c.relation))`, table, change == "ends")
			})
		}
		// lasts lets rows be deleted, and a heartbeat find that nothing has changed.
		lasts := func(table int) {
			t.Helper()
			rows := deleted[table].Load() + 5
			eventually(t, "rows are deleted", func() bool { return deleted[table].Load() > rows })
			beats := fixture.One[int64](t, conn, `select max(id) from lapse.heartbeat`) + 2
			eventually(t, "heartbeats go on", func() bool { return fixture.One[int64](t, conn, `select max(id) from lapse.heartbeat`) > beats })
		}
		r.joins(t, conn, "parts", replication.Join)
		for range 2 {
			r.joins(t, conn, "loaded", replication.Join)
			seen("begins", "loaded")
			lasts(0)
			r.db.Exec(t, `alter table parts attach partition parts_a default`)
			seen("begins", "parts_a")
			lasts(1)
			r.db.Exec(t, `alter table loaded rename to renamed`)
			r.db.Exec(t, `alter table parts detach partition parts_a`, `alter table renamed rename to loaded`)
			seen("ends", "parts_a")
			r.joins(t, conn, "loaded", replication.Leave)
			seen("ends", "loaded")
		}
		r.db.Exec(t, `alter table parts attach partition parts_b default`)
		seen("begins", "parts_b")
		lasts(2)
		stop()
		wait.Wait()
		r.catchUp(t, conn)
		run.end(t)
		r.covers(t, slices.Concat(lost...))
	})
}

// loseRows inserts and deletes rows, one after the other, in each of some tables, whatever they are called by then.
func loseRows(ctx context.Context, t *testing.T, conn *pgx.Conn, from int64, deleted *[3]atomic.Int64, tables ...string) (all []loss) {
	var relations []uint32
	for _, table := range tables {
		relations = append(relations, fixture.One[uint32](t, conn, `select $1::regclass::oid`, table))
	}
	for id := from; ctx.Err() == nil; id++ {
		which := id % int64(len(relations))
		l := loss{relation: relations[which], id: id}
		err := conn.QueryRow(context.WithoutCancel(ctx), `select pg_current_wal_insert_lsn()::text`).Scan(&l.before)
		if err == nil {
			_, err = conn.Exec(context.WithoutCancel(ctx), fmt.Sprintf(`do $$ begin execute format('insert into %%s values (%[1]d)', %[2]d::regclass);
				execute format('delete from %%s where id = %[1]d', %[2]d::regclass); end $$`, l.id, l.relation))
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) { // it was renamed between the two, or it is a partition that another row belongs into
			continue
		}
		if err == nil {
			err = conn.QueryRow(context.WithoutCancel(ctx), `select pg_current_wal_insert_lsn()::text`).Scan(&l.after)
		}
		if err != nil {
			t.Error(err)
			return all
		}
		all = append(all, l)
		deleted[which].Add(1)
	}
	return all
}

// covers holds the topics to what the log says of tables.
func (r *rig) covers(t *testing.T, lost []loss) {
	t.Helper()
	type window struct{ from, until schemas.LSN }
	windows := map[uint32][]window{}
	for _, c := range r.tableChanges(t) {
		of := windows[c.OID]
		switch c.Change {
		case "begins":
			windows[c.OID] = append(of, window{from: c.from})
		case "ends":
			of[len(of)-1].until = lsnOf(t, c.Until.LSN)
		}
	}
	events := map[string]int{}
	for _, record := range r.read(t, r.settings.User) {
		var e struct {
			Lapse struct {
				OID uint32 `json:"table_oid"`
			}
		}
		if err := json.Unmarshal(record.Value, &e); err != nil {
			t.Fatal(err)
		}
		events[fmt.Sprint(e.Lapse.OID, string(record.Key))]++
	}
	covered, missing, twice := map[uint32]int{}, 0, 0
	for _, l := range lost {
		n := events[fmt.Sprintf(`%d{"id":"%d"}`, l.relation, l.id)]
		if n > 1 {
			twice++
		}
		if slices.ContainsFunc(windows[l.relation], func(w window) bool { return w.from <= l.before && (w.until == 0 || l.after <= w.until) }) {
			covered[l.relation]++
			if n == 0 {
				missing++
			}
		}
	}
	t.Logf("%d rows deleted, %d events, %v while their table was covered, windows %v", len(lost), len(events), covered, windows)
	if missing > 0 || twice > 0 {
		t.Errorf("missing %d, twice %d", missing, twice)
	}
	if len(covered) != 3 || slices.Contains(slices.Collect(maps.Values(covered)), 0) {
		t.Errorf("of %d tables rows were deleted while they were covered, want 3", len(covered))
	}
}

// A beat whose tables are only partly in the log is read again, and no table is told twice.
//
//lapse:long
func TestTablesThatAreOnlyPartlyInTheLogAreReadAgain(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.db.Exec(t, `create table parts (id int primary key) partition by range (id)`, `do $$ begin for i in 1..1100 loop
			execute format('create table parts_%s partition of parts for values from (%s) to (%s)', i, i, i + 1); end loop; end $$`)
		r.joins(t, r.db.Connect(t), "parts", replication.Join)
		r.db.Exec(t, beatNow)
		r.dies(t, secondTables)
		log := r.readLog(t)
		if newest := log[len(log)-1]; newest.Kind != "coverage" || !newest.more || newest.position.Seq != 1 {
			t.Fatalf("the log ends with a record of kind %s, number %d (another to come: %v)", newest.Kind, newest.position.Seq, newest.more)
		}
		r.once(t)
		count := map[string]int{}
		for _, c := range r.tableChanges(t) {
			count[c.Table]++
		}
		if len(count) != 1104 || slices.Max(slices.Collect(maps.Values(count))) != 1 {
			t.Errorf("the log has %d tables", len(count))
		}
	})
}
