// Package yamldoc reads a YAML file that a person wrote, and says where each thing in it is. The policy file and
// lapse.yaml are read with it; what their keys mean is said by planner/policyfile and internal/config.
//
//	document.go   the file: its one body, and all that is wrong with it, in the file's order
//	error.go      one thing that is wrong, its line, and all of them in the files' order
//	node.go       one value: a mapping, a list or a scalar, with its place
//	nearest.go    which name was meant
//
// It promises that every error names file, line and column, that all of them are reported together, and that no text
// makes it panic. A byte order mark is no part of a file, and every kind of line break is one. A value that cannot be read is an error with a place, never a guess.
//
// It refuses files of more than a mebibyte, a second document, and, as keys or texts, anchors, aliases, merges and tags:
// each value is checked where it is read.
package yamldoc
