package replication

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
)

func TestATableThatPublishingWouldHarmIsRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		table     string // the first statement makes the table "t" or what else has that name
		want      identityReason
		from      int    // major version
		harms     bool   // deletes by the application fail once it is published
		harmsFrom int    // major version
		broken    bool   // they fail already
		later     string // what somebody does after it was published
		fix       bool   // the fix is SQL that can be run as it is
	}{
		"no primary key": {table: `create table t (id int)`, want: noPrimaryKey, harms: true},
		"a deferrable primary key": {
			table: `create table t (id int, constraint "K e y" primary key (id) deferrable)`, want: deferrableKey, harms: true, fix: true,
		},
		"identity nothing": {table: `create table t (id int primary key); alter table t replica identity nothing`, want: identityNothing, harms: true, fix: true},
		"identity full":    {table: `create table t (id int primary key); alter table t replica identity full`, want: identityFull, fix: true},
		"a dropped identity index": {
			table: `create table t (id int not null primary key, k int not null); create unique index t_k on t (k);
				alter table t replica identity using index t_k; drop index t_k`, want: invalidKey, harms: true, fix: true,
		},
		"unlogged": {table: `create unlogged table t (id int primary key)`, want: unloggedTable, fix: true},
		"a view":   {table: `create view t as select 1 as id`, want: notATable},
		"a foreign table": {
			table: `create foreign data wrapper w; create server s foreign data wrapper w; create foreign table t (id int) server s`, want: notATable,
		},
		"an inheritance parent": {table: `create table t (id int primary key); create table c () inherits (t)`, want: inheritanceParent, harms: true},
		"an inheritance child":  {table: `create table p (id int); create table t (primary key (id)) inherits (p)`, want: inheritanceChild},
		"a generated key": {
			table: `create table t (id int, twice int generated always as (id * 2) stored primary key)`, want: generatedKey, harms: true, harmsFrom: 18,
		},
		"a key that is generated in part": {
			table: `create table t (id int, twice int generated always as (id * 2) stored, primary key (id, twice))`,
			want:  generatedKey, harms: true, harmsFrom: 18,
		},
		"an identity index with a generated column": {
			table: `create table t (id int primary key, twice int not null generated always as (id * 2) stored unique);
				alter table t replica identity using index t_twice_key`,
			want: generatedKey, harms: true, harmsFrom: 18,
		},
		"a generated key of a table without partitions": {
			table: `create table t (id int, twice int generated always as (id * 2) stored, primary key (id, twice)) partition by range (id)`,
			later: `create table t1 partition of t for values from (0) to (10)`, want: generatedKey, harms: true, harmsFrom: 18,
		},
		"a generated key of a table whose partitions have another identity": {
			table: `create table t (id int not null, twice int generated always as (id * 2) stored, primary key (id, twice)) partition by range (id);
				create table t1 partition of t for values from (0) to (10); create unique index t1_id on t1 (id);
				alter table t1 replica identity using index t1_id`,
			later: `create table t2 partition of t for values from (10) to (20)`, want: generatedKey, harms: true, harmsFrom: 18,
		},
		"a partition with a generated identity": {
			table: `create table t (id int primary key, twice int not null generated always as (id * 2) stored) partition by range (id);
				create table t1 partition of t for values from (0) to (10); create unique index t1_twice on t1 (twice);
				alter table t1 replica identity using index t1_twice`,
			want: generatedKey, harms: true, harmsFrom: 18,
		},
		"one bad partition": {
			table: `create table t (id int primary key) partition by range (id); create table t1 partition of t for values from (0) to (10);
				create table t2 partition of t for values from (10) to (20); alter table t2 replica identity nothing`,
			want: identityNothing, harms: true, fix: true,
		},
		"a bad partition of a partition": {
			table: `create table t (id int) partition by range (id); create table t1 partition of t for values from (0) to (10) partition by range (id);
				create table t11 partition of t1 for values from (0) to (20)`, want: noPrimaryKey, harms: true,
		},
		"a foreign partition": {
			table: `create foreign data wrapper w; create server s foreign data wrapper w;
				create table t (id int) partition by range (id); create foreign table t1 partition of t for values from (0) to (10) server s`,
			want: noPrimaryKey, // with one there can be no such partition
		},
		"partitions with a key, of a table without": {
			table: `create table t (id int, k int) partition by list (k); create table t1 partition of t (primary key (id)) for values in (1)`,
			later: `create table t2 partition of t for values in (2)`, want: noPrimaryKey, harms: true,
		},
		"partitions with a key, of a table with an index for its identity": {
			table: `create table t (id int not null unique) partition by hash (id); alter table t replica identity using index t_id_key;
				create table t1 partition of t (primary key (id)) for values with (modulus 2, remainder 0)`,
			later: `create table t2 partition of t for values with (modulus 2, remainder 1)`, want: noPrimaryKey, harms: true,
		},
		"another publication's row filter": {
			table: `create table t (id int primary key, note text); create publication p for table t where (note > 'a')`,
			want:  filteredRows, from: 15, broken: true,
		},
		"a row filter on a column that the key's index only includes": {
			table: `create table t (id int, note text, primary key (id) include (note)); create publication p for table t where (note > 'a')`,
			want:  filteredRows, from: 15, broken: true,
		},
		"another publication's column list": {
			table: `create table t (id int primary key, note text); create publication p for table t (note)`,
			want:  filteredColumns, from: 15, broken: true,
		},
		"a column list of ours": {
			table: `create table t (id int primary key, note text); create publication lapse_deletes for table t (id) with (publish = 'delete, truncate')`,
			want:  filteredByUs, from: 15,
		},
	}
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		for name, c := range cases {
			if db.Major < c.from {
				continue
			}
			inRollback(t, conn, func(tx pgx.Tx) {
				mustExec(t, tx, c.table)
				oid := oidOf(t, tx, "t")
				err := CheckIdentity(t.Context(), tx, oid)
				var refused *IdentityError
				if !errors.As(err, &refused) || refused.Reason != c.want || GradeOf(err) != Stop {
					t.Errorf("%s: %v", name, err)
					return
				}
				if refused.Fix == "" || !strings.HasPrefix(refused.Table, "public.t") {
					t.Errorf("%s: %+v", name, refused)
				}
				// Of views and foreign tables none can be deleted in any case, and Lapse takes no table that others inherit from.
				if c.want != notATable && c.want != inheritanceParent && name != "a foreign partition" {
					foretellsDeletions(t, tx, name, c.later)
				}
				if broken := attempt(t, tx, `delete from t where id = 0`) != nil; c.broken && !broken {
					t.Errorf("%s: deletes do not fail", name)
				}
				if harmed := deletesFailOncePublished(t, tx, c.later); harmed != (c.harms && db.Major >= c.harmsFrom) {
					t.Errorf("%s: deletes fail once it is published: %v", name, harmed)
				}
				if c.fix {
					mustExec(t, tx, refused.Fix)
					if err := CheckIdentity(t.Context(), tx, oid); err != nil {
						t.Errorf("%s, after %s: %v", name, refused.Fix, err)
					}
				}
			})
		}
	})
}

func TestATableWhoseDeletionsNameTheirRowsIsAccepted(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		table string
		from  int
	}{
		"a primary key":      {table: `create table t (a int, b text, note text, primary key (b, a))`},
		"an index":           {table: `create table t (id int not null, note text); create unique index i on t (id); alter table t replica identity using index i`},
		"a key and an index": {table: `create table t (id int primary key deferrable, k int not null unique); alter table t replica identity using index t_k_key`},
		"partitions":         {table: `create table t (id int primary key) partition by hash (id); create table t1 partition of t for values with (modulus 1, remainder 0)`},
		"a root of no identity": {table: `create table t (id int primary key) partition by range (id); create table t1 partition of t for values from (0) to (10);
			alter table t replica identity nothing`},
		"no partition yet":                   {table: `create table t (id int primary key) partition by range (id)`},
		"a generated column outside the key": {table: `create table t (id int primary key, twice int generated always as (id * 2) stored)`},
		"a generated column that the key's index only includes": {
			table: `create table t (id int, twice int generated always as (id * 2) stored, primary key (id) include (twice))`,
		},
		"a row filter on the key":    {table: `create table t (id int primary key, note text); create publication p for table t where (id > 7)`, from: 15},
		"a column list with the key": {table: `create table t (id int primary key, note text, x int); create publication p for table t (note, id)`, from: 15},
		"a row filter on inserts":    {table: `create table t (id int primary key, note text); create publication p for table t where (note > 'a') with (publish = insert)`, from: 15},
	}
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		for name, c := range cases {
			if db.Major < c.from {
				continue
			}
			inRollback(t, conn, func(tx pgx.Tx) {
				mustExec(t, tx, c.table)
				if err := CheckIdentity(t.Context(), tx, oidOf(t, tx, "t")); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				foretellsDeletions(t, tx, name, "")
				if deletesFailOncePublished(t, tx, "") {
					t.Errorf("%s: accepted, and deletes fail once it is published", name)
				}
			})
		}
	})
}

func TestATableThatDoesNotExistOrIsNotOursIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	conn := db.Connect(t)
	exec(t, conn, `create temporary table mine (id int primary key)`)
	for oid, want := range map[uint32]identityReason{
		4000000000: noTable, oidOf(t, conn, "pg_class"): systemTable, oidOf(t, conn, "mine"): temporaryTable,
	} {
		var refused *IdentityError
		if err := CheckIdentity(t.Context(), conn, oid); !errors.As(err, &refused) || refused.Reason != want {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestTheNumberOfFurtherBadPartitionsIsSaid(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	conn := db.Connect(t)
	exec(t, conn, `create table t (id int primary key) partition by range (id); create table t1 partition of t for values from (0) to (10);
		create table t2 partition of t for values from (10) to (20); create table t3 partition of t for values from (20) to (30);
		alter table t1 replica identity nothing; alter table t2 replica identity full; alter table t3 replica identity nothing`)
	var refused *IdentityError
	err := CheckIdentity(t.Context(), conn, oidOf(t, conn, "t"))
	if !errors.As(err, &refused) || refused.Others != 2 || refused.Table != "public.t1" || !strings.Contains(err.Error(), "2 more") {
		t.Errorf("got %v", err)
	}
}

// inRollback runs something in a transaction that leaves nothing.
func inRollback(t *testing.T, conn *pgx.Conn, do func(tx pgx.Tx)) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	do(tx)
}

func mustExec(t *testing.T, tx pgx.Tx, sql string) {
	t.Helper()
	// The simple protocol takes several statements in one text.
	if _, err := tx.Conn().PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%v\nin: %s", err, sql)
	}
}

// deletesFailOncePublished asks the server itself: whether deletes from "t", after what was done later, fail that do not
// fail without a publication.
func deletesFailOncePublished(t *testing.T, tx pgx.Tx, later string) bool {
	t.Helper()
	deletes := later + `; delete from t`
	if attempt(t, tx, deletes) != nil || attempt(t, tx, `create publication probe for table t`) != nil {
		return false // nobody deletes there, or it cannot even be published
	}
	return attempt(t, tx, `create publication probe for table t with (publish = 'delete');`+deletes) != nil
}

// foretellsDeletions holds CheckDeletes to what a DELETE says, as the table is, in a publication of others, and in one of inserts.
func foretellsDeletions(t *testing.T, tx pgx.Tx, name, later string) {
	t.Helper()
	for _, publication := range []string{
		"", "create publication theirs for table t", "create publication theirs for all tables", "create publication theirs for table t with (publish_via_partition_root)",
		"create publication theirs for table t with (publish = insert)", "create publication theirs for table t with (publish_generated_columns = stored)",
		"create publication theirs for tables in schema public", "create publication theirs for table t (id)", "create publication theirs for table t (id, twice)", "create publication theirs for table t where (note > 'a')",
		"create publication theirs for table t where (id > 0)",
	} {
		inner, err := tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if attempt(t, tx, publication) == nil {
			mustExec(t, inner, publication+";"+later)
			fails := attempt(t, inner, "delete from t")
			oid := oidOf(t, inner, "t")
			foretold, err := CheckDeletes(t.Context(), inner, []uint32{oid})
			if err != nil || (fails != nil) != (foretold[oid] != nil) {
				t.Errorf("%s, %q: deletes fail: %v; foretold: %v, %v", name, publication, fails, foretold, err)
			}
		}
		if err := inner.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// attempt runs SQL and takes it back.
func attempt(t *testing.T, tx pgx.Tx, sql string) error {
	t.Helper()
	inner, err := tx.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := inner.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	_, err = inner.Conn().PgConn().Exec(t.Context(), sql).ReadAll()
	return err
}
