package report

// Checked is what was found of the log when a report was made. It depends on who makes it: which key they trust, which witnesses they name.
// So a report carries it outside of its canonical form, like the build of Lapse.
type Checked struct {
	PublicKey  string // that the log verified with
	Witnesses  []Witness
	Cosigned   int64 // records of the newest checkpoint that the quorum has cosigned; 0: none was asked for
	NotChecked []string
}

// Witness is somebody who keeps checkpoints of the log, and what they have cosigned.
type Witness struct {
	Name    string
	Records int64   // of the newest checkpoint that they have cosigned; 0: none
	At      Instant // when they did
}
