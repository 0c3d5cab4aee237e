package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each line of an example is a command line that the program understands.
func TestEveryCommandExplainsItselfWithAnExampleThatWorks(t *testing.T) {
	t.Parallel()
	seen := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		seen++
		path := cmd.CommandPath()
		if cmd.Short == "" || cmd.Long == "" || !strings.Contains(cmd.Example, "  "+path) {
			t.Errorf("%s: short %q, long %q, example %q", path, cmd.Short, cmd.Long, cmd.Example)
		}
		if strings.HasSuffix(cmd.Short, ".") || strings.Contains(cmd.Short, "\n") {
			t.Errorf("%s: the short text is %q", path, cmd.Short)
		}
		for line := range strings.Lines(cmd.Example) {
			if understood := checkExample(t, line); !understood {
				t.Errorf("%s: the example %q is not one of lapse", path, line)
			}
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(newRoot(&app{}))
	if seen < 20 {
		t.Errorf("%d commands were seen", seen)
	}
}

// checkExample reads one line as lapse would, up to where the command's work would begin. A line may set the environment, pass
// its output on, or be a comment.
func checkExample(t *testing.T, line string) (understood bool) {
	t.Helper()
	line, _, _ = strings.Cut(strings.TrimSpace(line), " > ")
	line, _, _ = strings.Cut(line, " | ")
	line = strings.TrimSuffix(strings.TrimPrefix(line, "source <("), ")")
	if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "export ") {
		return true
	}
	rest, found := strings.CutPrefix(line, "lapse ")
	if !found {
		return false
	}
	root := newRoot(&app{})
	cmd, args, err := root.Find(arguments(rest))
	if err == nil {
		err = cmd.ParseFlags(args)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err == nil {
		err = cmd.ValidateRequiredFlags()
	}
	if err != nil {
		t.Errorf("%q: %v", line, err)
	}
	return true
}

// argument is a word of a line, or a text in quotation marks of either kind.
var argument = regexp.MustCompile(`'([^']*)'|"([^"]*)"|([^\s"']+)`)

// arguments are a line's, texts in quotation marks being one.
func arguments(line string) []string {
	var all []string
	for _, m := range argument.FindAllStringSubmatch(line, -1) {
		all = append(all, m[1]+m[2]+m[3])
	}
	return all
}
