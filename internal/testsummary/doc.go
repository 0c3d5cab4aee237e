// Command testsummary makes the output of go test -json readable (make test).
//
// It promises: a line per package as it ends; the whole output of each test that failed, and of nothing else; at the end
// the servers that the tests ran on, every skipped test with its reason, every failed test by name with the first lines it
// said, and the counts, alone on the last line:
//
//	123 passed, 0 failed, 2 skipped
//
// A test that has subtests is counted through them. What fails outside a test (a build, a panic, a timeout, a TestMain)
// counts as one failure. The exit code is 1 if anything failed or no test ran, 0 otherwise.
//
// Why not gotestsum (tried at v1.13.0): it shows packages, failures and skips as well as this does, but
//
//   - its last line counts a test and its subtests, which are one test on five servers here: one failed subtest is two
//     failures, a test that hangs is two as well, and how many passed is not said;
//   - no test at all is a success, so a -run that matches nothing, or a package that lost its tests, passes;
//   - it does not gather which servers the tests ran on, and the next word of a test's output to be gathered has no place.
//
// A program that counts its JSON file again for these would be as long as this one, and the dependency would come on top.
//
//	event.go     the lines of go test -json
//	summary.go   what is known of packages and tests, and what is shown as they end
//	end.go       the lists and the counts at the end
package main
