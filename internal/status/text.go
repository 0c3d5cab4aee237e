package status

import (
	"fmt"
	"time"
)

// Text is the line about the audit.
func (a *Audit) Text(now time.Time) string {
	switch {
	case !a.Required:
		return "off: deletions leave no evidence outside this database"
	case !a.Exists:
		return fmt.Sprintf("slot %s is not there: nothing is deleted: `lapse init --new-slot` makes another, and the log goes on with a gap", a.Slot)
	case a.Lost:
		return fmt.Sprintf("slot %s is lost: nothing is deleted: `lapse init --new-slot` makes another, and the log goes on with a gap", a.Slot)
	}
	text := fmt.Sprintf("slot %s: ", a.Slot)
	switch {
	case a.Revoked:
		text += "the auditor waits for a person, or has ended, and nothing is deleted: `lapse history` and its log say why"
	case a.Active:
		text += "being read"
	default:
		text += "nobody reads it: start `lapse audit` or `lapse serve`"
	}
	text += fmt.Sprintf(", %s behind, %s kept", Size(a.Behind), Size(a.Held))
	if a.Headroom != nil {
		text += fmt.Sprintf(", %s until it is lost", Size(*a.Headroom))
		if a.nearlyLost() {
			text += ", so nothing is deleted: raise max_slot_wal_keep_size"
		}
	}
	if a.LastBeat == nil {
		return text + ", no beat yet"
	}
	text += ", last beat " + Short(now.Sub(*a.LastBeat)) + " ago"
	if a.Watching > 0 {
		text += "; the server was started since: the auditor looks for 2 minutes whether another one writes the log, and nothing is deleted: " +
			Short(time.Duration(a.Watching*float64(time.Second))) + " to go at most"
	}
	return text
}

// Size is a number of bytes for a person.
func Size(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	f, unit := float64(max(n, 0)), 0
	for f >= 1000 && unit < len(units)-1 {
		f, unit = f/1000, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", max(n, 0))
	}
	return fmt.Sprintf("%.1f %s", f, units[unit])
}

// Short is a length of time for a person, in its largest unit.
func Short(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
