package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// end writes what there is to say about all packages, and returns the exit code.
func (s *summary) end() int {
	var total count
	var skipped, failed []string
	for _, path := range slices.Sorted(maps.Keys(s.packages)) {
		p := s.packages[path]
		total.add(p.count())
		if p.failed {
			failed = append(failed, path)
		}
		for _, name := range slices.Sorted(maps.Keys(p.tests)) {
			children, failures := p.subtests(name)
			switch t := p.tests[name]; {
			case t.outcome == "skip" && children == 0:
				skipped = append(skipped, path+" "+name+": "+reason(t.output.String()))
			case (t.outcome == "fail" || t.outcome == "") && failures == 0:
				failed = append(failed, path+" "+name+said(t.output.String()))
			}
		}
	}
	fmt.Fprintf(s.out, "\nservers: %s\n", s.serverList())
	s.list("skipped", skipped)
	s.list("failed", failed)
	fmt.Fprintf(s.out, "\n%s\n", total)
	if total.failed > 0 || total.passed == 0 {
		return 1
	}
	return 0
}

func (s *summary) list(title string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(s.out, "%s:\n  %s\n", title, strings.Join(lines, "\n  "))
	}
}

// serverList is such as "PostgreSQL 14.24, 18.6; Kafka 4.3.1".
func (s *summary) serverList() string {
	versions := map[string][]string{}
	for _, server := range slices.Sorted(maps.Keys(s.servers)) {
		product, version, _ := strings.Cut(server, " ")
		versions[product] = append(versions[product], version)
	}
	var products []string
	for _, product := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
		products = append(products, product+" "+strings.Join(versions[product], ", "))
	}
	if len(products) == 0 {
		return "none"
	}
	return strings.Join(products, "; ")
}

var skipLine = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: (.*)$`)

// said is what a failed test said, but for lines of a log: its first lines, for a reader who sees only the end of the output.
func said(output string) string {
	const most = 5
	var text strings.Builder
	n := 0
	for _, line := range saidLine.FindAllStringSubmatch(output, -1) {
		if strings.Contains(line[1], "level=") || strings.TrimSpace(line[1]) == "" || line[1] == "WORK=$WORK" {
			continue
		}
		if n++; n > most {
			break
		}
		if len(line[1]) > 300 {
			line[1] = line[1][:300] + "…"
		}
		text.WriteString("\n    " + strings.TrimSpace(line[1]))
	}
	return text.String()
}

// saidLine is a line of a test, or of a script that a test runs.
var saidLine = regexp.MustCompile(`(?m)^\s+(?:\w+\.go:\d+: |FAIL: testdata/)(.*)$`)

// reason is what a skipped test said last.
func reason(output string) string {
	all := skipLine.FindAllStringSubmatch(output, -1)
	if len(all) == 0 {
		return "no reason given"
	}
	return all[len(all)-1][1]
}
