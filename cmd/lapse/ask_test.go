package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
)

func TestAQuestionThatIsInterruptedEndsAtOnceAndSaysWhatWasNotDone(t *testing.T) {
	t.Parallel()
	never, terminal := io.Pipe() // nobody answers
	t.Cleanup(func() { _ = terminal.Close() })
	var log bytes.Buffer
	a := &app{in: never, err: &log, asks: true}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := a.confirm(ctx, false, "apply this", "to look: --dry-run", "nothing was applied")
	if err == nil || err.Error() != "no answer: nothing was applied" || !strings.HasPrefix(log.String(), "apply this? [y/N] ") {
		t.Errorf("got %v after %q", err, log.String())
	}
	for answer, want := range map[string]string{"y\n": "", " YES \n": "", "n\n": "nothing was applied", "\n": "nothing was applied"} {
		a.in = strings.NewReader(answer)
		said := ""
		if err := a.confirm(t.Context(), false, "apply this", "", "nothing was applied"); err != nil {
			said = err.Error()
		}
		if said != want {
			t.Errorf("%q: got %q, want %q", answer, said, want)
		}
	}
}
