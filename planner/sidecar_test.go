package planner

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/schemas"
)

const sidecarPolicy = "policies:\n  - {name: p, table: shop.carts, expire: {sidecar: shop.registry, column: expires}, state: armed}\n"

// 1, 2 and 3 of seven rows are due. 8 is nobody's, and 7 is not registered.
var registered = []string{
	`create table carts (id int primary key, note text)`,
	`create table registry (id int primary key, expires timestamptz)`,
	`create index on registry (expires, id)`,
	`insert into carts select n, 'x' from generate_series(1, 7) n`,
	`insert into registry values (1, now() - interval '3 days'), (2, now() - interval '2 days'), (3, now() - interval '1 second'),
	   (4, now() + interval '1 hour'), (5, null), (6, 'infinity'), (8, now() - interval '1 day')`,
}

func TestARegistrySaysWhenRowsAreDue(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, registered...)
		changes := w.apply(sidecarPolicy)
		if all := strings.Join(changes[0].Warnings, "\n"); !strings.Contains(all, "rows of shop.registry stay") || strings.Contains(all, "index") {
			t.Errorf("without a foreign key, apply warns of %q", all)
		}
		w.arm(1)
		p := w.named("p")
		survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		if survey.Due != 3 || survey.Trouble != "" || survey.Explain == "" || survey.Oldest == nil {
			t.Errorf("the survey says %+v", survey)
		}
		if total := w.deleteAll(p, w.open(&p), 2); total.Picked != 3 || total.Deleted != 3 {
			t.Errorf("picked and deleted %+v, want 3", total)
		}
		if got := value[[]int32](w, `select array_agg(id order by id) from carts`); !slices.Equal(got, []int32{4, 5, 6, 7}) {
			t.Errorf("rows %v are left", got)
		}
		if n := value[int](w, `select count(*) from registry`); n != 7 {
			t.Errorf("%d rows are left in the registry", n)
		}
		for name, c := range map[string]struct{ do, undo, state string }{
			"renamed":             {`alter table registry rename to r2`, `alter table r2 rename to registry`, "42P01"},
			"another of its name": {`alter table registry rename to r2; create table registry (id int primary key, expires timestamptz)`, `drop table registry; alter table r2 rename to registry`, schemas.SQLStateTarget},
			"another column":      {`alter table registry rename expires to was; alter table registry add expires timestamptz`, `alter table registry drop expires; alter table registry rename was to expires`, schemas.SQLStateColumns},
			"another type":        {`alter table registry alter expires type timestamp`, `alter table registry alter expires type timestamptz`, schemas.SQLStateColumns},
			"a trigger":           {`create function f() returns trigger language plpgsql as 'begin return old; end'; create trigger a after delete on registry for each row execute function f()`, `drop trigger a on registry; drop function f()`, schemas.SQLStateTriggers},
			"a check's function":  {`create function f(v int) returns boolean language sql immutable as 'select true'; alter table registry add constraint c check (f(id))`, `alter table registry drop constraint c; drop function f(int)`, schemas.SQLStateTriggers},
		} {
			b := w.lease(p, w.open(&p))
			plant(w, c.do)
			_, err := w.call(b, nil)
			if state := schemas.StateOf(err); state != c.state {
				t.Errorf("%s: %v, want %s", name, err, c.state)
			}
			plant(w, c.undo)
		}
		b := w.lease(p, w.open(&p))
		must(t, runSQL(w.admin, `alter table shop.registry owner to session_user`))
		_, err = w.call(b, nil)
		wantState(t, err, "42501")
		survey, err = surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		if !strings.Contains(survey.Trouble, "another owner's") {
			t.Errorf("of another owner's registry the survey says %q", survey.Trouble)
		}
	})
}

// plant runs a script as the application.
func plant(w *world, script string) {
	w.t.Helper()
	_, err := w.owner.PgConn().Exec(w.t.Context(), script).ReadAll()
	must(w.t, err)
}

// The registry has the rows of all partitions, and rows of nobody; its own rows are deleted by cascade.
func TestARegistryOfAPartitionedTableGoesWithIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table "Carts" ("Id" bigint, region text, primary key ("Id", region)) partition by list (region)`,
			`create table carts_eu partition of "Carts" for values in ('eu')`, `create table carts_rest partition of "Carts" default`,
			`create table "Reg" (region text, "Id" bigint, expires date, primary key (region, "Id"), foreign key ("Id", region) references "Carts" on delete cascade)`,
			`create index on "Reg" (expires, region, "Id")`,
			`insert into "Carts" select n, (array['eu', 'us', 'asia'])[n % 3 + 1] from generate_series(1, 300) n`,
			`insert into "Reg" select region, "Id", current_date - ("Id" % 5 - 2)::int * 10 from "Carts" where "Id" <= 200`)
		want := value[int](w, `select count(*) from "Reg" where expires <= current_date - 10`)
		changes := w.apply("policies:\n  - {name: p, table: 'shop.\"Carts\"', expire: {sidecar: 'shop.\"Reg\"', column: expires, after: 10 days}, state: armed}\n")
		if len(changes[0].Warnings) > 0 {
			t.Errorf("apply warns of %q", changes[0].Warnings)
		}
		w.arm(1)
		p := w.named("p")
		if total := w.deleteAll(p, w.open(&p), 7); total.Deleted != int64(want) || want == 0 {
			t.Errorf("%d rows were deleted, want %d", total.Deleted, want)
		}
		if n := value[int](w, `select count(*) from "Carts"`); n != 300-want {
			t.Errorf("%d rows are left", n)
		}
		if n := value[int](w, `select count(*) from "Reg"`); n != 200-want {
			t.Errorf("%d rows are left in the registry", n)
		}
	})
}

// A row's time is extended and committed while a batch is under way: before the batch has locked the registry's row, the row
// stays; afterwards the extension waits, and finds the row gone.
func TestARowThatIsExtendedDuringABatchSurvives(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, registered...)
		p := w.armed(sidecarPolicy)
		extending, err := w.owner.Begin(t.Context())
		must(t, err)
		_, err = extending.Exec(t.Context(), `update registry set expires = now() + interval '1 day' where id = 2`)
		must(t, err)

		b := w.lease(p, w.open(&p))
		b.Limit, b.Shape = 1, functions.ShapePick
		batch, err := w.exec.Begin(t.Context())
		must(t, err)
		got, err := w.callIn(batch, b, nil)
		must(t, err)
		if got.Picked != 1 || got.Deleted != 1 {
			t.Errorf("the batch picked and deleted %+v, want row 1", got)
		}
		other := db.ConnectAs(t, w.app)
		wantState(t, runSQL(other, `select from shop.registry where id = 1 for update nowait`), schemas.SQLStateLockNotAvailable)
		must(t, runSQL(other, `select from shop.registry where id in (3, 4, 5, 6) for update nowait`))
		must(t, batch.Rollback(t.Context()))

		b.Shape = functions.ShapeRange
		batch, err = w.exec.Begin(t.Context())
		must(t, err)
		got, err = w.callIn(batch, b, nil)
		must(t, err)
		if got.Picked != 1 || got.Deleted != 1 {
			t.Errorf("the batch picked and deleted %+v, want row 1", got)
		}
		wantState(t, runSQL(other, `select from shop.registry where id = 1 for update nowait`), schemas.SQLStateLockNotAvailable)
		must(t, runSQL(other, `select from shop.registry where id in (3, 4, 5, 6) for update nowait`))
		must(t, batch.Commit(t.Context()))
		b.Shape = functions.ShapePick

		b.Limit = 100
		got, err = w.call(b, nil) // the rest of the first pass: row 3; row 2 is somebody's
		must(t, err)
		if got.Deleted != 1 || got.Finished {
			t.Errorf("the second batch deleted %+v, want row 3", got)
		}
		must(t, extending.Commit(t.Context()))
		got, err = w.call(b, nil)
		must(t, err)
		if got.Deleted != 0 || !got.Finished || got.LeftBehind {
			t.Errorf("the residual pass deleted %+v, want nothing", got)
		}
		if got := value[[]int32](w, `select array_agg(id order by id) from carts`); !slices.Equal(got, []int32{2, 4, 5, 6, 7}) {
			t.Errorf("rows %v are left", got)
		}
	})
}

func TestASidecarThatDoesNotFitIsRefusedWithTheFix(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		other := db.NewRole(t, "other")
		w := newWorld(t, db, registered[0])
		must(t, w.script(`create extension citext schema public; create table shop.super (id int primary key); create table shop.super_r (id int primary key, expires timestamptz);
			grant usage, create on schema shop to `+other))
		w.do(`create table folded (id public.citext primary key)`)
		for _, c := range []struct{ sql, table, sidecar, says string }{
			{`select`, "shop.carts", "shop.nothing", "there is no table shop.nothing"},
			{`select`, "shop.carts", "shop.super_x", "; did you mean shop.super_r?"},
			{`select`, "shop.carts", "nothing", "with its schema"},
			{`select`, "shop.carts", "shop.carts", "is the policy's table"},
			{`create view v as select 1 as id`, "shop.carts", "shop.v", "is not a table"},
			{`create table keyless (id int, expires timestamptz)`, "shop.carts", "shop.keyless", "shop.keyless has no primary key"},
			{`create table longer (id int, n int, expires timestamptz, primary key (id, n))`, "shop.carts", "shop.longer", "has 2 columns and that of shop.carts has 1"},
			{`create table wider (id bigint primary key, expires timestamptz)`, "shop.carts", "shop.wider", "is of type bigint, and column \"id\" of shop.carts of type integer"},
			{`create table r_folded (id public.citext primary key, expires timestamptz)`, "shop.folded", "shop.r_folded", "PostgreSQL's own types"},
			{`create table parts (id int primary key, expires timestamptz) partition by hash (id)`, "shop.carts", "shop.parts", "partitioned"},
			{`create table younger (n int primary key)`, "shop.carts", "shop.younger", `has no column "expires"`},
			{`create table foreigner (id int primary key, expires timestamptz)`, "shop.carts", "shop.foreigner", "alter table shop.foreigner owner to " + schemas.Identifier(w.app)},
			{`select`, "shop.super", "shop.super_r", "whose tables cannot have a sidecar"},
		} {
			w.do(c.sql)
			if c.sidecar == "shop.foreigner" {
				must(t, runSQL(w.admin, `alter table shop.foreigner owner to `+other))
			}
			_, err := w.difference("policies:\n  - {name: p, table: "+c.table+", expire: {sidecar: "+c.sidecar+", column: expires}}\n", false)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want %q", c.sidecar, err, c.says)
			}
		}
	})
}
