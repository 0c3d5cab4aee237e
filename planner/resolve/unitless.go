package resolve

import (
	"fmt"
	"strconv"

	"lapse/planner/policyfile"
)

// mostDays is the largest number that somebody may well have meant as days: ten years of them. As seconds it is about an hour.
const mostDays = 3650

// Unitless warns of a period that has no unit and would be plausible in days: as PostgreSQL reads it, it is seconds, and nearly every row of
// the table is due.
func Unitless(p *policyfile.Policy) (warnings []string) {
	for _, key := range []string{"after", "ttl_default", "bucket.span"} {
		text := p.Expire[key]
		if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > 0 && n <= mostDays {
			warnings = append(warnings, fmt.Sprintf("%s: %s is %[2]s seconds, since a number without a unit is seconds: write %[2]s days, or %[2]s seconds where that is meant",
				key, text))
		}
	}
	return warnings
}
