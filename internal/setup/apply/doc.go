// Package apply makes the policies of a database match a file.
//
// Difference compares and changes nothing (difference.go). Apply brings its changes into force, in three passes over the
// policies and a last step (apply.go, index.go, madeindex.go, drop.go). One policy is one transaction,
// retried while another session holds a lock:
//
//	step        does                                               a crash after it leaves, and who repairs it
//	careful     gates → functions, version, gate, state of what    those policies are whole; the next apply does the others
//	            pauses, drops, observes or lengthens
//	rest        the index, where the policy asks for one; then     see index.go
//	            gates → deleter → functions, version, gate,        as above: a policy is there with its deleter and its publications,
//	            state → publications, of everything else           or not at all
//	leave       drops indexes of Lapse's that no policy needs      they are on record; the next apply drops them
//	            takes tables of dropped policies out of the        tables published without need; the next apply, which
//	            publications, without waiting                      finds them by the dropped policies
//	deleters    drops roles that delete for no policy, and takes   they are on record in lapse.deleter; the next apply drops them,
//	            from the others what no policy needs               and looks for such rights again
//
// Each pass does each policy in turn: a crash within a pass leaves some policies as they were. The position that an armed policy's auditor
// must pass is recorded after the commit; after a crash in between, the executor records it. What is published is read once per Apply, and
// a table is published at most once.
package apply
