package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
)

// Halt is the state of the switch for all policies.
type Halt struct {
	Halted  bool      `json:"paused"`
	Since   time.Time `json:"since,omitzero"`
	By      string    `json:"by,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Alarm   bool      `json:"alarm"` // the auditor did it: a batch fits none of the tag keys
	Changed bool      `json:"changed"`
}

// String is the line for a person.
func (h *Halt) String() string {
	text := "deletions are allowed"
	if h.Halted {
		text = "every deletion in this database is paused"
		if h.Alarm {
			text = "every deletion in this database is stopped by the auditor's alarm (docs/alarm.md)"
		}
	}
	if !h.Since.IsZero() {
		text += fmt.Sprintf(" since %s, by %s%s", instant(h.Since), h.By, because(h.Reason))
	}
	return text
}

// Whole are the lines about what keeps every policy from deleting.
func (s *Status) Whole() []string { return wholeText(s.Paused, s.Suspended) }

// Whole are the lines about what keeps every policy from deleting.
func (l *List) Whole() []string { return wholeText(&l.Halt, l.Suspended) }

func wholeText(h *Halt, suspended string) (lines []string) {
	if h != nil && h.Halted {
		lines = append(lines, h.String()+": `lapse resume --all` allows them again")
	}
	if suspended != "" {
		lines = append(lines, suspended)
	}
	return lines
}

// ReadHalt returns the state of the switch. If Since is zero, it was never used.
func ReadHalt(ctx context.Context, q database.Querier) (Halt, error) {
	var h Halt
	err := q.QueryRow(ctx, `select h.halted, h.at, h.by, h.reason, h.alarm from lapse.halt h order by h.id desc limit 1`).
		Scan(&h.Halted, &h.Since, &h.By, &h.Reason, &h.Alarm)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return h, fmt.Errorf("look whether every deletion is paused: %w", err)
	}
	return h, nil
}
