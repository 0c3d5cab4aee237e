package report

// Witness keeps checkpoints of the log. It says what the witness has cosigned. It depends on which witnesses the report's maker names, so a
// report carries it outside of its canonical form, like the build of Lapse.
type Witness struct {
	Name    string
	Records int64   // the size of the newest checkpoint that it cosigned; 0 for none
	At      Instant // when it did
}
