package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documentedCommand is a command as documentation names it: at the beginning of code.
var documentedCommand = regexp.MustCompile("(?m)(?:`|^ *\\$ |^ *)lapse ([a-z]+)(?: ([a-z]+))?")

func TestEveryCommandThatTheDocumentationNamesIsThere(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documentation: %v", err)
	}
	root := newRoot(&app{})
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range code.FindAllString(string(text), -1) {
			for _, named := range documentedCommand.FindAllStringSubmatch(block, -1) {
				found, rest, err := root.Find([]string{named[1], named[2]})
				switch {
				case err != nil || found == root || len(rest) > 0 && rest[0] == named[1]:
					t.Errorf("%s names %s, which does not exist", filepath.Base(file), strings.TrimSpace(named[0]))
				case found.HasSubCommands() && named[2] != "" && found.Name() != named[2] && !found.Runnable():
					t.Errorf("%s names %s, which does not exist", filepath.Base(file), strings.TrimSpace(named[0]))
				}
			}
		}
	}
}
