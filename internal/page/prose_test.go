package page

import "testing"

func TestCommandsInASentenceAreCode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"stopped: `lapse plan` names it, `lapse policy arm p --accept 5` deletes": "stopped: <code>lapse plan</code> names it, <code>lapse policy arm p --accept 5</code> deletes",
		"`lapse <b>` of `x`, `y & lapse plan\n":                                   "<code>lapse &lt;b&gt;</code> of `x`, `y &amp; lapse plan\\u000a",
		"":                                                                        "",
	} {
		if got := string(prose(text)); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
