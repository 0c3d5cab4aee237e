package status

import (
	"fmt"
	"strings"
	"time"

	"lapse/internal/plaintext"
)

// LastRun is a policy's last run, as all executors left it.
type LastRun struct {
	Started     time.Time  `json:"started_at"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	Due         *int64     `json:"due,omitempty"` // if it was counted
	Deleted     int64      `json:"deleted"`
	Cascaded    int64      `json:"cascaded"`
	Batches     int64      `json:"batches"`
	Refreshed   int64      `json:"refreshed"`    // found due, and changed meanwhile
	SteppedOver int64      `json:"stepped_over"` // rows that resisted
	Partitions  int64      `json:"dropped_partitions"`
	LeftDue     *int64     `json:"left_due,omitempty"`
	LeftHeld    *int64     `json:"left_held,omitempty"`
	LeftResting *int64     `json:"left_resting,omitempty"`
	Watermark   *time.Time `json:"watermark,omitempty"` // nothing that fell due before is left
	Ended       string     `json:"ended"`               // how
	RestsSince  *time.Time `json:"rests_since,omitempty"`
	Rests       string     `json:"rests_because,omitempty"`
}

// goesOn is the end of an unfinished run, and cutShort that of a run that no executor continues.
const (
	goesOn   = "not yet"
	cutShort = "cut short"
)

// Goes reports whether the run is not over.
func (r *LastRun) Goes() bool { return r.Ended == goesOn }

// Notes are what a person should know about the run.
func (r *LastRun) Notes() []string {
	if r == nil {
		return nil
	}
	var notes []string
	switch r.Ended {
	case goesOn:
		notes = append(notes, "its last run goes on")
	case cutShort: // other ends show in why due rows stay
		notes = append(notes, "its last run was cut short")
	}
	if r.Rests != "" && r.RestsSince != nil {
		notes = append(notes, fmt.Sprintf("its run has been suspended since %s: %s", r.RestsSince.UTC().Format(time.RFC3339), r.Rests))
	}
	if left := r.Left(); left != "" {
		notes = append(notes, left)
	}
	return notes
}

// Left says which due rows a run left; "" if none, or if not known.
func (r *LastRun) Left() string {
	var kinds []string
	count := func(n int64, what string) {
		if n > 0 {
			kinds = append(kinds, plaintext.Number(n)+" "+what)
		}
	}
	due, quarantined, held := value(r.LeftDue), value(r.LeftResting), value(r.LeftHeld)
	count(max(due-quarantined, 0), "locked or resisting")
	count(quarantined, "in quarantine")
	text := strings.Join(kinds, ", ")
	switch {
	case text == "":
	case r.Watermark == nil:
		text = "of what was due these are left: " + text
	default:
		text = fmt.Sprintf("nothing that fell due before %s is left, and since then %s", r.Watermark.UTC().Format(time.RFC3339), text)
	}
	if held > 0 {
		text = strings.TrimPrefix(text+"; "+heldText(held), "; ")
	}
	return text
}

// heldText says how many due rows are held.
func heldText(n int64) string {
	if n == 1 {
		return "1 row that was due is held"
	}
	return plaintext.Number(n) + " rows that were due are held"
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// Text is the run for the table.
func (r *LastRun) Text() (when, rows string) {
	if r == nil {
		return "-", "-"
	}
	return r.Started.UTC().Format(time.RFC3339), plaintext.Number(r.Deleted)
}
