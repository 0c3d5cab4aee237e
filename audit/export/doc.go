// Package export writes a log and its topics into the files of a folder, and verifies such a folder for somebody who trusts neither the folder nor who
// made it: an auditor with the public key alone. A folder that keeps topics (package folder) is verified in the same way, whether or not an auditor is writing to it.
//
// It knows no broker and no database. Its caller passes the writer each partition's records, has the keys, and says what is found.
//
// # What it promises
//
// An export has every record of each partition from First to before End, byte for byte. A folder without a manifest, which is written last, is no
// export. Continuing one checks the partitions' files against its manifest; with the same keys and nothing new it
// changes no byte.
//
// A verification reads every file once or twice, in memory that does not grow with them. It finds any change to the log's records, which are
// the tree's leaves, and any transaction whose events and commitments are not as many as its record says, by table, operation and cause; with the
// months' keys also another row in place of the right one. Other bytes of an event have only the manifest's checksum, which nobody signs. It returns the
// first fault, with its file. docs/evidence.md says what it does not show.
//
// # What a crash leaves
//
//	in a new export               files without a manifest: the next export removes them
//	in an export being continued  the former manifest, and files with more than it says: the next export cuts them off
//	in Save                       the former state
//
// # The files
//
//	manifest.go    what an export has, and the errors
//	line.go        a record as a line of a file
//	writer.go      Begin, Tree, Partition, Close; treewriter.go: the log's tree
//	reader.go      Open, Each, Tree: the log's file against the tree; lines.go reads a partition, scanner.go a line
//	sink.go        a folder that keeps topics, read like an export
//	account.go     the events and commitments against the log (package verify)
//	state.go       what a verification saves for the next one; waypoint.go when it has to be taken
package export
