package expression

import "testing"

func TestALiteralThatMayNameAPersonIsFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"status = 'closed'":                           false,
		"kind in (1, 2, 37) and ratio > 0.25":         false,
		"closed_at < '2024-01-01 00:00:00+00'":        false,
		"seen + interval '30 days' < '2024-01-01'":    false,
		"customer <> 4711":                            true,
		"customer <> '4711'":                          true,
		"mail <> 'somebody@example.org'":              true,
		"code = E'a1'":                                true,
		`"user 4711" is null`:                         false,
		"note <> 'Straße' and not archived":           false,
		"phone like '+49 30%' and status = 'waiting'": true,
		"a = 'it''s 4711'":                            true,
		"a = 'not closed":                             false, // it is refused elsewhere
	} {
		if got := MayNamePeople(text); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}
