package witness

import "time"

// Hasten has a request end, and what fails tried again, after so much.
func (w *Witnesses) Hasten(timeout, pause time.Duration) {
	w.client.Timeout, w.pauses.Min, w.pauses.Max = timeout, pause, pause
}
