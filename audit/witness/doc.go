// Package witness shows the log's checkpoints to others: to witnesses, which cosign them (C2SP's tlog-witness), and to anchors, which
// keep them: a file, standard output, somebody's address.
//
// # What it promises
//
// It holds up nothing. Submit takes the newest checkpoint and returns; a witness or an anchor that is slow has it when it has done with the
// one before, and those in between are left out: the newest has all of them. A request ends within ten seconds, and one that fails
// is tried again after a pause that grows to five minutes. What witnesses have cosigned is handed out by Take, verified.
//
// A checkpoint leaves the process only when the log has it. So a witness that has seen more records than the log has shows that it was
// cut: Err says so, and the auditor ends.
//
// # What fails, and what comes of it
//
//	a witness does not answer, or answers   failing, by name, in the log and in lapse_witness_failing; it is asked again. Nothing else waits
//	 rubbish, too much, a redirect
//	it answers with a cosignature of        the same: only what its key has signed of this very checkpoint counts
//	 another checkpoint or by another key
//	it answers 409: it has seen another     it is asked again with a proof from that size; the log is read back for it, if the tree does
//	 size                                   not remember that size
//	409 with a size above the log's         Err: the log was cut, or is another one. Before, the log's own end is asked for: another auditor
//	                                        may have gone on with it
//	404, 403                                failing: the witness does not know this log, or another key of it
//	422                                     failing: it has seen another log of this name, and this one did not grow from that
//	the process ends                        nothing is kept: the next one learns from 409 what each witness has seen
//	a file cannot be written                failing; a line that is half there is cut off before the next one
//
// Who answers for a witness can stop the audit, by a 409 with a great number. Therefore only https is asked, or this machine.
package witness
