package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lapse/internal/yamldoc"
	"lapse/planner/policyfile"
)

// standardInput is the name of a policy file that is read from there.
const standardInput = "-"

// errNoPolicyFile says that -f is missing.
var errNoPolicyFile error = &usageError{"name the policy file: -f FILE"}

// policyFilesFlag is the usage of -f.
const policyFilesFlag = "the policy `file`, or a folder of them, or - for standard input; may be repeated"

// readPolicyFiles reads the policy files that -f names, as one: a folder stands for all its *.yaml and *.yml files but the
// hidden ones, by name. All that is wrong in them, and the files that cannot be read, are among the file's Problems: a
// command that needs them whole asks Difference, or checks it itself. The policies are under the floors of lapse.yaml. The
// error is for a wrong command line or lapse.yaml.
func (a *app) readPolicyFiles(names []string) (*policyfile.File, error) {
	file, err := a.parsePolicyFiles(names)
	if err != nil {
		return nil, err
	}
	s, err := a.settings()
	if err != nil {
		return nil, withProblems(file, err)
	}
	file.Under(floorsOf(s))
	return file, nil
}

// parsePolicyFiles reads the files alone.
func (a *app) parsePolicyFiles(names []string) (*policyfile.File, error) {
	if len(names) == 0 {
		return nil, errNoPolicyFile
	}
	var texts []policyfile.Text
	var unread yamldoc.Errors
	for _, name := range names {
		files, err := policyFilesAt(name)
		if err != nil {
			unread = append(unread, notRead(name, err))
		}
		for _, file := range files {
			if slices.ContainsFunc(texts, func(t policyfile.Text) bool { return t.Name == file }) {
				return nil, wrongUsage("-f names %s twice", file)
			}
			body, err := a.readPolicyText(file)
			if err != nil {
				unread = append(unread, notRead(file, err))
				continue
			}
			texts = append(texts, policyfile.Text{Name: file, Body: body})
		}
	}
	file, _ := policyfile.ParseAll(texts)
	file.Problems = append(unread, file.Problems...)
	return file, nil
}

// policyFilesAt returns the files that a name stands for.
func policyFilesAt(name string) ([]string, error) {
	if name == standardInput {
		return []string{name}, nil
	}
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return []string{filepath.Clean(name)}, nil // what is wrong with it is said when it is read
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		ending := strings.ToLower(filepath.Ext(e.Name()))
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && (ending == ".yaml" || ending == ".yml") {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, errors.New("there is no *.yaml or *.yml file in this folder")
	}
	return files, nil
}

// readPolicyText reads a byte more than a policy file may have, so that the parser refuses what is longer.
func (a *app) readPolicyText(name string) (body []byte, err error) {
	in := a.in
	if name != standardInput {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	return io.ReadAll(io.LimitReader(in, yamldoc.MaxFile+1))
}

// withProblemsOf is an error that came before the policy files were read, beside what is wrong in them.
func (a *app) withProblemsOf(names []string, err error) error {
	file, unread := a.parsePolicyFiles(names)
	if unread != nil {
		return err
	}
	return withProblems(file, err)
}

// withProblems is an error that kept the database from being asked about a file, beside what is wrong in the file itself.
func withProblems(file *policyfile.File, err error) error {
	var more yamldoc.Errors // of lapse.yaml
	switch {
	case len(file.Problems) == 0:
		return err
	case errors.As(err, &more):
		return slices.Concat(more, file.Problems)
	}
	return errors.Join(file.Problems, err)
}

func notRead(name string, err error) *yamldoc.Error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return &yamldoc.Error{File: name, Message: err.Error()}
}
