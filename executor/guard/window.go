package guard

import (
	"fmt"
	"time"
)

// WindowClosed is the reason of window.
const WindowClosed Reason = "window"

// window waits while a policy's window is closed: no run begins, and an open run continues when the window opens.
type window struct{}

func (window) Ask(q *Question) Answer {
	if q.Policy == nil || q.Policy.Schedule.Window == nil {
		return Answer{}
	}
	w := q.Policy.Schedule.Window
	open, until, err := w.Open(q.Now)
	switch {
	case err != nil:
		return refuse(WindowClosed, fmt.Sprintf("its window %s cannot be read: %v", w, err), "install the time zones of this machine, or write another zone")
	case open:
		return Answer{}
	}
	return Answer{Verdict: Wait, Until: until, Refusal: Refusal{
		WindowClosed, fmt.Sprintf("its window %s is closed until %s", w, until.UTC().Format(time.RFC3339)),
		"wait, or change window: in its file",
	}}
}
