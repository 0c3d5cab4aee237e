// Package witness sends the log's checkpoints to others: to witnesses, which cosign them (C2SP's tlog-witness), and to anchors, which keep
// them: a file, standard output, an address.
//
// # What it promises
//
// It delays nothing. Submit takes the newest checkpoint and returns. A slow witness or anchor gets it after it has finished the one before;
// those in between are skipped, because the newest covers all of them. A request ends within ten seconds, and one that fails is retried
// after a pause that grows to five minutes. Take returns what witnesses have cosigned, verified.
//
// A checkpoint leaves the process only when the log has it. So if a witness has seen more records than the log has, the log was cut: Err
// says so, and the auditor ends.
//
// # When something fails
//
//	a witness does not answer, or answers   failing, by name, in the log and in lapse_witness_failing; it is asked again. Nothing else waits
//	 rubbish, too much, a redirect
//	it answers with a cosignature of        the same: only its key's signature of this very checkpoint counts
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
// A witness can stop the audit, by a 409 with a large number. Therefore only https addresses, or this machine, are used.
package witness
