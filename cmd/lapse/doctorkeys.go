package main

import (
	"fmt"
	"time"

	"lapse/internal/config"
	"lapse/internal/setup/doctor"
	"lapse/schemas"
)

// keysWarning is how long before the last month with a key ends that is said.
const keysWarning = 60 * 24 * time.Hour

// examineKeys is about the months that the key named rows has. The auditor stops in a month without one. Where the key is not at hand, the machine
// does not audit.
func examineKeys(keys config.KeySource, now time.Time) []doctor.Finding {
	epochs, err := keys.EpochKeys()
	if err != nil {
		return nil
	}
	f := doctor.Finding{Check: "keys", Grade: doctor.OK}
	end := epochs.End(now)
	until := schemas.EpochOf(end)
	switch left := end.Sub(now); {
	case left <= 0:
		f.Grade, f.Text = doctor.Fail, fmt.Sprintf("the key named rows has no key of %s: the auditor publishes nothing of this month", until)
	case left < keysWarning:
		f.Grade, f.Text = doctor.Warn, fmt.Sprintf("the key named rows has no key of %s: the auditor stops then", until)
	default:
		f.Text = fmt.Sprintf("the key named rows has keys up to the end of the month before %s", until)
		return []doctor.Finding{f}
	}
	f.Advice = "run lapse keys rotate, give the file to every machine that audits, and start the auditors again"
	return []doctor.Finding{f}
}
