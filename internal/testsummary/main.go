package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	code, err := summarize(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		code = 1
	}
	os.Exit(code)
}

// summarize reads events until in ends, and writes the summary.
func summarize(in io.Reader, out io.Writer) (code int, err error) {
	s := newSummary(out)
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.line(line)
		}
		if err == io.EOF {
			return s.end(), nil
		}
		if err != nil {
			return 1, err
		}
	}
}

// line takes one line. What is no event is shown as it is: go test itself had something to say.
func (s *summary) line(line string) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Action == "" {
		fmt.Fprint(s.out, line)
		return
	}
	s.event(e)
}
