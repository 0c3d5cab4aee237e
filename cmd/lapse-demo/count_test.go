package main

import (
	"fmt"
	"io"
	"maps"
	"testing"
)

func TestACountThatDiffersOrAnEventThatIsThereTwiceIsAnError(t *testing.T) {
	t.Parallel()
	if err := compare(io.Discard, maps.Clone(expected), 0); err != nil {
		t.Errorf("what was expected: %v", err)
	}
	for name, change := range map[string]func(map[string]int){
		"one missing":     func(got map[string]int) { got["user        public.sessions"]-- },
		"one too many":    func(got map[string]int) { got["system      public.sessions"]++ },
		"another group":   func(got map[string]int) { got["user        public.page_view_old"] = 1 },
		"a missing group": func(got map[string]int) { delete(got, "unverified  public.sessions") },
	} {
		got := maps.Clone(expected)
		change(got)
		if err := compare(io.Discard, got, 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := compare(io.Discard, maps.Clone(expected), 1); err == nil {
		t.Error("an event that is there twice: no error")
	}
}

func TestEventsAreCountedByCauseAndTable(t *testing.T) {
	t.Parallel()
	line := func(id, cause string) string {
		return fmt.Sprintf(`{"event_id":%q,"table_name":"public.t","lapse":{"cause":%q}}`+"\n", id, cause)
	}
	counts, samples, twice, err := tally([]byte(line("a", "user") + line("b", "user") + line("a", "user") + line("c", "system")))
	if err != nil || twice != 1 || counts["user        public.t"] != 3 || counts["system      public.t"] != 1 || samples["system"] != line("c", "system") {
		t.Errorf("%v, %q, %d twice, %v", counts, samples, twice, err)
	}
	if _, _, _, err := tally([]byte("no event\n")); err == nil {
		t.Error("what is no event was counted")
	}
}
