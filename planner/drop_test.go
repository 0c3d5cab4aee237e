package planner

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

// parted makes a table of ranges by the column that its rows expire by: two that are over and due, one that is half due, one that
// is to come, and what belongs nowhere.
func parted(w *world) {
	w.t.Helper()
	w.do(`create table parts (id bigint, at timestamptz not null, note text, primary key (id, at)) partition by range (at)`)
	for i, days := range [][2]int{{400, 300}, {300, 200}, {100, -1}, {-1, -100}} {
		w.do(fmt.Sprintf(`do $$ begin execute format('create table parts_%d partition of parts for values from (%%L) to (%%L)',
			date_trunc('day', now()) - interval '%d days', date_trunc('day', now()) - interval '%d days'); end $$`, i+1, days[0], days[1]))
	}
	w.do(`create table parts_rest partition of parts default`)
	w.do(`insert into parts select n, date_trunc('day', now()) - n * interval '1 day' from generate_series(201, 400) n`)
	w.do(`insert into parts select n, date_trunc('day', now()) - n * interval '1 day' from generate_series(1, 90) n`)
	w.do(`insert into parts select n, now() - interval '1000 days' from generate_series(1, 10) n`)
}

const dropping = "    action: drop_partition\n    state: armed"

// partsLeft are the leaves that are left.
func partsLeft(w *world) string {
	w.t.Helper()
	return value[string](w, `select coalesce(string_agg(relation::regclass::text, ' ' order by relation::regclass::text), '') from pg_inherits i(relation)
		where i.inhparent = 'parts'::regclass`)
}

type dropped struct {
	Dropped bool
	Rows    int64
	Why     string
}

// drop calls a batch's dropping function in a transaction of its own.
func (w *world) drop(b *batch, change func(*batch)) (got dropped, err error) {
	w.t.Helper()
	err = pgx.BeginTxFunc(w.t.Context(), w.exec, pgx.TxOptions{IsoLevel: b.Isolation}, func(tx pgx.Tx) error {
		got, err = w.dropIn(tx, b, change)
		return err
	})
	return got, err
}

func (w *world) dropIn(tx pgx.Tx, b *batch, change func(*batch)) (got dropped, err error) {
	altered := *b
	c := &altered.Claim
	c.Batch = uuid.New()
	err = tx.QueryRow(w.t.Context(), `
		select pg_current_xact_id()::text::bigint, now(), (select oid from pg_database where datname = current_database()),
		       (select max(number) from lapse.history), lapse.timeline()`).
		Scan(&c.XID, &c.StartedAt, &c.DatabaseOID, &c.History, &c.Timeline)
	if err != nil {
		return got, err
	}
	if change != nil {
		change(&altered)
	}
	err = tx.QueryRow(w.t.Context(), `select dropped, rows, coalesce(why, '') from `+functions.DropFunction(b.Policy.ID, b.Policy.Version)+`(
		row($1::text, $2::oid, $3::int, $4::int, $5::text::xid8, $6::timestamptz, $7::uuid, $8::int, $9::text, $10::int, $11::uuid, $12::timestamptz,
		    $13::bigint, $14::oid, $15::oid[], $16::bytea)::lapse.claim, $17::bytea, row($18::bigint, $19::bigint, $20::text, $21::int, null, false, false, null, null)::lapse.work)`,
		"1", c.DatabaseOID, c.History, c.Timeline, fmt.Sprint(c.XID), c.StartedAt, c.Batch, c.PolicyID, c.Policy, c.PolicyVersion, c.Run, c.Cutoff, c.HoldVersion,
		c.Target, c.Cascades, c.Functions[:], altered.MAC, altered.Shard, altered.Term, altered.Holder, altered.Limit).Scan(&got.Dropped, &got.Rows, &got.Why)
	return got, err
}

// leaseOf takes the shard of a partition.
func (w *world) leaseOf(p record.InForce, r record.Run, leaf string) *batch {
	w.t.Helper()
	oid := w.oid(leaf)
	for b := w.leaseAny(p, r); b != nil; b = w.leaseAny(p, r) {
		if b.Claim.Target == oid {
			return b
		}
		must(w.t, runSQL(w.admin, `update lapse.shard set lease_until = clock_timestamp() + interval '1 hour', holder = 'nobody' where id = $1`, b.Shard))
	}
	w.t.Fatalf("the run has no shard of %s", leaf)
	return nil
}

func TestAPartitionIsDroppedWholeIfEveryRowOfItIsDue(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		parted(w)
		p := w.armed(policyText("shop.parts", "at", "30 days", dropping))
		r := w.open(&p)
		want := map[string]dropped{
			"parts_1":    {true, 100, ""},
			"parts_2":    {true, 100, ""},
			"parts_3":    {false, 0, "its range reaches to what is not due yet"},
			"parts_4":    {false, 0, "its range reaches to what is not due yet"},
			"parts_rest": {false, 0, "it is a default partition, or part of one"},
		}
		for leaf, want := range want {
			b := w.leaseOf(p, r, leaf)
			got, err := w.drop(b, nil)
			must(t, err)
			if got != want {
				t.Errorf("%s: got %+v, want %+v", leaf, got, want)
			}
			if done := valueOn[bool](t, w.admin, `select done and dropped and deleted = 100 from lapse.shard where id = $1`, b.Shard); done != want.Dropped {
				t.Errorf("%s: done is %t", leaf, done)
			}
			must(t, runSQL(w.admin, `update lapse.shard set lease_until = null, holder = null where not done`))
		}
		if left := partsLeft(w); left != "parts_3 parts_4 parts_rest" {
			t.Errorf("left are %s", left)
		}
		ledger := valueOn[string](t, w.admin, `select string_agg(concat_ws(' ', relation, rows, policy, policy_version, run = $1,
			oldest = date_trunc('day', now()) - case relation when 'shop.parts_1' then 400 else 300 end * interval '1 day',
			newest = date_trunc('day', now()) - case relation when 'shop.parts_1' then 301 else 201 end * interval '1 day'), ', ' order by relation) from lapse.dropped`, r.ID)
		if want := "shop.parts_1 100 p 1 t t t, shop.parts_2 100 p 1 t t t"; ledger != want {
			t.Errorf("the ledger says %s, want %s", ledger, want)
		}
		if total := w.deleteAll(p, r, 1000); total.Deleted != 71 {
			t.Errorf("%d rows were deleted beside, want the 61 of parts_3 that are due and 10 of the default partition", total.Deleted)
		}
		if n := value[int](w, `select count(*) from parts where at + interval '30 days' <= now()`); n != 0 {
			t.Errorf("%d due rows are left", n)
		}
		if n := value[int](w, `select count(*) from parts`); n != 29 {
			t.Errorf("%d rows are left, want the 29 that are not due", n)
		}
	})
}

// Whatever a policy that drops partitions is put on and cannot work, is said when it is applied.
func TestATableThatHasNoPartitionsToDropIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		parted(w)
		must(t, w.script(`create table public.own (id bigint, at timestamptz, primary key (id, at)) partition by range (at);
			create table public.own_1 partition of public.own default`))
		for text, want := range map[string]string{
			policyText("shop.sessions", "last_seen", "30 days", dropping):                           "shop.sessions has no partitions to drop",
			policyText("public.own", "at", "30 days", dropping):                                     "public.own belongs to a superuser",
			policyText("shop.parts", "at", "30 days", dropping, "    shards: {by: [id], count: 4}"): "drop_partition works on whole partitions: leave shards out",
		} {
			if _, err := w.difference(text, false); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		w.do(`create table listed (id bigint, at timestamptz, region text, primary key (id, region)) partition by list (region)`)
		w.do(`create table listed_eu partition of listed for values in ('eu')`)
		changes, err := w.difference(policyText("shop.listed", "at", "30 days", dropping), false)
		must(t, err)
		if warnings := strings.Join(changes[0].Warnings, "\n"); !strings.Contains(warnings, "no partition of shop.listed is a range") {
			t.Errorf("the warnings are %q", warnings)
		}
	})
}

// Another action is another decision: the policy observes again.
func TestAnotherActionIsObservedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)))
	parted(w)
	w.armed(policyText("shop.parts", "at", "30 days", "    state: armed"))
	changes := w.apply(policyText("shop.parts", "at", "30 days", dropping))
	if c := changes[0]; c.HeldVersion == 0 || c.ToState != schemas.Observing || !c.MoreFallDue {
		t.Errorf("to drop_partition: %+v", c)
	}
	w.armed(policyText("shop.parts", "at", "30 days", "    action: drop_partition\n    state: observing"))
	w.arm(w.named("p").ID)
	if n := valueOn[int](t, w.admin, `select count(*) from pg_proc where proname like 'drop\_1\_%'`); n != 1 {
		t.Errorf("%d functions that drop are there, want the version's one", n)
	}
	w.apply(policyText("shop.parts", "at", "30 days"))
	if n := valueOn[int](t, w.admin, `select count(*) from pg_proc where proname like 'drop\_1\_%'`); n != 0 {
		t.Errorf("%d functions that drop are left", n)
	}
}

// A plan names what would go whole, from the catalog alone.
func TestASurveySaysWhichPartitionsWouldBeDropped(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		parted(w)
		cases(w, "t", 2)
		p := w.armed(`policies:
  - {name: p, table: shop.parts, expire: {column: at, after: 30 days}, action: drop_partition, state: armed}
  - {name: q, table: shop.t, expire: {column: at, after: 30 days}, action: drop_partition, state: armed}`)
		drops := func(p record.InForce, at time.Time) (text string) {
			s, err := surveyInForce(t.Context(), w.exec, &p, at)
			must(t, err)
			for _, d := range s.Drops {
				text += d.Name
				if d.Rows != nil {
					text += fmt.Sprintf(" %d", *d.Rows)
				}
				text += ", "
			}
			return text
		}
		if got := drops(p, time.Time{}); got != "shop.parts_1, shop.parts_2, " {
			t.Errorf("without statistics: %s", got)
		}
		w.do(`analyze parts`)
		if got := drops(p, time.Time{}); got != "shop.parts_1 100, shop.parts_2 100, " {
			t.Errorf("by its own column: %s", got)
		}
		if got := drops(p, time.Now().AddDate(0, 0, -250)); got != "shop.parts_1 100, " {
			t.Errorf("250 days ago: %s", got)
		}
		if got := drops(w.named("q"), time.Time{}); got != "shop.t_00 50, shop.t_01 50, " {
			t.Errorf("by another column: %s", got)
		}

		// The same of a policy that is not applied, with a catalog and without.
		for _, without := range []string{"", "drop schema lapse cascade"} {
			if without != "" {
				db.Exec(t, without)
			}
			s := (&bare{w, "postgres", nil}).survey(policyText("shop.parts", "at", "30 days", dropping), survey.Ask{})
			if len(s.Drops) != 2 || s.Drops[0].Name != "shop.parts_1" || *s.Drops[1].Rows != 100 {
				t.Errorf("not applied: %+v, %s", s.Drops, s.Trouble)
			}
		}
	})
}

// A row that is written while the partition is counted, or while its locks are waited for, is not lost: either the writer waits, and is
// given way to, or it comes too late and is told.
func TestAPartitionIsNotDroppedWholeWithARowThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		cases(w, "t", 6)
		p := w.armed(policyText("shop.t", "at", "30 days", dropping))
		r := w.open(&p)
		for i := range 6 {
			leaf := fmt.Sprintf("t_%02d", i)
			b := w.leaseOf(p, r, leaf)
			reader, writer := db.ConnectAs(t, w.app), db.ConnectAs(t, w.app)
			must(t, runSQL(reader, `begin; select from shop.t`))
			type answer struct {
				dropped
				err error
			}
			dropping, written := make(chan answer, 1), make(chan error, 1)
			go func() {
				got, err := w.drop(b, nil)
				dropping <- answer{got, err}
			}()
			var first *answer
			for waits := false; !waits && first == nil; {
				waits = valueOn[bool](t, w.admin, `select exists (select from pg_locks where not granted and mode = 'AccessExclusiveLock' and relation = $1)`, p.TableOID)
				select {
				case a := <-dropping:
					first = &a
				default:
				}
			}
			go func() {
				_, err := writer.Exec(context.Background(), fmt.Sprintf(`insert into shop.%[1]s select 1000, date_trunc('day', now()) - interval '%[2]d days', now()`, leaf, 45+10*i))
				written <- err
			}()
			if i%2 == 0 {
				must(t, runSQL(reader, `commit`))
			}
			if first == nil {
				a := <-dropping
				first = &a
			}
			if i%2 == 1 {
				must(t, runSQL(reader, `commit`))
			}
			err := <-written
			switch there := value[bool](w, `select exists (select from t where id = 1000 and made = date_trunc('day', now()) - $1 * interval '1 day')`, 45+10*i); {
			case first.err != nil:
				wantState(t, first.err, schemas.SQLStateLockNotAvailable)
				if err != nil || !there {
					t.Errorf("%s: not dropped, and the row is there: %t, %v", leaf, there, err)
				}
			case first.Dropped && err == nil, there == (err != nil):
				t.Errorf("%s: %+v, the writer was told %v, and its row is there: %t", leaf, first.dropped, err, there)
			}
			must(t, runSQL(w.admin, `update lapse.shard set lease_until = null, holder = null where not done`))
		}
	})
}
