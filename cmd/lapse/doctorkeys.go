package main

import (
	"fmt"
	"time"

	"lapse/internal/config"
	"lapse/internal/setup/doctor"
	"lapse/schemas"
)

// keysWarning is how long before the end of the last month with a key the doctor warns.
const keysWarning = 60 * 24 * time.Hour

// examineKeys checks for which months the key named rows exists. The auditor stops in a month without a key. A machine without the key
// file does not audit.
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
