package evidence_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// movable is a drawn transaction over partitions, by somebody who sees the whole of it at once.
type movable struct {
	drawn
	ids, days []int
}

func drawMovable(t *rapid.T) *movable {
	m := &movable{drawn: draw(t, []int{0})}
	near := map[*replication.Relation]*replication.Relation{leafA1: leafA2, leafA2: leafA3, leafA3: leafA1, leafB1: leafB2, leafB2: leafB1}
	leaf := rapid.SampledFrom([]*replication.Relation{leafA1, leafA2, leafA3, leafB1, leafB2, leafC1, leafC2, leafD1, leafD2, young})
	for i := range m.steps {
		s := &m.steps[i]
		s.of = leaf.Draw(t, "leaf")
		if i > 0 && rapid.SampledFrom(few).Draw(t, "row") > 1 || s.kind == "update" || s.kind == "truncate" {
			s.kind = rapid.SampledFrom([]string{"delete", "delete", "delete", "other", "other", "other", "other", "update", "truncate"}).Draw(t, "change")
		}
		if i > 0 && s.kind == "other" && rapid.Bool().Draw(t, "near") {
			if other := near[m.steps[i-1].of]; other != nil {
				s.of = other
			}
		}
		if signs(*s) && rapid.Bool().Draw(t, "of a leaf") {
			s.claim.Target = s.of.OID
		}
		m.ids = append(m.ids, rapid.IntRange(1, 2).Draw(t, "id"))
		m.days = append(m.days, rapid.IntRange(1, 2).Draw(t, "day"))
	}
	return m
}

func (m *movable) change(i int) *replication.Change {
	switch s := &m.steps[i]; s.kind {
	case "delete":
		return leaves(s.of, m.ids[i], m.days[i], "k")
	case "other":
		return comes(s.of, m.ids[i], m.days[i], "k")
	default:
		return s.change()
	}
}

// moves says whether a step and the one after it are a move.
func (m *movable) moves(i int) bool {
	if m.cause(i) != "u" || i+1 == len(m.steps) || m.steps[i+1].kind != "other" || m.ids[i] != m.ids[i+1] {
		return false
	}
	const asked = "a1 a2 a3 b1 b2"
	from, to := m.steps[i].of.Name, m.steps[i+1].of.Name
	return from != to && from[0] == to[0] && strings.Contains(asked, from) && strings.Contains(asked, to)
}

func (m *movable) told() (events []string, tallies map[string]int) {
	tallies = map[string]int{}
	for i := range m.steps {
		letter := m.cause(i)
		of := m.steps[i].of.OID
		switch {
		case letter == "":
			continue
		case m.moves(i):
			letter = "m"
		case letter == "S":
			of = m.steps[i].claim.Target
		}
		events = append(events, fmt.Sprintf("%d%s", i, letter))
		tallies[fmt.Sprint(of, " ", letter)]++
	}
	return events, tallies
}

func TestMovesAreSeenAsBySomebodyWhoLooksAtTheWholeTransaction(t *testing.T) {
	t.Parallel()
	standing := partitions(t)
	seen := map[string]int{}
	property := func(t *rapid.T) {
		a := evidence.NewAssembler(source, []schemas.Key{evidencetest.TagKey}, standing)
		for range 3 {
			m := drawMovable(t)
			changes := make([]*replication.Change, len(m.steps))
			for i := range changes {
				changes[i] = m.change(i)
			}
			events, outcome := told(a, m.tx, changes...)
			for i := range events {
				events[i], _, _ = strings.Cut(events[i], " ")
				seen[strings.TrimLeft(events[i], "0123456789")]++
			}
			want, wantTallies := m.told()
			if !slices.Equal(events, want) {
				t.Fatalf("got  %q\nwant %q\nin %v, ids %v", events, want, m.steps, m.ids)
			}
			tallies := map[string]int{}
			for _, tally := range outcome.Account.Tallies {
				letter := letterOf(evidence.Finding{Op: tally.Op, Cause: tally.Cause, Cascade: tally.Cascade})
				if tally.Op == evidence.Move {
					letter = "m"
				}
				tallies[fmt.Sprint(tally.OID, " ", letter)] += int(tally.Events)
			}
			if fmt.Sprint(tallies) != fmt.Sprint(wantTallies) {
				t.Fatalf("got  %v\nwant %v\nin %v", tallies, wantTallies, m.steps)
			}
		}
	}
	for range 20 {
		rapid.Check(t, property)
	}
	for _, letter := range []string{"m", "u", "s", "x", "U"} {
		if seen[letter] == 0 {
			t.Errorf("%q was never drawn: %v", letter, seen)
		}
	}
}
