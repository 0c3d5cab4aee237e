package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lapse/internal/config"
	"lapse/internal/yamldoc"
)

// app is what all commands share: input and output, the environment, and the common flags.
type app struct {
	in        io.Reader
	out, err  io.Writer
	env       config.Environment
	variables []string   // the names of the environment's variables
	asks      bool       // standard input and stderr are terminals
	shows     bool       // stderr is a terminal
	patient   bool       // long commands report their progress
	width     func() int // the width of stdout's terminal; nil if stdout is not a terminal

	configFiles []string // more than one for `lapse status`
	overrides   config.Overrides
	logFormat   string
	logLevel    string
	asJSON      bool
	verbose     bool
	answer      envelope // used with asJSON
	warnings    warnings

	log     *slog.Logger // set before the command runs
	started bool         // the command line was valid
	warned  sync.Once    // of the warning about a superuser's login
}

const (
	formatText = "text"
	formatJSON = "json"
)

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, a *app) int {
	results := &result{to: a.out}
	a.out = results
	root := newRoot(a)
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err != nil && !a.started {
		err = &usageError{err.Error()}
		a.asJSON = a.asJSON || slices.Contains(args, "--json") // the parser stops at the first mistake
	}
	if a.asJSON && (a.answer.Result != nil || err != nil && !results.begun) {
		err = errors.Join(err, a.answerJSON(command.CommandPath(), err))
	}
	a.show(command.CommandPath(), err)
	return exitCode(err)
}

// result is where results go. It records whether there was any output.
type result struct {
	to    io.Writer
	begun bool
	raw   bool
}

// Write replaces characters that would make a terminal show something else. In JSON the escape means the same.
func (r *result) Write(text []byte) (int, error) {
	r.begun = true
	if r.raw {
		return r.to.Write(text)
	}
	_, err := io.WriteString(r.to, unhidden(string(text)))
	return len(text), err
}

// raw is the output for SQL and events, which programs run or compare byte by byte.
func (a *app) raw() io.Writer {
	if r, ok := a.out.(*result); ok {
		r.raw = true
	}
	return a.out
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "lapse",
		Short: "Row TTL for PostgreSQL, with proof",
		Long: `Lapse deletes what a retention policy says must go, and shows from the database's own write-ahead log what was
deleted, by which policy, and what anybody else deleted.

Settings come from flags, then the environment (LAPSE_DATABASE_URL, or _OWNER, _EXECUTOR and _AUDITOR appended for a login each;
LAPSE_KAFKA_BROKERS, LAPSE_KEYS, LAPSE_KEY_TAG and its kin, LAPSE_STATE, LAPSE_SLOT, LAPSE_ROLES_PREFIX, LAPSE_HTTP, PG*), then --config
lapse.yaml (or LAPSE_CONFIG).

A superuser's login is for ` + superuserCommands + `; the others refuse one. LAPSE_SUPERUSER=allow in the
environment allows it for throw-away databases.

Exit codes: 0 done; 1 failed; 2 wrong usage or invalid input; 3 done, and it found something that needs a person.`,
		Example: `  export LAPSE_DATABASE_URL=postgres://lapse@127.0.0.1/app LAPSE_KAFKA_BROKERS=127.0.0.1:9092
  lapse init --database postgres://postgres@127.0.0.1/app
  lapse apply --database postgres://postgres@127.0.0.1/app -f policies.yaml
  lapse serve`,
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return noCommand(cmd, args)
		},
		Version: readVersions().Version,
	}
	root.SetVersionTemplate(readVersions().String())
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.CompletionOptions.DisableDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringArrayVar(&a.configFiles, "config", nil, "read settings from this `file` (default: LAPSE_CONFIG)")
	flags.StringVar(&a.overrides.Database, "database", "", "connect with this `URL` in every role (default: LAPSE_DATABASE_URL)")
	flags.StringVar(&a.overrides.Brokers, "brokers", "", "Kafka brokers as `host:port`, comma separated (default: LAPSE_KAFKA_BROKERS)")
	flags.StringVar(&a.overrides.Keys, "keys", "", "`folder` of the keys (default: LAPSE_KEYS, then the user's configuration folder)")
	flags.StringVar(&a.logFormat, "log-format", formatText, "`format` of the log on stderr: text or json")
	flags.StringVar(&a.logLevel, "log-level", "info", "least `level` that is logged: debug, info, warn or error")
	root.AddCommand(
		a.initCommand(), a.doctorCommand(), a.applyCommand(), a.importCommand(), a.scaffoldCommand(), a.hideCommand(), a.policyCommand(), a.pauseCommand(),
		a.resumeCommand(), a.planCommand(), a.holdCommand(),
		a.quarantineCommand(), a.clockCommand(), a.historyCommand(), a.statusCommand(), a.runCommand(), a.auditCommand(), a.serveCommand(), a.eventsCommand(), a.verifyCommand(), a.proveCommand(), a.reportCommand(), a.keysCommand(), a.uninstallCommand(), a.versionCommand(),
		a.completionCommand(),
	)
	for _, cmd := range append(root.Commands(), root) {
		if cmd.HasSubCommands() && cmd.Flags().Lookup("json") == nil {
			a.jsonFlag(cmd) // or a mistyped subcommand with --json would be reported as an unknown flag
			_ = cmd.Flags().MarkHidden("json")
		}
	}
	checkHelp(root)
	a.completes(root)
	_ = root.MarkPersistentFlagFilename("config", "yaml", "yml") // fails if the command lacks the flag
	_ = root.MarkPersistentFlagDirname("keys")
	return root
}

// checkHelp lets help refuse a command that is not there.
func checkHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Args = func(_ *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err == nil && found.HasSubCommands() && len(rest) > 0 {
				return noCommand(found, rest)
			}
			return err
		}
		root.RemoveCommand(help) // cobra adds it again when a command line is executed
	}
}

// noCommand is the RunE of a command with subcommands only.
func noCommand(cmd *cobra.Command, args []string) error {
	known := names(cmd)
	if len(args) == 0 {
		return fmt.Errorf("name a command: %s", strings.Join(known, ", "))
	}
	if near := yamldoc.Nearest(args[0], known); near != "" {
		return fmt.Errorf("unknown command %q: did you mean %q?", args[0], near)
	}
	return fmt.Errorf("unknown command %q: there are %s", args[0], strings.Join(known, ", "))
}

func names(cmd *cobra.Command) []string {
	var all []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			all = append(all, c.Name())
		}
	}
	return all
}

// noArgs is the Args of a command that takes flags only.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q is one word too many: %s takes flags only", args[0], cmd.CommandPath())
}

// needsFlag is noArgs for a command to which a word without this flag most likely belongs.
func needsFlag(flag string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("%q stands without its flag: did you mean %s %s?", args[0], flag, args[0])
	}
}

// does wraps a command's RunE. Errors before it are about the command line; errors from it are not.
func (a *app) does(work func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		if err := a.openLog(); err != nil {
			return err
		}
		if err := checkGiven(cmd.Flags()); err != nil {
			return err
		}
		return work(cmd, args)
	}
}

// checkGiven refuses a flag that was given with an empty text, as a script does whose variable is not set. Commands take an empty text for a
// flag that was not given: they would ask another database, or run under all policies.
func checkGiven(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		empty := f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			empty = len(list.GetSlice()) == 0 || slices.Contains(list.GetSlice(), "")
		}
		if empty {
			err = cmp.Or(err, wrongUsage("--%s is empty: give it a value, or leave it out", f.Name))
		}
	})
	return err
}

// untilStopped is the RunE of a command that runs until it is stopped or, if once returns true, does one thing and ends.
func (a *app) untilStopped(once *bool, work func(cmd *cobra.Command) error) func(*cobra.Command, []string) error {
	return a.does(func(cmd *cobra.Command, _ []string) error {
		err := work(cmd)
		told := cmd.Context().Err() != nil && (errors.Is(err, errSignalled) || errors.Is(err, context.Canceled))
		if told && !*once {
			return nil // to be stopped is not a failure, whenever it happens
		}
		return err
	})
}

func (a *app) openLog() (err error) {
	a.log, err = a.logTo(a.err)
	return err
}

// logTo makes the log that the flags ask for.
func (a *app) logTo(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return nil, wrongUsage("--log-level %s: want debug, info, warn or error", a.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch a.logFormat {
	case formatText:
		return slog.New(listener{slog.NewTextHandler(w, options), &a.warnings}), nil
	case formatJSON:
		return slog.New(listener{slog.NewJSONHandler(w, options), &a.warnings}), nil
	default:
		return nil, wrongUsage("--log-format %s: want text or json", a.logFormat)
	}
}

// settings reads the flags, the environment and lapse.yaml.
func (a *app) settings() (*config.Settings, error) {
	file, _ := a.env("LAPSE_CONFIG")
	switch len(a.configFiles) {
	case 0:
	case 1:
		file = cmp.Or(a.configFiles[0], file)
	default:
		return nil, wrongUsage("--config is given %d times: only lapse status shows several databases", len(a.configFiles))
	}
	if _, err := os.Stat("lapse.yaml"); err == nil && file == "" && a.variables != nil {
		a.log.Warn("the lapse.yaml in this folder is not read, since nothing names it", "fix", "export LAPSE_CONFIG=$PWD/lapse.yaml, or --config lapse.yaml")
	}
	s, err := config.Load(file, a.overrides, a.env)
	if err != nil {
		return nil, invalid(err)
	}
	for _, name := range a.variables {
		if strings.HasPrefix(name, "LAPSE_") && !slices.Contains(config.Variables(), name) {
			a.log.Warn("an environment variable that Lapse does not know is not used", "variable", name, "did_you_mean", config.NearestVariable(name))
		}
	}
	a.variables = nil // report them only once
	return s, nil
}
