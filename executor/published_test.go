package executor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/executor/guard"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// What somebody does to the publications, and how they take it back. What was only added and is gone again leaves no trace in
// the catalog, and took nothing from the evidence.
var tampering = map[string]struct {
	since        int
	change, back string
	says         string
	harmless     bool // once it was taken back
}{
	"the ledger's table taken out": {
		change: "alter publication lapse_ledger drop table lapse.batch",
		back:   "alter publication lapse_ledger add table lapse.batch", says: "publication lapse_ledger lacks table lapse.batch",
	},
	"another table in the ledger's": {
		change: "alter publication lapse_ledger add table public.other",
		back:   "alter publication lapse_ledger drop table public.other", says: "publication lapse_ledger has table public.other", harmless: true,
	},
	"no deletes published": {
		change: "alter publication lapse_deletes set (publish = 'insert')",
		back:   "alter publication lapse_deletes set (publish = 'delete, truncate')", says: "publication lapse_deletes does not publish delete, truncate",
	},
	"the ledger's inserts not published": {
		change: "alter publication lapse_ledger set (publish = 'truncate')",
		back:   "alter publication lapse_ledger set (publish = 'insert')", says: "publication lapse_ledger does not publish insert",
	},
	"via the root": {
		change: "alter publication lapse_changes set (publish_via_partition_root = true)",
		back:   "alter publication lapse_changes set (publish_via_partition_root = false)", says: "publication lapse_changes publishes partitions as their root",
	},
	"a table taken out": {
		change: "alter publication lapse_deletes drop table public.sessions",
		back:   "alter publication lapse_deletes add table public.sessions", says: "publication lapse_deletes lacks table public.sessions",
	},
	"all tables but one set": {
		change: "alter publication lapse_ledger set table lapse.batch, lapse.batch_result, lapse.dropped, lapse.heartbeat",
		back:   "alter publication lapse_ledger add table lapse.covered", says: "publication lapse_ledger lacks table lapse.covered",
	},
	"a table of the catalog taken out": {
		change: "alter publication lapse_catalog drop table lapse.gate",
		back:   "alter publication lapse_catalog add table lapse.gate", says: "publication lapse_catalog lacks table lapse.gate",
	},
	"a table added": {
		change: "alter publication lapse_deletes add table public.other",
		back:   "alter publication lapse_deletes drop table public.other", says: "publication lapse_deletes has table public.other", harmless: true,
	},
	"renamed": {
		change: "alter publication lapse_deletes rename to theirs",
		back:   "alter publication theirs rename to lapse_deletes", says: "publication lapse_deletes is not there",
	},
	"dropped": {
		change: "drop publication lapse_changes",
		back:   "create publication lapse_changes", says: "publication lapse_changes is not there",
	},
	"a row filter": {
		since: 15, change: "alter publication lapse_deletes set table public.sessions where (id > 1000), public.neighbour",
		back: "alter publication lapse_deletes set table public.sessions, public.neighbour", says: "publication lapse_deletes has table public.sessions with a row filter",
	},
	"a column list": {
		since: 15, change: "alter publication lapse_ledger drop table lapse.batch_result; alter publication lapse_ledger add table lapse.batch_result (batch)",
		back: "alter publication lapse_ledger drop table lapse.batch_result; alter publication lapse_ledger add table lapse.batch_result",
		says: "publication lapse_ledger has table lapse.batch_result with a column list",
	},
	"a whole schema": {
		since: 15, change: "alter publication lapse_deletes add tables in schema public",
		back: "alter publication lapse_deletes drop tables in schema public", says: "publication lapse_deletes publishes all tables of schema public", harmless: true,
	},
}

//lapse:long
func TestWhatOthersDoToThePublicationsStopsBatchesAndIsInTheBeat(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		owned(t, db, "create table other (id int primary key)", "create table neighbour (id int primary key)")
		arm(t, db, policies(policy("p", "public.sessions")))
		db.Exec(t, "update lapse.installation set audit_required = true, slot = '"+slotOf(db)+"'")
		makeSlot(t, db)
		pgtest.Beat(t, db)
		w := open(t, db, "p")
		fault := func() string {
			t.Helper()
			if err := beatAs(t, db, presentNumber, "lapse.timeline()", presentStart); err != nil {
				t.Fatal(err)
			}
			return one[string](t, db, "select coalesce(fault, '') from lapse.heartbeat order by id desc limit 1")
		}
		for what, c := range tampering {
			if c.since > db.Major {
				continue
			}
			pgtest.Publish(t, db, "public.sessions", "public.neighbour")
			w.goes(t, "before "+what)
			db.Exec(t, c.change)
			w.refused(t, what, schemas.SQLStatePublications, guard.PublicationsDiffer)
			if got := fault(); !strings.HasPrefix(got, c.says) {
				t.Errorf("%s: the beat says %q, want %q", what, got, c.says)
			}
			db.Exec(t, c.back)
			if c.harmless {
				w.goes(t, what+", taken back")
			} else {
				w.refused(t, what+", taken back", schemas.SQLStatePublications, guard.PublicationsDiffer)
				if got := fault(); got == "" {
					t.Errorf("%s, taken back: the beat says nothing", what)
				}
			}
			db.Exec(t, "drop publication lapse_deletes, lapse_changes, lapse_ledger, lapse_catalog")
		}
	})
}

func TestATableThatIsDroppedIsNoFaultUnlessItIsTheLedgers(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table other (id int primary key)")
		audited(t, db)
		db.Exec(t, "drop publication lapse_deletes, lapse_changes, lapse_ledger, lapse_catalog")
		pgtest.Publish(t, db, "public.sessions", "public.other")
		pgtest.Beat(t, db)
		w := open(t, db, "p")
		w.goes(t, "before")
		owned(t, db, "drop table other", "create table other (id int primary key)")
		w.goes(t, "after a table was dropped")
		db.Exec(t, "create table lapse.twin (like lapse.policy_state including all)", "drop table lapse.policy_state",
			"alter table lapse.twin rename to policy_state")
		if got := one[string](t, db, "select lapse.publications_fault()"); !strings.Contains(got, "lapse_catalog lacks table lapse.policy_state") {
			t.Errorf("after a table of the ledger was replaced: %q", got)
		}
	})
}

// Nobody but the beat would notice: PostgreSQL lets a published table have partitions that are in no log.
func TestAnUnloggedPartitionOfAPublishedTableIsInTheBeat(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table parted (id int, primary key (id)) partition by range (id)",
			"create table part_1 partition of parted for values from (0) to (100) partition by range (id)",
			"create table part_1a partition of part_1 for values from (0) to (50)",
			"create table part_2 partition of parted for values from (100) to (200)",
			"create table theirs (id int) partition by range (id)",
			"create unlogged table theirs_1 partition of theirs for values from (0) to (100)", "create unlogged table scratch (id int)")
		audited(t, db)
		db.Exec(t, "drop publication lapse_deletes, lapse_changes, lapse_ledger, lapse_catalog")
		pgtest.Publish(t, db, "public.sessions", "public.parted")
		fault := func() string {
			t.Helper()
			if err := beatAs(t, db, presentNumber, "lapse.timeline()", presentStart); err != nil {
				t.Fatal(err)
			}
			return one[string](t, db, "select coalesce(fault, '') from lapse.heartbeat order by id desc limit 1")
		}
		if got := fault(); got != "" {
			t.Errorf("before: the beat says %q", got)
		}
		const says = "table public.%s, a partition of public.parted, is unlogged, so that its deletes are not in the log: " +
			"alter table public.%[1]s set logged"
		for name, change := range map[string]string{
			"part_1b": "create unlogged table part_1b partition of part_1 for values from (50) to (100)",
			"part_2":  "alter table part_2 set unlogged",
		} {
			owned(t, db, change)
			if got, want := fault(), fmt.Sprintf(says, name); got != want {
				t.Errorf("%s: the beat says %q, want %q", change, got, want)
			}
			owned(t, db, "alter table "+name+" set logged")
			if got := fault(); got != "" {
				t.Errorf("%s, taken back: the beat says %q", change, got)
			}
		}
	})
}

func TestPublicationsThatWereNeverRecordedAreAFault(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	audited(t, db)
	pgtest.Beat(t, db)
	db.Exec(t, "delete from lapse.publication")
	open(t, db, "p").refused(t, "nothing on record", schemas.SQLStatePublications, guard.PublicationsDiffer)
}

// joins publishes a table as apply does.
func joins(t *testing.T, db *pgtest.DB, table string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), db.Connect(t), func(tx pgx.Tx) error {
		for _, statement := range []string{
			"select lapse.begin_publications()", "alter publication lapse_deletes add table " + table,
			fmt.Sprintf("select lapse.record_published(array['%s'::regclass::oid])", table),
		} {
			if _, err := tx.Exec(t.Context(), statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestATableThatJoinsIsNoFaultAndHidesNone(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table a (id int primary key)", "create table b (id int primary key)", "create table c (id int primary key)")
		audited(t, db)
		pgtest.Beat(t, db)
		state := func() string {
			return one[string](t, db, "select publication_faults || ' ' || coalesce(lapse.publications_fault(), 'none') from lapse.installation")
		}
		joins(t, db, "public.a")
		if got := state(); got != "0 none" {
			t.Errorf("after a table joined: %s", got)
		}
		db.Exec(t, "alter publication lapse_deletes drop table public.sessions")
		joins(t, db, "public.b")
		const fault = "publication lapse_deletes lacks table public.sessions"
		if got := state(); got != "1 "+fault {
			t.Errorf("after another was taken out and one joined: %s", got)
		}
		open(t, db, "p").refused(t, "another joined", schemas.SQLStatePublications, guard.PublicationsDiffer)
		// The same table joins again: right again, and on record that it was not.
		joins(t, db, "public.sessions")
		if got := state(); got != "2 none" {
			t.Errorf("after it joined again: %s", got)
		}
		if got := one[string](t, db, "select publication_fault_text from lapse.installation"); got != fault {
			t.Errorf("on record is %q", got)
		}
		if err := beatAs(t, db, presentNumber, "lapse.timeline()", presentStart); err != nil {
			t.Fatal(err)
		}
		if got := one[int](t, db, "select faults from lapse.heartbeat order by id desc limit 1"); got != 2 {
			t.Errorf("the beat says %d faults, want 2", got)
		}
		// The whole record is made again where a person has looked, and not where something is wrong.
		db.Exec(t, "alter publication lapse_deletes drop table public.a", "select lapse.record_publications()")
		if got := state(); got != "3 none" {
			t.Errorf("after a new record: %s", got)
		}
		db.Exec(t, "alter publication lapse_ledger drop table lapse.batch", "select lapse.record_publications()")
		if got := state(); !strings.HasSuffix(got, "lacks table lapse.batch") {
			t.Errorf("what is wrong was recorded as right: %s", got)
		}
	})
}
