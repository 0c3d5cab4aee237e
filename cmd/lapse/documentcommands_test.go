package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commandFence is a block of commands; a fence without a language is a picture or an output.
var commandFence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```")

// afterwards is a comment behind a command.
var afterwards = regexp.MustCompile(`\s+(#|--) .*$`)

// commandLines are the commands of a block, without comments: the lines with a prompt, or all where none has one. A line that ends with a
// backslash goes on in the next.
func commandLines(block string) []string {
	var all []string
	block = strings.ReplaceAll(block, "\\\n", "")
	prompted := regexp.MustCompile(`(?m)^\s*[$#] (.*)$`).FindAllStringSubmatch(block, -1)
	if prompted == nil {
		prompted = regexp.MustCompile(`(?m)^(\s*)(\S.*)$`).FindAllStringSubmatch(block, -1)
	}
	for _, line := range prompted {
		all = append(all, strings.TrimSpace(afterwards.ReplaceAllString(line[len(line)-1], "")))
	}
	return all
}

// elsewhere are the commands that TestEveryCommandOfTheDocumentationIsRun does not run, with what runs them or why nothing does: by page, or any,
// and by how they begin.
var elsewhere = []struct{ page, begin, why string }{
	{"README.md", "", "TestTheInstallationIsAsTheReadmeSays"},
	{"docs/start.md", "", "TestTheFirstDatabaseIsAsTheDocumentSays"},
	{"docs/commands.md", "", "the help's examples: TestEveryExampleOfTheHelpRuns"},
	{"docs/histories.md", "lapse ", "each where it fits: TestEachCommandOfThePageOnHistoriesIsRunByATest"},
	{"docs/histories.md", "psql ", "TestACloneBeginsALogOfItsOwn and TestACloneByTemplateIsInstalledAnew send the statements"},
	{"docs/configuration.md", "kafka-console-consumer.sh", "a long test of audit/: it needs Kafka's own tools"},
	{"docs/configuration.md", "kcat", "the same test, where kcat is installed"},
	{"docs/configuration.md", "create role lapse", "TestTheLinesOfARefusalMakeALoginThatIsTaken"},
	{"docs/configuration.md", "grant lapse_owner", "the same"},
	{"docs/testing.md", "", "how the tests themselves are run; .ci/run takes the targets"},
	{"SECURITY.md", "ssh-keygen", "TestAReleaseIsTheSameBytesForEverybody"},
	{"docs/deployment.md", "install ", "changes the machine"},
	{"docs/deployment.md", "cp ", "changes the machine"},
	{"", "systemctl", "needs a machine that systemd runs"},
	{"", "journalctl", "needs a machine that systemd runs"},
	{"", "kubectl", "needs a cluster"},
	{"", "ssh ", "needs another machine"},
}

// Each command that a document shows in a block of its own is run, by this test or by another that is named.
func TestEveryCommandOfTheDocumentationIsRun(t *testing.T) {
	t.Parallel()
	pages := documentation(t)
	security, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	pages["SECURITY.md"] = string(security)
	used, seen := map[int]bool{}, map[string]bool{}
	var lines []pageLine
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		for _, block := range commandFence.FindAllStringSubmatch(pages[page], -1) {
			switch block[1] {
			case "console", "sh", "bash", "sql":
			case "":
				if regexp.MustCompile(`(?m)^([$#] |(bin/)?lapse |make |psql )`).MatchString(block[2]) {
					t.Errorf("%s: a block of commands that does not say so:\n%s", page, block[2])
				}
				continue
			default:
				continue
			}
		each:
			for _, line := range commandLines(block[2]) {
				for i, e := range elsewhere {
					if (e.page == "" || e.page == page) && strings.HasPrefix(line, e.begin) {
						used[i] = true
						continue each
					}
				}
				if !seen[line] {
					seen[line] = true
					lines = append(lines, pageLine{page, line})
				}
			}
		}
	}
	for i, e := range elsewhere {
		if !used[i] {
			t.Errorf("%s has no command %q", e.page, e.begin)
		}
	}
	if len(lines) < 20 {
		t.Errorf("only %d commands are run", len(lines))
	}
	newStory(t).reads(lines)
}

// pageLine is a command of a page.
type pageLine struct{ page, line string }

// reads runs lines of pages as they stand, beside a serve, each by a shell.
func (s *story) reads(lines []pageLine) {
	s.t.Helper()
	s.db.Exec(s.t, `create table public.documents (no bigint not null, id bigint primary key)`, `create unique index documents_no_key on public.documents (no)`)
	s.quarantine()
	serve := s.m.serve()
	serve.ready(200)
	ctx, cancel := patience(s.t)
	defer cancel()
	address, err := serve.address(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	s.stands = strings.NewReplacer("localhost:7432", address, "127.0.0.1:7432", address, "/etc/lapse/keys", "keys", "KEYS/", "keys/", "/var/lib/lapse", "sink",
		"psql ", "psql -X -v ON_ERROR_STOP=1 '"+s.db.URL+"' ")
	for _, l := range lines {
		line := l.line
		if sqlStatement.MatchString(line) {
			line = `psql -c "` + line + `"`
		}
		line = exampleURL.ReplaceAllStringFunc(line, func(url string) string { return s.db.As(exampleURL.FindStringSubmatch(url)[1]) })
		code, out := s.types(s.stands.Replace(line), false)
		s.ends(l.page, l.line, pageEnds[l.line], code, out)
	}
	serve.stop()
}

var sqlStatement = regexp.MustCompile(`^(alter|create|select) `)

// pageEnds are the lines of pages that do not end with 0: those of exampleEnds for the same row, and one that asks for what is not configured.
var pageEnds = map[string]end{
	"lapse doctor":          exampleEnds["lapse doctor"],
	"lapse status":          exampleEnds["lapse status"],
	"lapse quarantine list": exampleEnds["lapse quarantine list"],
	"curl -s localhost:7432/metrics | grep lapse_witness_failing": {1, ""}, // grep: there is no witness
}
