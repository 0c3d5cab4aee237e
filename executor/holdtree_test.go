package executor

import (
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// treeCase is what happens to the partitions of a held table. {} is the case's name: {}_p is held, and the policy deletes from {}_q. "fill
// RELATION" gives it due rows 1 to 10; the hold is on the even ones. "look" records, as every look does. Each step is a transaction.
type treeCase struct {
	hold string // "" is {}_p
	before,
	armed, // before any hold, with the policy in force
	after []string
	stay string // the rows of {}_q that stay
	soft bool   // the policy sets a column
}

const heldIDs = "2 4 6 8 10"

var treeCases = map[string]treeCase{
	"made after the hold": {
		after: []string{
			"create table {}_1 partition of {}_p for values in (1)", "fill {}_1", "look", "alter table {}_p detach partition {}_1",
			"alter table {}_q attach partition {}_1 for values in (1)",
		}, stay: heldIDs,
	},
	"made and detached between two checks": {
		after: []string{
			"look", "create table {}_1 partition of {}_p for values in (1)", "fill {}_1", "alter table {}_p detach partition {}_1",
			"alter table {}_q attach partition {}_1 for values in (1)",
		}, stay: heldIDs,
	},
	"attached and detached between two checks": {
		after: []string{
			"create table {}_1 (gone int, {}_c int, id bigint not null, r int not null, at timestamptz, d timestamptz, primary key (id, r))", "alter table {}_1 drop column gone",
			"alter table {}_p attach partition {}_1 for values in (1)", "fill {}_1", "alter table {}_p detach partition {}_1", "alter table {}_q attach partition {}_1 for values in (1)",
		}, stay: heldIDs,
	},
	"renamed and in another schema": {
		after: []string{
			"create table {}_1 partition of {}_p for values in (1)", "fill {}_1", "look", "alter table {}_p rename to {}_renamed",
			"alter table {}_renamed detach partition {}_1", "alter table {}_1 rename to {}_other", "alter table {}_other set schema elsewhere",
			"alter table {}_q attach partition elsewhere.{}_other default",
		}, stay: heldIDs,
	},
	"a subtree": {
		after: []string{
			"create table {}_1 partition of {}_p for values in (1, 2) partition by list (r)", "create table {}_11 partition of {}_1 for values in (1)",
			"fill {}_11", "look", "alter table {}_p detach partition {}_1", "create table {}_12 partition of {}_1 for values in (2)", "alter table {}_1 detach partition {}_11",
			"alter table {}_q attach partition {}_11 for values in (1)",
		}, stay: heldIDs,
	},
	"a subtree whole, unseen": {
		after: []string{
			"create table {}_1 partition of {}_p for values in (1, 2) partition by list (r)", "create table {}_11 partition of {}_1 for values in (1)",
			"fill {}_11", "alter table {}_p detach partition {}_1", "alter table {}_q attach partition {}_1 for values in (1, 2)",
		}, stay: heldIDs,
	},
	"detached twice": {
		after: []string{
			"create table {}_1 partition of {}_p for values in (1)", "fill {}_1", "look", "alter table {}_p detach partition {}_1", "look",
			"alter table {}_q attach partition {}_1 for values in (1)", "look", "alter table {}_q detach partition {}_1", "look", "alter table {}_q attach partition {}_1 for values in (1)",
		}, stay: heldIDs,
	},
	"detached concurrently": {
		after: []string{
			"create table {}_1 partition of {}_p for values in (1)", "fill {}_1", "look", "alter table {}_p detach partition {}_1 concurrently",
			"alter table {}_q attach partition {}_1 for values in (1)",
		}, stay: heldIDs,
	},
	"an inheritance child": {
		hold: "{}_h", before: []string{"create table {}_h (id bigint not null, r int not null, {}_c int, at timestamptz, d timestamptz)"},
		after: []string{
			"create table {}_1 () inherits ({}_h)", "alter table {}_1 add primary key (id, r)", "fill {}_1", "look", "alter table {}_1 no inherit {}_h",
			"alter table {}_q attach partition {}_1 for values in (1)",
		}, stay: heldIDs,
	},
	"an inheritance child, unseen": {
		hold: "{}_h", before: []string{"create table {}_h (id bigint not null, r int not null, {}_c int, at timestamptz, d timestamptz)"},
		after: []string{
			"create table {}_1 () inherits ({}_h)", "alter table {}_1 add primary key (id, r)", "fill {}_1", "alter table {}_1 no inherit {}_h",
			"alter table {}_q attach partition {}_1 for values in (1)",
		}, stay: heldIDs,
	},
	"what is above the policy's table was attached": {
		before: []string{"create table {}_1 (like {}_q including all)", "alter table {}_q attach partition {}_1 for values in (1)", "fill {}_1"},
		armed:  []string{"create table {}_r (like {}_q including all) partition by list (r)", "alter table {}_r attach partition {}_q for values in (1)"},
		after: []string{
			"create table {}_s (like {}_q including all) partition by list (r)", "alter table {}_s attach partition {}_r for values in (1)", "look",
			"alter table {}_s detach partition {}_r", "alter table {}_r detach partition {}_q",
		}, stay: heldIDs,
	},
	"set, not deleted": {
		after: []string{
			"create table {}_1 partition of {}_p for values in (1)", "fill {}_1", "alter table {}_p detach partition {}_1",
			"alter table {}_q attach partition {}_1 for values in (1)",
		}, stay: heldIDs, soft: true,
	},
	// These are under no hold.
	"made where it is": {
		after: []string{"create table {}_1 partition of {}_q for values in (1)", "fill {}_1"}, stay: "-",
	},
	"attached before the hold": {
		before: []string{"create table {}_1 (like {}_q including all)", "alter table {}_q attach partition {}_1 for values in (1)", "fill {}_1"}, stay: "-",
	},
	"made and attached by one transaction": {
		after: []string{"create table {}_1 (like {}_q including all); alter table {}_q attach partition {}_1 for values in (1)", "fill {}_1"}, stay: "-",
	},
	"attached beside a held table without partitions": {
		hold: "{}_h", before: []string{"create table {}_h (id bigint primary key, {}_c int)"},
		after: []string{"create table {}_1 (like {}_q including all)", "alter table {}_q attach partition {}_1 for values in (1)", "fill {}_1"}, stay: "-",
	},
}

// run does a case's steps.
func (c *treeCase) run(t testing.TB, db *pgtest.DB, name string, steps []string) {
	t.Helper()
	for _, step := range steps {
		step = strings.ReplaceAll(step, "{}", name)
		if step == "look" {
			db.Exec(t, "set role lapse_owner; select lapse.follow_holds()")
			continue
		}
		if table, fill := strings.CutPrefix(step, "fill "); fill {
			step = fmt.Sprintf("insert into %s (id, r, %s_c, at) select n, 1, n %% 2, now() - interval '1 year' from generate_series(1, 10) n", table, name)
		}
		if strings.HasSuffix(step, "concurrently") {
			db.Exec(t, step) // alone, as the superuser: it runs in no transaction
			continue
		}
		owned(t, db, step)
	}
}

// Whatever was at any time below a held table stays held: its rows are judged wherever they are attached. What was attached without
// having been seen before is judged too, where it has the hold's columns.
//
//lapse:long
func TestWhatWasOnceBelowAHeldTableStaysHeld(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, "create schema elsewhere; grant all on schema elsewhere to "+appRole)
		names, entries := map[string]string{}, []string{}
		for what, c := range treeCases {
			n := fmt.Sprintf("t%d", len(names))
			names[what] = n
			for _, side := range []string{"p", "q"} {
				owned(t, db, fmt.Sprintf(`create table %[1]s_%[2]s (id bigint, r int, %[1]s_c int, at timestamptz, d timestamptz, primary key (id, r)) partition by list (r);
					create index on %[1]s_%[2]s (at, id, r)`, n, side))
			}
			c.run(t, db, n, c.before)
			var more []string
			if c.soft {
				more = append(more, "action: { soft: { column: d } }")
			}
			entries = append(entries, policy(n, "public."+n+"_q", more...))
		}
		arm(t, db, policies(entries...))
		for what, c := range treeCases {
			c.run(t, db, names[what], c.armed)
		}
		// What was attached while a transaction older than the hold runs counts as attached after it, and those of all databases count.
		attached := one[int64](t, db, "select pg_current_xact_id()::text::bigint")
		eventually(t, "no transaction is older", func() bool {
			return one[bool](t, db, "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint > $1", attached)
		})
		s := holdSession(t, db)
		var now []schemas.PolicyName
		for what, c := range treeCases {
			table := c.hold
			if table == "" {
				table = "{}_p"
			}
			n := names[what]
			placeHold(t, s, byWhere("public."+strings.ReplaceAll(table, "{}", n), n+"_c = 0"))
			now = append(now, schemas.PolicyName(n))
		}
		for what, c := range treeCases {
			c.run(t, db, names[what], c.after)
		}
		apply(t, db, policies(entries...)) // what is attached is published
		once(t, newExecutor(t, db), now...)
		for what, c := range treeCases {
			rows := names[what] + "_q"
			if c.soft {
				rows += " where d is null"
			}
			if got := ids(t, db, rows); got != c.stay {
				t.Errorf("%s: rows %s stay, want %s", what, got, c.stay)
			}
		}
	})
}
