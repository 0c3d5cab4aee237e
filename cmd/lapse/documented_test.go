package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// documentedCommand is a command as documentation names it: at the beginning of code.
var documentedCommand = regexp.MustCompile("(?m)(?:`|&& |^ *\\$ |^ *)(?:bin/)?lapse ([a-z]+)(?: ([a-z]+))?(?: ([^`\n]*))?")

// code is what documentation shows as code.
var code = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")

// documentation returns the text of each page, by its path from the top of the repository.
func documentation(t *testing.T) map[string]string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no documentation: %v", err)
	}
	texts := map[string]string{}
	for _, page := range append(pages, "../../README.md", "../../CHANGELOG.md", "../../bench/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		texts[strings.TrimPrefix(page, "../../")] = string(text)
	}
	return texts
}

// checkFlags says which flags of a command's line the command does not have. What follows a comment or a redirection is not its line.
func checkFlags(t *testing.T, file string, command *cobra.Command, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " #")
	line, _, _ = strings.Cut(line, "|")
	for _, flag := range documentedFlag.FindAllStringSubmatch(line, -1) {
		if command.Flag(flag[1]) == nil && command.InheritedFlags().Lookup(flag[1]) == nil && flag[1] != "help" {
			t.Errorf("%s names %s --%s, and there is no such flag", file, command.CommandPath(), flag[1])
		}
	}
}

var documentedFlag = regexp.MustCompile(`(?:^| )--([a-z][a-z-]*)`)

func TestEveryCommandThatTheDocumentationNamesIsThere(t *testing.T) {
	t.Parallel()
	root := newRoot(&app{})
	for file, text := range documentation(t) {
		for _, block := range code.FindAllString(text, -1) {
			for _, named := range documentedCommand.FindAllStringSubmatch(block, -1) {
				found, rest, err := root.Find([]string{named[1], named[2]})
				switch {
				case err != nil || found == root || len(rest) > 0 && rest[0] == named[1]:
					t.Errorf("%s names %s, which does not exist", file, strings.TrimSpace(named[0]))
				case found.HasSubCommands() && named[2] != "" && found.Name() != named[2] && !found.Runnable():
					t.Errorf("%s names %s, which does not exist", file, strings.TrimSpace(named[0]))
				default:
					checkFlags(t, file, found, named[3])
				}
			}
		}
	}
}

func TestEveryFileAndTargetThatTheDocumentationNamesIsThere(t *testing.T) {
	t.Parallel()
	there := repository(t)
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile(`(?:^|[\s` + "`" + `(])make ([a-z]+(?:-[a-z]+)*)`)
	path := regexp.MustCompile("`((?:audit|bench|cmd|deploy|docs|examples|executor|internal|planner|replication|schemas|scripts)/[\\w./-]+|[\\w./-]+\\.(?:go|tmpl)|[0-9]{4}_[\\w]+\\.sql)`")
	for file, text := range documentation(t) {
		for _, block := range code.FindAllString(text, -1) {
			for _, named := range target.FindAllStringSubmatch(block, -1) {
				if !regexp.MustCompile(`(?m)^` + named[1] + `:`).Match(makefile) {
					t.Errorf("%s names make %s, which is no target", file, named[1])
				}
			}
		}
		for _, named := range path.FindAllStringSubmatch(text, -1) {
			if !there["/"+strings.TrimSuffix(named[1], "/")] {
				t.Errorf("%s names %s, which does not exist", file, named[1])
			}
		}
	}
}

func TestEveryLinkOfTheDocumentationLeadsSomewhere(t *testing.T) {
	t.Parallel()
	texts := documentation(t)
	link := regexp.MustCompile(`\]\(([^)\s]*)\)`)
	for file, text := range texts {
		for _, named := range link.FindAllStringSubmatch(text, -1) {
			name, anchor, _ := strings.Cut(named[1], "#")
			if strings.Contains(name, "://") {
				continue
			}
			leads := file
			if name != "" {
				leads = filepath.Join(filepath.Dir(file), name)
			}
			if _, err := os.Stat(filepath.Join("../..", leads)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", file, named[1])
			}
			if anchor != "" && texts[leads] != "" && !anchors(texts[leads])[anchor] {
				t.Errorf("%s: there is no heading for the link %s", file, named[1])
			}
		}
	}
}

// anchors are the names that links give a page's headings.
func anchors(page string) map[string]bool {
	names := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names[strings.ReplaceAll(name, " ", "-")] = true
	}
	return names
}

// repository has the path of each file and folder, whole, and without the folders before it: "/executor/drop.go" and "/drop.go".
func repository(t *testing.T) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != "..":
			return filepath.SkipDir
		}
		for name := strings.TrimPrefix(filepath.ToSlash(path), "../.."); name != ""; {
			there[name] = true
			cut := strings.Index(name[1:], "/")
			if cut < 0 {
				break
			}
			name = name[1+cut:]
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// The head of an SQL file, a doc.go, a comment beside a line: what one names is in the repository, by its whole path or the end of it.
func TestEveryFileThatACommentNamesIsThere(t *testing.T) {
	t.Parallel()
	there := repository(t)
	source := regexp.MustCompile(`[^/]\.(?:go|sql|tmpl)$`)
	comment := regexp.MustCompile(`(?m)(?:^|\s)(?://|--)\s.*$`)
	path := regexp.MustCompile(`(?:^|[^\w/.*}-])(\w[\w/.-]*\.(?:go|sql|tmpl|md))\b`)
	seen := 0
	for name := range there {
		if !source.MatchString(name) || strings.Contains(name, "/testdata/") {
			continue
		}
		text, err := os.ReadFile("../.." + name)
		if err != nil {
			continue // part of a path
		}
		for _, said := range comment.FindAllString(string(text), -1) {
			for _, named := range path.FindAllStringSubmatch(said, -1) {
				seen++
				if !there["/"+named[1]] && !there["/"+named[1]+".tmpl"] {
					t.Errorf("%s names %s, which does not exist", name, named[1])
				}
			}
		}
	}
	if seen == 0 {
		t.Fatal("no comment names a file")
	}
}

func TestEachStopOfOneRowsWayIsAFunctionOfItsFile(t *testing.T) {
	t.Parallel()
	stops := regexp.MustCompile(`(?m)^\d\. \*\*`+"`(\\w+)` in"+` \[(\S+)\]`).FindAllStringSubmatch(documentation(t)["docs/architecture.md"], -1)
	if len(stops) != 7 {
		t.Fatalf("docs/architecture.md has %d stops, not seven", len(stops))
	}
	for _, stop := range stops {
		text, err := os.ReadFile("../../" + stop[2])
		if err != nil || !regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?`+stop[1]+`\(`).Match(text) {
			t.Errorf("there is no function %s in %s (%v)", stop[1], stop[2], err)
		}
	}
}

// A word that no name in the code has is a word too many, and forty are what a person can learn.
func TestTheGlossaryHasFortyWordsThatTheCodeUses(t *testing.T) {
	t.Parallel()
	words := regexp.MustCompile(`(?m)^\| ([^|]+) \| [^-]`).FindAllStringSubmatch(documentation(t)["docs/glossary.md"], -1)[1:] // the first is the table's head
	if len(words) != 40 {
		t.Errorf("docs/glossary.md has %d words, not forty", len(words))
	}
	texts := statements(t)
	for _, word := range words {
		named := regexp.MustCompile("(?i)" + strings.NewReplacer("-", "_?", " ", "_?").Replace(word[1]))
		if word[1] == "low-water mark" { // LowWater, low_water: its marks
			named = regexp.MustCompile("(?i)low_?water")
		}
		files := 0
		for _, text := range texts {
			if named.MatchString(text) {
				files++
			}
		}
		if files < 2 {
			t.Errorf("docs/glossary.md has %q, which is in the code of %d files", word[1], files)
		}
	}
}

// statements are the texts of the product's files without the lines that are comments.
func statements(t *testing.T) map[string]string {
	t.Helper()
	comment := regexp.MustCompile(`(?m)(^|\s)(//|--)\s.*$`)
	texts := map[string]string{}
	for _, room := range []string{"audit", "executor", "internal/setup", "internal/status", "planner", "replication", "schemas"} {
		err := filepath.WalkDir("../../"+room, func(path string, _ os.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata") {
				return err
			}
			switch filepath.Ext(path) {
			case ".go", ".sql", ".tmpl":
				text, err := os.ReadFile(path)
				texts[path] = comment.ReplaceAllString(string(text), "")
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// A row of the map names files, and what to look for there: in one of them it is defined.
func TestEachNameOfTheMapIsDefinedInAFileOfItsRow(t *testing.T) {
	t.Parallel()
	page := documentation(t)["docs/architecture.md"]
	_, rows, found := strings.Cut(page, "\n## Where is …?\n")
	rows, _, foundEnd := strings.Cut(rows, "\n## A policy's five forms\n")
	if !found || !foundEnd {
		t.Fatal("docs/architecture.md has no map")
	}
	there, sources := repository(t), map[string]string{}
	for name := range there {
		if text, err := os.ReadFile("../.." + name); err == nil {
			sources[name] = string(text)
		}
	}
	said, file := regexp.MustCompile("`([^`]+)`"), regexp.MustCompile(`^[\w./-]+\.(?:go|sql|tmpl)$`)
	name := regexp.MustCompile(`^(?:lapse\.)?(\w+)$`)
	seen := 0
	for row := range strings.Lines(rows) {
		cells := strings.Split(row, " | ")
		if len(cells) < 2 || !strings.HasPrefix(row, "| ") {
			continue
		}
		var text strings.Builder
		for _, s := range said.FindAllStringSubmatch(cells[1], -1) {
			for path, source := range sources {
				if file.MatchString(s[1]) && strings.HasSuffix(path, "/"+s[1]) {
					text.WriteString(source)
				}
			}
		}
		for _, s := range said.FindAllStringSubmatch(cells[1], -1) {
			is := name.FindStringSubmatch(s[1])
			if is == nil || text.Len() == 0 || there["/"+s[1]] {
				continue
			}
			seen++
			if !regexp.MustCompile(`(?m)(?:^(?:func (?:\([^)]*\) )?|type )|(?:function|table|view) lapse\.|^  )` + is[1] + `\b`).MatchString(text.String()) {
				t.Errorf("docs/architecture.md names %s, which no file of its row defines: %s", s[1], strings.TrimSpace(row))
			}
		}
	}
	if seen < 20 {
		t.Fatalf("only %d names are in the map", seen)
	}
}

// A form of a policy is a type of the package that the page names, and what makes it is a function or a method there.
func TestEachFormOfAPolicyIsATypeOfItsPackage(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(documentation(t)["docs/architecture.md"], "\n## A policy's five forms\n")
	section, _, _ = strings.Cut(section, "\n## ")
	forms := regexp.MustCompile(`\b(policyfile|resolve|record|change)\.([A-Z]\w+)`).FindAllStringSubmatch(section, -1)
	if len(forms) < 5 {
		t.Fatalf("docs/architecture.md has %d forms, not five", len(forms))
	}
	for _, form := range forms {
		files, err := filepath.Glob("../../planner/" + form[1] + "/*.go")
		defined := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			defined = defined || err == nil && regexp.MustCompile(`(?m)^type `+form[2]+`\b`).Match(text)
		}
		if err != nil || !defined {
			t.Errorf("there is no type %s in planner/%s (%v)", form[2], form[1], err)
		}
	}
}

// documentedTest is a test as documentation names it.
var documentedTest = regexp.MustCompile("`(Test[A-Z]\\w+)`")

// What documentation says a test holds, is held by one.
func TestEveryTestThatTheDocumentationNamesIsThere(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for path := range repository(t) {
		if !strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", path))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the end of another path
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range declaration.FindAllSubmatch(text, -1) {
			declared[string(found[1])] = true
		}
	}
	named := 0
	for file, text := range documentation(t) {
		for _, found := range documentedTest.FindAllStringSubmatch(text, -1) {
			if named++; !declared[found[1]] {
				t.Errorf("%s names %s, and there is no such test", file, found[1])
			}
		}
	}
	if named < 30 {
		t.Errorf("the documentation names %d tests", named)
	}
}
