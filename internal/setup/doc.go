// Package setup is what changes an installation: installing, comparing a policy file with a database, applying it, dropping
// what is no longer in it, uninstalling. It puts planner and replication together; commands keep flags, questions and
// printing.
//
// It promises that every operation can be repeated: what is there stays, what is missing is made, two at once wait for each
// other, and after a crash between two steps, or inside one, the next call ends where an undisturbed one would have. It never
// waits for a lock on a user's table for longer than 250 ms at a time, and locks no table that is published already.
//
// Its rooms, each with a doc.go of its own; none imports one that is below it in this list:
//
//	access      roles, logins, grants, and the deleters
//	site        the catalog, and a session over it
//	holds       legal holds
//	tables      scaffolds, hidden rows, quarantine
//	apply       the policies of a file: what differs, and bringing it into force
//	install     what is missing of an installation, step by step
//	doctor      what is wrong, and how to fix it
//	uninstall   the reverse of install and apply
//
// Here are their tests: they use the rooms together, as the commands do, on servers that they share.
package setup
