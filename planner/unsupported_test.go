package planner

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/internal/yamldoc"
)

// What a later version does is refused at its place, beside what else is wrong, and for a policy in force too: nothing is
// written by which it would run with less than its file asks for.
func TestWhatALaterVersionDoesIsRefusedAtItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), sessions)
	w.apply(policyText("shop.sessions", "last_seen", "30 days", isArmed))
	for _, c := range []struct{ line, want string }{
		{"moves: detect", "%d:12: policy p: moves: detect is not supported by this version"},
	} {
		for _, column := range []string{"last_seen", "last_sen"} {
			text := strings.TrimRight(policyText("shop.sessions", column, "31 days"), "\n") + "\n    " + c.line + "\n"
			_, err := w.difference(text, false)
			want := fmt.Sprintf(c.want, strings.Count(text, "\n"))
			var all yamldoc.Errors
			if !errors.As(err, &all) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", c.line, err, want)
			}
			if more := column == "last_sen"; more != (len(all) == 2) {
				t.Errorf("%s: %d complaints about column %s: %v", c.line, len(all), column, err)
			}
		}
	}
	if p := w.named("p"); p.Version != 1 {
		t.Errorf("version %d is in force", p.Version)
	}
}
