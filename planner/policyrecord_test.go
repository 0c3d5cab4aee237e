package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/record"
	"lapse/schemas"
)

// written is a policy's entry as it is in the file, below "policies:".
func written(lines ...string) string {
	return "policies:\n  - " + strings.Join(lines, "\n    ") + "\n"
}

func (w *world) record(name schemas.PolicyName) *record.Policy {
	w.t.Helper()
	r, err := record.Load(w.t.Context(), w.exec, name)
	must(w.t, err)
	if r == nil {
		w.t.Fatalf("nothing is on record of %s", name)
	}
	return r
}

func TestEveryVersionIsOnRecordWithTheFormerAndTheNewText(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		first := []string{"name: p # the first", "table: shop.sessions", "expire: { column: last_seen, after: 30 days }"}
		second := []string{"name: p", "table: shop.sessions", "expire: { column: last_seen, after: 31 days }", "owner: the team"}
		w.apply(written(first...))
		w.apply(written(append([]string{"# only a comment"}, first...)...)) // no other version
		w.apply(written(second...))
		w.says(change.Pause)
		for _, c := range mustDiffer(w, "policies: []", true) {
			must(t, w.write(&c))
		}
		r := w.record("p")
		if len(r.Versions) != 2 || r.Version != 2 || r.State != schemas.Dropped {
			t.Fatalf("on record are %d versions, %d is the last, %s", len(r.Versions), r.Version, r.State)
		}
		one, two := r.At(1), r.At(2)
		if want := strings.Join(first, "\n"); one.Entry != want || one.Former != "" || two.Former != want || two.Entry != strings.Join(second, "\n") {
			t.Errorf("the entries are %q, %q; before them %q, %q", one.Entry, two.Entry, one.Former, two.Former)
		}
		if one.By != "postgres" || one.Reason != "test" || one.At.IsZero() || !two.At.After(one.At) {
			t.Errorf("who, when and why is not on record: %+v", one)
		}
		want := []record.FieldChange{{Field: "expire.after", From: "30 days", To: "31 days"}, {Field: "owner", To: "the team"}}
		if !slices.Equal(two.Changes, want) || two.MoreDue || len(one.Changes) < 5 || one.MoreDue {
			t.Errorf("version 2 changes %v, want %v; more due %v, %v", two.Changes, want, one.MoreDue, two.MoreDue)
		}
		var states []string
		for _, s := range r.States {
			states = append(states, fmt.Sprint(s.Version, s.State))
		}
		if got := strings.Join(states, " "); got != "1observing 2observing 2paused 2dropped" {
			t.Errorf("the states were %s", got)
		}
		if since := r.Since(); since != r.States[3].At {
			t.Errorf("it is dropped since %v", since)
		}

		// The name comes back, and with it its past.
		w.apply(written("name: p", "table: shop.sessions", "expire: { column: last_seen, after: 20 days }"))
		r = w.record("p")
		if three := r.At(3); r.Version != 3 || three.Former != two.Entry || !three.MoreDue || r.State != schemas.Observing {
			t.Errorf("the version after the drop is %+v, %s", three, r.State)
		}
		if names, err := record.Names(t.Context(), w.exec); err != nil || !slices.Equal(names, []string{"p"}) {
			t.Errorf("the names are %v, %v", names, err)
		}
		if r, err := record.Load(t.Context(), w.exec, "q"); r != nil || err != nil {
			t.Errorf("of what never was there is %v, %v", r, err)
		}
	})
}

func mustDiffer(w *world, file string, prune bool) []change.Change {
	w.t.Helper()
	changes, err := w.difference(file, prune)
	must(w.t, err)
	return changes
}

// A character of a comment that the database cannot keep is no reason to refuse the policy.
func TestAnEntryThatTheDatabaseCannotWriteIsKeptInASCII(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, inLatin1(t, db), sessions)
		w.apply(written("name: p # \u00e4 \u2192", "table: shop.sessions", "expire: { column: last_seen, after: 30 days }"))
		w.apply(written("name: p # \u00e4", "table: shop.sessions", "expire: { column: last_seen, after: 31 days }"))
		r := w.record("p")
		for version, want := range map[schemas.PolicyVersion]string{1: "name: p # ? ?", 2: "name: p # \u00e4"} {
			if got, _, _ := strings.Cut(r.At(version).Entry, "\n"); got != want {
				t.Errorf("version %d has %q, want %q", version, got, want)
			}
		}
	})
}
