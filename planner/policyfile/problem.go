package policyfile

import (
	"errors"
	"strings"

	"lapse/internal/yamldoc"
)

// Problem is one thing that is wrong with a policy, in a file or not.
type Problem struct {
	Key  string // as Place takes it: "expire.after"; "" for the policy itself
	Text string // says what to do
}

// Problems are all that is wrong with one policy.
type Problems []Problem

// Error has one line for each.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		if lines[i] = problem.Text; problem.Key != "" {
			lines[i] = problem.Key + ": " + problem.Text
		}
	}
	return strings.Join(lines, "\n")
}

// InFile converts problems with p to errors with their places in its file, in the file's order.
func (p *Policy) InFile(problems Problems) yamldoc.Errors {
	d := &yamldoc.Document{File: p.File, Lines: p.lines, Policy: string(p.Name)}
	what := strings.TrimSpace("policy " + string(p.Name))
	for _, problem := range problems {
		d.Complain(p.Place(problem.Key), "%s: %s", what, problem.Text)
	}
	var all yamldoc.Errors
	errors.As(d.Err(), &all)
	return all
}
