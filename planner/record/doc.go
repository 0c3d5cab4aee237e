// Package record reads what the catalog knows about policies: their versions, and what is in force.
//
//	Spec, Version  a policy version as lapse.policy keeps it (spec.go), and whether more falls due under another (version.go)
//	InForce        the version in force with its state, last run, breaker and counts (inforce.go)
//	Stays          why due rows stay, and how long they have been due (stay.go)
//	Policy         all versions with who made them and why, for a person (record.go); fields.go has what differs between two
//	Totals         what the policy has deleted since it was made (total.go)
//
// It writes nothing. A spec with a key that this program does not know is refused: a newer one may have written it.
package record
