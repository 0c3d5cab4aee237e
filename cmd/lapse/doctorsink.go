package main

import (
	"errors"
	"fmt"
	"time"

	"lapse/audit/folder"
	"lapse/internal/config"
	"lapse/internal/setup/doctor"
)

// littleRoom is what a folder's disk should have free: a day of a busy log.
const littleRoom = 1 << 30

// examineFolder asks whether the folder of the topics may be used, and whether there is room. Without it nothing is deleted, and nothing
// is lost.
func examineFolder(s *config.Settings) []doctor.Finding {
	f := doctor.Finding{Check: "sink", Grade: doctor.Fail}
	warning, err := folder.Check(s.Folder)
	var place *folder.PlaceError
	switch {
	case errors.As(err, &place):
		f.Text, f.Advice = "the topics cannot be kept in "+place.Path, place.Why
		return []doctor.Finding{f}
	case err != nil:
		f.Text = err.Error()
		return []doctor.Finding{f}
	}
	f.Grade, f.Text = doctor.OK, s.Folder+" keeps the topics"
	if free, size, err := folder.Free(s.Folder); err == nil {
		f.Text += fmt.Sprintf("; %s of %s are free", bytesText(free), bytesText(size))
		if free < littleRoom {
			f.Grade, f.Advice = doctor.Warn, "a full disk stops the audit, and with it deletion: give it room"
		}
	}
	if warning != "" {
		f.Grade, f.Advice = doctor.Warn, warning
	}
	kept := "until somebody deletes them"
	if s.Topics.Retention > 0 {
		kept = fmt.Sprintf("for %d hours (topics.retention)", s.Topics.Retention/time.Hour)
	}
	return []doctor.Finding{f, {Check: "events", Grade: doctor.OK, Text: fmt.Sprintf("%s keeps events %s; the log stays", s.Folder, kept)}}
}

// bytesText is a number of bytes for a person.
func bytesText(n uint64) string {
	if n < 10<<30 {
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%d GB", n>>30)
}
