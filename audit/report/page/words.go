package page

import (
	"strings"

	"lapse/audit/report"
	"lapse/internal/plaintext"
)

// asked names what is unknown if a line, or something else, was not assessed.
var asked = map[report.About]string{
	report.ClaimedNotObserved: "whether all rows are gone that it says it deleted",
	report.ObservedNotClaimed: "whether more rows went with its deletions than it says",
	report.DeletedNotDue:      "whether rows were deleted before they were due",
	report.DeletedHeld:        "whether rows under a legal hold were deleted",
	report.Unverified:         "whether rows were deleted in the name of Lapse without its key",
	report.Overdue:            "whether rows are still there that should be gone",
	report.Gaps:               "what was deleted in a part of the write-ahead log that nobody read",
	report.BelowFloor:         "whether rows went before the least age that is set for their table",
	report.NoEndSnapshot:      "how much was due at the end",
	report.TablesUncovered:    "what became of rows while a table was not covered",
	report.NotDescribed:       "what the policy is",
}

// wrong names the rows of a line that is not zero.
var wrong = map[report.About]string{
	report.ClaimedNotObserved: "that the policy says it deleted, and that the write-ahead log does not have as deleted",
	report.ObservedNotClaimed: "gone with the policy’s deletions that it does not list",
	report.DeletedNotDue:      "deleted before they were due",
	report.DeletedHeld:        "deleted under a legal hold",
	report.Unverified:         "deleted in the name of Lapse without its key",
	report.Overdue:            "still there at the last count that should have been gone",
	report.BelowFloor:         "gone before the least age that is set for their table",
}

// said describes a finding as part of a sentence.
func said(f *report.Finding) string {
	switch {
	case f.Grade == report.Unknown && asked[f.About] != "":
		return asked[f.About]
	case f.Count > 0 && wrong[f.About] != "":
		return counted(f.Count, "row") + " " + wrong[f.About]
	case f.About == report.DeletedLate:
		return plaintext.Number(f.Count) + " of them later than due time and grace period allow"
	case f.About == report.Quarantined:
		return counted(f.Count, "row") + " in quarantine"
	}
	return lower(f.About.Title())
}

func lower(text string) string { return strings.ToLower(text[:1]) + text[1:] }
func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// reasons are parts of a sentence about a verdict.
func reasons(verdict report.Grade, parts []string) string {
	if verdict == report.Unknown {
		return "nobody can say " + strings.Join(parts, ", nor ")
	}
	return strings.Join(parts, "; ")
}
