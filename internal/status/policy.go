package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"lapse/internal/plaintext"
	"lapse/planner/record"
	"lapse/schemas"
)

// Line is one policy of the list.
type Line struct {
	Policy       schemas.PolicyName    `json:"policy"`
	Version      schemas.PolicyVersion `json:"version"`
	State        schemas.State         `json:"state"`
	Since        time.Time             `json:"since"`
	Table        string                `json:"table"`
	Reason       string                `json:"reason,omitempty"` // why it is in its state, as it was said
	LastRun      *LastRun              `json:"last_run,omitempty"`
	Looked       *time.Time            `json:"looked_at"`             // when a look last found nothing due, if known, and if no run came after
	Next         *time.Time            `json:"next_run,omitempty"`    // of an armed policy
	Lag          float64               `json:"lag_seconds,omitempty"` // how long an unfinished run has been due
	HeldVersion  schemas.PolicyVersion `json:"held_back"`             // the version that waits for a person; 0 for none
	PausedForAll bool                  `json:"paused_for_all,omitempty"`
	Suspended    string                `json:"suspended,omitempty"` // why no policy deletes: a restore, a promotion
	Tripped      string                `json:"tripped,omitempty"`   // more was due at once than expected
	TrippedAt    *time.Time            `json:"tripped_at,omitempty"`
	Trouble      string                `json:"trouble,omitempty"`
	Aside        *Aside                `json:"put_aside,omitempty"`
	Quarantine   *record.Quarantine    `json:"quarantine,omitempty"`
	Stays        []record.Stay         `json:"held_back_by"` // why due rows stay
	Overdue      *Overdue              `json:"overdue,omitempty"`

	remedy string // what to do about Trouble, if that does not say it
}

// Overdue is what is known about the due rows of a policy.
type Overdue struct {
	Due       int64      `json:"due"`
	Exact     bool       `json:"exact"` // otherwise there are more, or it is PostgreSQL's estimate
	Oldest    *time.Time `json:"oldest_due,omitempty"`
	Seconds   float64    `json:"seconds"` // since the oldest fell due
	CountedAt time.Time  `json:"counted_at"`
}

// text is for a person; "" if there is nothing to say.
func (o *Overdue) text() string {
	if o == nil || o.Due == 0 {
		return ""
	}
	text := plaintext.Number(o.Due) + " rows are due"
	if o.Due == 1 {
		text = "1 row is due"
	}
	if !o.Exact {
		text = "at least " + text
	}
	if o.Seconds > 0 {
		text += ", the oldest for " + Short(time.Duration(o.Seconds*float64(time.Second)))
	}
	return text
}

// Aside are the shards that the last run put aside.
type Aside struct {
	Shards    int       `json:"shards"`
	SQLStates []string  `json:"sqlstates"`
	Next      time.Time `json:"next_try"`
}

// text says why, and what to do about it if the SQLSTATE alone shows that.
func (a *Aside) text() string {
	why := make([]string, len(a.SQLStates))
	for i, state := range a.SQLStates {
		why[i] = "SQLSTATE " + state
		switch state {
		case schemas.SQLStateLockNotAvailable:
			why[i] += ", another session holds a lock: see pg_locks"
		case schemas.SQLStateQueryCanceled:
			why[i] += ", not even one row is found in time: `lapse plan` names the index"
		}
	}
	shards := fmt.Sprintf("%d shards", a.Shards)
	if a.Shards == 1 {
		shards = "1 shard"
	}
	return fmt.Sprintf("%s put aside (%s), next try %s", shards, strings.Join(why, "; "), a.Next.UTC().Format(time.RFC3339))
}

// Notes are what a person should know about it, for the table.
func (l *Line) Notes() []string {
	var notes []string
	for _, stay := range l.Stays {
		if stay.Reason == schemas.HeldByPause && l.PausedForAll {
			continue // reported once, above the table
		}
		notes = append(notes, fmt.Sprintf("%s: %s", stay.Reason, cmp.Or(WithoutName(l.Policy, stay.Detail), stay.Reason.Means())))
	}
	switch due := l.Overdue.text(); {
	case due == "":
	case l.State == schemas.Observing:
		notes = append(notes, due+", as counted at "+instant(l.Overdue.CountedAt)+": `lapse plan` counts again")
	case len(l.Stays) > 0:
		notes = append(notes, due)
	}
	if l.Trouble != "" && l.State != schemas.Armed && l.State != schemas.Arming {
		note := l.Trouble
		if l.remedy != "" {
			note += ": " + l.remedy
		}
		notes = append(notes, note)
	}
	if l.Aside != nil {
		notes = append(notes, l.Aside.text())
	}
	if q := l.Quarantine; q != nil && !l.staysBy(schemas.HeldByQuarantine) {
		notes = append(notes, fmt.Sprintf("%s, next try %s: `lapse quarantine list %s`", q, q.NextTry.UTC().Format(time.RFC3339), l.Policy))
	}
	return append(notes, l.LastRun.Notes()...)
}
