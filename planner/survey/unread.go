package survey

import (
	"fmt"
	"strings"

	"lapse/planner/policyfile"
	"lapse/planner/resolve"
)

// Unread describes values of a policy that are set but cannot be read as a time, so that their rows never expire, among the searched rows of the
// table or of its largest partition.
type Unread struct {
	Rows     int64    `json:"rows"`
	Of       int64    `json:"of"`
	Arrays   int64    `json:"arrays"`   // the rows among these that have an array there
	Patterns []string `json:"patterns"` // of the most frequent: see expiry.Unread
}

// lookedThrough is how many rows are searched unless all are counted.
const lookedThrough = 100_000

// String is the line for a person.
func (u *Unread) String() string {
	text := fmt.Sprintf("%d of the %d rows looked through have a value that is no time here, and never expire", u.Rows, u.Of)
	if len(u.Patterns) > 0 {
		text += ": they are like " + strings.Join(u.Patterns, ", ")
	}
	return text
}

// RowsFit returns what a survey's rows show to be wrong with a policy. An array is not one time: the policy means one of its elements. No index can
// contain an array's earliest element, so each look would read all rows with an array; but the policy can name the place of the element that counts,
// and that can be indexed.
func RowsFit(r *resolve.Resolved, s *Survey) policyfile.Problems {
	if s.Unread == nil || s.Unread.Arrays == 0 {
		return nil
	}
	path := r.Policy.Expire["path"]
	return policyfile.Problems{{Key: "expire.path", Text: fmt.Sprintf("%d of the %d rows looked through have an array at path %s, which is no time, so that they would never expire: "+
		"name the element that counts, as in path: %s.0, or keep the earliest of them elsewhere", s.Unread.Arrays, s.Unread.Of, path, path)}}
}
