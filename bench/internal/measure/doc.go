// Package measure is what the benchmarks share:
//
//	options.go   flags, and a program's way from them to its report
//	rounds.go    the ways take turns
//	lapse.go     the commands of a lapse binary
//	server.go    a server, and the databases in it
//	cpu.go       CPU time and memory of processes
//	report.go    medians with what lies around them, tables, the file of all figures
package measure
