// Package apply makes the policies of a database equal a file.
//
// Difference compares and changes nothing (difference.go). Apply brings its changes into force, in three passes over the
// policies and a last step (apply.go, index.go, madeindex.go, drop.go). One policy is one transaction,
// tried again while somebody holds a lock:
//
//	step        does                                               a crash after it leaves, and who repairs it
//	careful     gates → functions, version, gate, state of what    those policies are whole; the next apply goes on with the others
//	            pauses, drops, observes or lengthens
//	rest        the index, where the policy asks for one; then     see index.go
//	            gates → deleter → functions, version, gate,        as above: a policy is there with its deleter and its publications,
//	            state → publications, of everything else           or not at all
//	leave       drops indexes of Lapse's that nobody asks for      they are on record; the next apply drops them
//	            takes tables of dropped policies out of the        tables that are published for nobody; the next apply, which
//	            publications, without waiting                      finds them by the dropped policies
//	deleters    drops the roles that delete for nobody, and takes  they are on record in lapse.deleter; the next apply drops them,
//	            from the others what no policy needs               and looks for such rights again
//
// Each pass is done for each policy in turn: a crash within a pass leaves some policies as they were. The position that an
// armed policy's auditor must pass is written after the commit; the executor writes it where a crash came between. What is
// published is read once per Apply, and a table joined at most once.
package apply
