package main

// event is one line of go test -json (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output and build-fail
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}
