package planner

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/schemas"
)

// everyKeyFile sets every key of a policy that a version keeps, in as many policies as it takes.
const everyKeyFile = `policies:
  - name: all
    table: shop.kept
    expire: { column: seen, after: 90 days }
    cron: "15 3 * * mon-fri Europe/Berlin"
    window: "22:00-06:00 Europe/Berlin"
    where: plan = 'free'
    pace: unlimited
    rate: 7
    batch: 9
    max_rows_per_run: 11
    max_fraction: 0.5
    events: { columns: [plan] }
    evidence: due
    index: create
    triggers: { trusted: true, search_path: shop }
    shards: { by: [id], count: 3 }
    owner: the team
    basis: HGB 257
    latitude: "24:00"
  - name: parts
    table: shop.parts
    expire: { column: seen, after: 90 days }
    daily: "03:00 Europe/Berlin"
    max_rows_per_run: 1.5%
    moves: detect
  - name: soft
    table: shop.softly
    expire: { column: seen, after: 90 days }
    every: 5 minutes
    action: { soft: { column: gone } }
`

// fieldsOf are the fields of a version's spec that hold values, by path; what other packages keep in a struct is one value.
func fieldsOf(v reflect.Value, path string, each func(path string, field reflect.Value)) {
	for i := range v.NumField() {
		name := strings.TrimPrefix(path+"."+v.Type().Field(i).Name, ".")
		switch of := v.Field(i).Type(); of {
		case reflect.TypeFor[policyfile.Terms](), reflect.TypeFor[policyfile.Limits](), reflect.TypeFor[policyfile.Events](), reflect.TypeFor[policyfile.Triggers]():
			fieldsOf(v.Field(i), name, each)
		default:
			each(name, v.Field(i))
		}
	}
}

// What is resolved is what is written, and what is written is what is in force: no field of a version is lost on the way. A field
// that no policy here sets, or that no difference shows, was forgotten.
func TestEveryFieldOfAPolicyComesIntoForceAsItWasResolved(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db,
			`create table kept (id int primary key, seen timestamptz not null, plan text not null)`,
			`create unique index kept_log on kept (seen, plan, id)`, `alter table kept replica identity using index kept_log`,
			`create table child (kept int references kept on delete cascade, id int primary key)`, `create index on child (kept)`,
			`create function look() returns trigger language plpgsql as 'begin return old; end'`,
			`create trigger look before delete on kept for each row execute function look()`,
			`create table softly (id int primary key, seen timestamptz not null, gone timestamptz)`,
			`create table parts (id int, region text, seen timestamptz not null, primary key (id, region)) partition by list (region)`,
			`create table parts_eu partition of parts for values in ('eu')`)
		changes, err := w.under([]policyfile.Floor{floor("shop.kept", "30 days", true), floor("shop.child", "1 day", true)}, everyKeyFile)
		must(t, err)
		set, shown := map[string]bool{}, map[string]bool{}
		for i := range changes {
			c := &changes[i]
			must(t, w.write(c))
			p, was := w.named(c.Policy), c.Resolved.Spec
			if !reflect.DeepEqual(p.Spec, was) {
				t.Errorf("policy %s is in force as\n%+v\nand was resolved as\n%+v", p.Name, p.Spec, was)
			}
			d := c.Resolved.Definition
			d.ID, d.Version = p.ID, p.Version
			if !reflect.DeepEqual(p.Definition, d) {
				t.Errorf("policy %s is in force with\n%+v\nand was resolved with\n%+v", p.Name, p.Definition, d)
			}
			if p.Batch != was.Batch || p.Limits != was.Limits || p.Trusted != was.Triggers.Trusted || !reflect.DeepEqual(p.Schedule, was.Schedule(p.Name)) {
				t.Errorf("policy %s runs otherwise than it was resolved: %+v", p.Name, p)
			}
			fieldsOf(reflect.ValueOf(&was).Elem(), "", func(path string, field reflect.Value) {
				if field.IsZero() {
					return
				}
				set[path] = true
				lines, kept := fmt.Sprint(was.Lines("t")), reflect.New(field.Type()).Elem()
				kept.Set(field)
				if path != "Expire" { // without a kind there are no lines
					field.SetZero()
				}
				shown[path] = shown[path] || path == "Expire" || fmt.Sprint(was.Lines("t")) != lines
				field.Set(kept)
			})
		}
		unshown := map[string]string{
			"Apart": "it comes from cron", "Slices": "they come from shards", "Ranges": "they come from the expiry and shards", "Due": "it comes from evidence and the expiry",
			"Functions": "they are compared by themselves", "HeldAgainst": "it is no difference",
		}
		fieldsOf(reflect.ValueOf(record.Spec{}), "", func(path string, _ reflect.Value) {
			if !set[path] && path != "HeldAgainst" {
				t.Errorf("no policy sets %s: give everyKeyFile a value for it", path)
			}
			if shown[path] == (unshown[path] != "") {
				t.Errorf("a difference in %s is shown: %t (%s)", path, shown[path], unshown[path])
			}
		})
		if t.Failed() {
			return
		}
		// A second reading of the same file finds nothing to change.
		changes, err = w.under([]policyfile.Floor{floor("shop.kept", "30 days", true), floor("shop.child", "1 day", true)}, everyKeyFile)
		must(t, err)
		for i := range changes {
			if changes[i].Kind != change.Unchanged || changes[i].ToState != schemas.Observing {
				t.Errorf("applied again: %s", changes[i].Diff())
			}
		}
	})
}
