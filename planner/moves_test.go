package planner

import (
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/change"
)

func TestMovesAreDetectedWhereARowCanBeRecognizedThatMoves(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db,
			`create table plain (id bigint primary key, at timestamptz)`,
			`create table keyed (id bigint, at timestamptz, primary key (id, at)) partition by range (id, at)`,
			`create table keyed_1 partition of keyed default`,
			// What one branch is partitioned by names rows in the other; here nothing is left.
			`create table branches (id bigint, at timestamptz, primary key (id, at)) partition by range (at)`,
			`create table branches_1 partition of branches for values from (minvalue) to ('2020-01-01')`,
			`create table branches_2 partition of branches default partition by hash (id)`,
			`create table branches_2_1 partition of branches_2 for values with (modulus 1, remainder 0)`,
			`create table fit (id bigint, at timestamptz, region text, primary key (id, at, region)) partition by range (at)`,
			`create table fit_1 partition of fit default partition by list (region)`, `create table fit_1_1 partition of fit_1 default`)
		for table, want := range map[string]string{
			"plain":    `moves: detect is for partitioned tables, and shop.plain is none: take it out`,
			"keyed":    `the columns of its replica identity that are in no partition key, and that of shop.keyed (id, at) has none: give it a primary key with another column`,
			"branches": `that of shop.branches (id, at) has none`,
			"fit":      "",
		} {
			_, err := w.difference(policyText("shop."+table, "at", "30 days", "    moves: detect"), false)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "policies.yaml:5:12: policy p: moves: detect") || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: got %v, want %q", table, err, want)
			}
			if _, err := w.difference(policyText("shop."+table, "at", "30 days", "    moves: as_deletes"), false); err != nil {
				t.Errorf("%s, as_deletes: %v", table, err)
			}
		}
	})
}

// The policy goes through arming again, and what it costs is said when it begins, and only then.
func TestMovesComeAndGoWithAVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)),
		`create table fit (id bigint, at timestamptz, gone timestamptz, primary key (id, at)) partition by range (at)`, `create table fit_1 partition of fit default`,
		`create index on fit (at, id)`)
	const detect, soft = "    moves: detect", "    action: {soft: {column: gone}}"
	cost := func(c *change.Change) bool {
		return strings.Contains(strings.Join(c.Warnings, "\n"), "passes through the replication slot whole")
	}
	step := func(name string, published bool, lines ...string) {
		t.Helper()
		text := policyText("shop.fit", "at", "30 days", append(lines, isArmed)...)
		changes, err := w.difference(text, false)
		must(t, err)
		c := &changes[0]
		was := w.inForce()[0].PublishesChanges()
		if c.Kind != change.Changed || c.Careful() || (c.PublishesChangesOf() != 0) != published || cost(c) != (published && !was && lines[0] == detect) {
			t.Errorf("%s: %+v", name, c)
		}
		p := w.armed(text)
		if p.PublishesChanges() != published || p.DetectsMoves() != (lines[0] == detect) {
			t.Errorf("%s: in force it publishes changes: %v", name, p.PublishesChanges())
		}
		if changes, err = w.difference(text, false); err != nil || changes[0].Kind != change.Unchanged || cost(&changes[0]) {
			t.Errorf("%s again: %+v, %v", name, changes, err)
		}
	}
	w.armed(policyText("shop.fit", "at", "30 days", isArmed))
	step("detect", true, detect)
	step("as deletes", false, "    moves: as_deletes", "    batch: 99")
	step("a soft policy", true, soft)
	step("a soft policy with moves", true, detect, soft)
	step("as deletes again", false, "    moves: as_deletes")
}
