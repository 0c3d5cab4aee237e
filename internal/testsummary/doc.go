// Command testsummary makes the output of go test -json readable (make test).
//
// It promises: a line per package as it ends; the whole output of each test that failed, and of nothing else; at the end
// the servers that the tests ran on, every skipped test with its reason, every failed test by name, and the counts, alone
// on the last line:
//
//	123 passed, 0 failed, 2 skipped
//
// A test that has subtests is counted through them. What fails outside a test (a build, a panic, a timeout, a TestMain)
// counts as one failure. The exit code is 1 if anything failed or no test ran, 0 otherwise.
package main
