package report

// Witness is somebody who keeps checkpoints of the log, and what they have cosigned. It depends on who makes a report: which witnesses they
// name. So a report carries it outside of its canonical form, like the build of Lapse.
type Witness struct {
	Name    string
	Records int64   // of the newest checkpoint that they have cosigned; 0: none
	At      Instant // when they did
}
