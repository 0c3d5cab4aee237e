package schemas

// State is a policy's state. Only an armed policy deletes.
//
//	observing ──arm──▶ arming ──the auditor has passed the arming position──▶ armed
//	    ▲                 │                                                     │
//	    └── observing in the file, or other rows     paused ◀──pause/resume──▶ (each)
//	                                                 dropped: out of the file and pruned
type State string

// The states of a policy, as lapse.gate has them.
const (
	Observing State = "observing" // reports what it would delete
	Arming    State = "arming"    // waits until the auditor has passed the position at which its table was published
	Armed     State = "armed"     // deletes
	Paused    State = "paused"    // stopped by a person
	Dropped   State = "dropped"   // no longer in force; its versions stay on record
)
