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

// standardInput is the name for reading a policy file from standard input.
const standardInput = "-"

// errNoPolicyFile says that -f is missing.
var errNoPolicyFile error = &usageError{"name the policy file: -f FILE"}

// policyFilesFlag is the usage of -f.
const policyFilesFlag = "the policy `file`, or a folder of them, or - for standard input; may be repeated"

// readPolicyFiles reads the policy files of -f as one. A folder stands for all its *.yaml and *.yml files in order of their names, except
// hidden ones. Mistakes in the files and unreadable files become the file's Problems: a command that needs all files asks Difference or
// checks them itself. The floors of lapse.yaml apply to the policies. An error means a wrong command line or a wrong lapse.yaml.
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

// parsePolicyFiles parses the files without checking them against lapse.yaml.
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

// policyFilesAt returns the files that a name or folder stands for.
func policyFilesAt(name string) ([]string, error) {
	if name == standardInput {
		return []string{name}, nil
	}
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return []string{filepath.Clean(name)}, nil // reading it reports the error
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

// readPolicyText reads one byte more than a policy file may have, so that the parser refuses longer files.
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

// withProblemsOf adds the mistakes in the policy files to an error that came before they were read.
func (a *app) withProblemsOf(names []string, err error) error {
	file, unread := a.parsePolicyFiles(names)
	if unread != nil {
		return err
	}
	return withProblems(file, err)
}

// withProblems adds the mistakes in a file to an error that kept the command from asking the database about it.
func withProblems(file *policyfile.File, err error) error {
	var more yamldoc.Errors // those in lapse.yaml
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
