package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"lapse/internal/servers"
)

// summary is what the events so far have said.
type summary struct {
	out      io.Writer
	packages map[string]*testedPackage
	builds   map[string]string // output of compilers, by import path
	servers  map[string]bool
}

type testedPackage struct {
	tests  map[string]*test
	output strings.Builder // outside of tests
	failed bool            // outside of tests
}

type test struct {
	output  strings.Builder
	outcome string // pass, fail or skip; empty while it runs
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, packages: map[string]*testedPackage{}, builds: map[string]string{}, servers: map[string]bool{}}
}

func (s *summary) event(e event) {
	if e.Action == "build-output" {
		s.builds[e.ImportPath] += e.Output
		return
	}
	if e.Package == "" {
		return
	}
	p := s.packages[e.Package]
	if p == nil {
		p = &testedPackage{tests: map[string]*test{}}
		s.packages[e.Package] = p
	}
	switch e.Action {
	case "output":
		s.output(p, e)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.packageEnds(p, e)
		} else {
			s.testEnds(p, e)
		}
	case "run":
		p.test(e.Test)
	}
}

func (p *testedPackage) test(name string) *test {
	if p.tests[name] == nil {
		p.tests[name] = &test{}
	}
	return p.tests[name]
}

// progress are the lines with which go test -v accompanies a test.
var progress = regexp.MustCompile(`^\s*=== (RUN|PAUSE|CONT|NAME) `)

func (s *summary) output(p *testedPackage, e event) {
	if _, server, found := strings.Cut(e.Output, servers.Announcement); found {
		s.servers[strings.TrimSpace(server)] = true
		return
	}
	if progress.MatchString(e.Output) {
		return
	}
	if e.Test == "" {
		p.output.WriteString(e.Output)
	} else {
		p.test(e.Test).output.WriteString(e.Output)
	}
}

func (s *summary) testEnds(p *testedPackage, e event) {
	t := p.test(e.Test)
	t.outcome = e.Action
	if e.Action == "fail" {
		fmt.Fprintf(s.out, "\n%s\n%s", e.Package, t.output.String())
	}
}

func (s *summary) packageEnds(p *testedPackage, e event) {
	if e.Action == "skip" || len(p.tests) == 0 && e.Action == "pass" {
		return // It has no tests.
	}
	if e.Action == "pass" {
		fmt.Fprintf(s.out, "ok    %-32s %6.1f s  %s\n", e.Package, e.Elapsed, p.count())
		return
	}
	// A test that was running when the package ended has failed with it, and has not been shown.
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		if t := p.tests[name]; t.outcome == "" && strings.TrimSpace(t.output.String()) != "" {
			fmt.Fprintf(s.out, "\n%s %s did not end\n%s", e.Package, name, t.output.String())
		}
	}
	p.failed = p.count().failed == 0
	fmt.Fprintf(s.out, "\n%s\n%s%s", e.Package, s.builds[e.FailedBuild], p.output.String())
	fmt.Fprintf(s.out, "FAIL  %-32s %6.1f s  %s\n", e.Package, e.Elapsed, p.count())
}

type count struct{ passed, failed, skipped int }

func (c count) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

func (c *count) add(other count) {
	c.passed += other.passed
	c.failed += other.failed
	c.skipped += other.skipped
}

// count counts the tests that have no subtests, and those that failed though no subtest of theirs did.
func (p *testedPackage) count() (c count) {
	for name, t := range p.tests {
		children, failed := p.subtests(name)
		switch {
		case t.outcome == "fail" || t.outcome == "":
			if failed == 0 {
				c.failed++
			}
		case children > 0:
		case t.outcome == "skip":
			c.skipped++
		default:
			c.passed++
		}
	}
	if p.failed {
		c.failed++
	}
	return c
}

func (p *testedPackage) subtests(name string) (all, failed int) {
	for other, t := range p.tests {
		if strings.HasPrefix(other, name+"/") {
			all++
			if t.outcome == "fail" || t.outcome == "" {
				failed++
			}
		}
	}
	return all, failed
}
