package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lapse/internal/fixture"
)

// The reference and the manual page say what --help says. Both are in the repository, so that a change of a command is seen there too:
// go test ./cmd/lapse -run TestTheReference -update writes them.
func TestTheReferenceIsWhatTheCommandsSay(t *testing.T) {
	t.Parallel()
	root := newRoot(&app{})
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	fixture.WantFile(t, *update, "../../docs/commands.md", commandsPage(root))
	fixture.WantFile(t, *update, "../../deploy/packages/lapse.1", manualPage(root))
}

// allCommands are a command's and those below it, in the order of --help.
func allCommands(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			all = append(append(all, sub), allCommands(sub)...)
		}
	}
	return all
}

// ownFlags are a command's without those that all have.
func ownFlags(cmd *cobra.Command) (all []*pflag.Flag) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			all = append(all, f)
		}
	})
	return all
}

func commandsPage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(`# Commands

For people who look a command up: what ` + "`lapse COMMAND --help`" + ` says, on one page; a test keeps it so. The packages have it as ` + "`man lapse`" + `,
and the completion of bash, zsh and fish beside it.

| command | does |
|---|---|
`)
	for _, cmd := range allCommands(root) {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", cmd.CommandPath(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cmd.Short)
	}
	fmt.Fprintf(&b, "\n%s\n| flag of every command | |\n|---|---|\n%s", prose(root.Long), flagTable(sharedFlags(root)))
	for _, cmd := range allCommands(root) {
		fmt.Fprintf(&b, "\n## %s\n\n`%s`\n\n%s", cmd.CommandPath(), cmd.UseLine(), prose(cmd.Long))
		if flags := ownFlags(cmd); len(flags) > 0 {
			fmt.Fprintf(&b, "\n| flag | |\n|---|---|\n%s", flagTable(flags))
		}
		fmt.Fprintf(&b, "\n```console\n%s\n```\n", strings.ReplaceAll(strings.Trim(cmd.Example, "\n"), "  lapse ", "lapse "))
	}
	return b.String()
}

// prose is a text, with lines that are indented as they are.
func prose(text string) string {
	var b strings.Builder
	literal := false
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		if indented := strings.HasPrefix(line, "  "); indented != literal {
			b.WriteString(map[bool]string{true: "```text\n", false: "```\n"}[indented])
			literal = indented
		}
		b.WriteString(line)
	}
	if literal {
		b.WriteString("```\n")
	}
	return b.String()
}

// flagSays is what a flag is given, and what it does.
func flagSays(f *pflag.Flag) (value, usage string) {
	value, usage = pflag.UnquoteUsage(f)
	if !slices.Contains([]string{"", "false", "[]", "0"}, f.DefValue) {
		usage += " (default: " + f.DefValue + ")"
	}
	return value, usage
}

func flagTable(flags []*pflag.Flag) string {
	var b strings.Builder
	for _, f := range flags {
		value, usage := flagSays(f)
		name := strings.TrimSpace("--" + f.Name + " " + value)
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, strings.ReplaceAll(usage, "|", `\|`))
	}
	return b.String()
}

// sharedFlags are those of every command.
func sharedFlags(root *cobra.Command) (all []*pflag.Flag) {
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { all = append(all, f) })
	return all
}

// roff is a text as the manual's language has it.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	return regexp.MustCompile(`(?m)^([.'])`).ReplaceAllString(text, `\&$1`)
}

// paragraphs are a text's, with lines that are indented as they are.
func paragraphs(text string) string {
	var b strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		literal := false
		b.WriteString(".PP\n")
		for line := range strings.Lines(block + "\n") {
			if indented := strings.HasPrefix(line, "  "); indented != literal {
				b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[indented])
				literal = indented
			}
			b.WriteString(roff(line))
		}
		if literal {
			b.WriteString(".fi\n")
		}
	}
	return b.String()
}

func flagsOf(flags []*pflag.Flag) string {
	var b strings.Builder
	for _, f := range flags {
		value, usage := flagSays(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fP", roff(name))
		if value != "" {
			fmt.Fprintf(&b, " \\fI%s\\fP", roff(value))
		}
		fmt.Fprintf(&b, "\n%s\n", roff(usage))
	}
	return b.String()
}

func manualPage(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH LAPSE 1\n.SH NAME\nlapse \\- %s\n.SH SYNOPSIS\n.B lapse\n.I command\n[\\fIflag\\fP ...]\n.SH DESCRIPTION\n%s", roff(root.Short), paragraphs(root.Long))
	fmt.Fprintf(&b, ".SH OPTIONS\n%s.SH COMMANDS\n", flagsOf(sharedFlags(root)))
	for _, cmd := range allCommands(root) {
		fmt.Fprintf(&b, ".SS %s\n%s.PP\n\\fB%s\\fP\n%s.PP\n.nf\n%s\n.fi\n", roff(cmd.CommandPath()), paragraphs(cmd.Long), roff(cmd.UseLine()),
			flagsOf(ownFlags(cmd)), roff(strings.TrimRight(cmd.Example, "\n")))
	}
	b.WriteString(".SH FILES\n.TP\n/etc/lapse/lapse.yaml\nthe settings, where the units read them\n.TP\n/usr/share/lapse\nalerts, dashboard, and JSON Schemas of lapse.yaml and policy files\n")
	return b.String()
}

// groff says nothing of what it is given, and shows what is in it.
func TestTheManualPageIsRoff(t *testing.T) {
	t.Parallel()
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is missing: the manual page is not shown")
	}
	var warnings bytes.Buffer
	cmd := exec.CommandContext(t.Context(), groff, "-k", "-man", "-ww", "-Tutf8", "-P-cbu", "../../deploy/packages/lapse.1")
	cmd.Stderr = &warnings
	shown, err := cmd.Output()
	if err != nil || warnings.Len() > 0 {
		t.Fatalf("%v\n%s", err, warnings.String())
	}
	for _, cmd := range allCommands(newRoot(&app{})) {
		if !bytes.Contains(shown, []byte(cmd.CommandPath())) {
			t.Errorf("the page does not show %s", cmd.CommandPath())
		}
	}
	for _, want := range []string{"--dry-run", "  lapse apply -f policies.yaml --arm"} {
		if !bytes.Contains(shown, []byte(want)) {
			t.Errorf("the page does not show %s", want)
		}
	}
}
