package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/planner/database"
	"lapse/planner/record"
)

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print the script that completes lapse's arguments in a shell",
		Long: `Prints a script for a shell. Once the shell has read it, the tab key completes commands, flags, files and, if the database answers
within a second, the names of policies.`,
		Example: `  source <(lapse completion bash)
  lapse completion fish > ~/.config/fish/completions/lapse.fish`,
		ValidArgs: []cobra.Completion{"bash", "zsh", "fish", "powershell"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			default:
				return root.GenPowerShellCompletionWithDesc(a.out)
			}
		}),
	}
}

// completionTime bounds how long completion waits for the database.
const completionTime = time.Second

// completeInForce completes the names of policies in force, each once.
func (a *app) completeInForce(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.complete(cmd.Context(), args, func(ctx context.Context, conn *pgx.Conn) ([]string, error) {
		return record.NamesInForce(ctx, conn)
	})
}

// completeOneInForce completes a single policy name from those in force.
func (a *app) completeOneInForce(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeInForce(cmd, args, toComplete)
}

// completeRecorded completes a single policy name from all that were ever recorded.
func (a *app) completeRecorded(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd.Context(), args, func(ctx context.Context, conn *pgx.Conn) ([]string, error) {
		return record.Names(ctx, conn)
	})
}

// complete completes names from the database, except those already typed. After any error it returns none: nobody reads an error
// after pressing the tab key.
func (a *app) complete(
	ctx context.Context, args []string, names func(context.Context, *pgx.Conn) ([]string, error),
) ([]cobra.Completion, cobra.ShellCompDirective) {
	a.log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	conn, _, err := a.openReader(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer database.Close(conn)
	found, err := names(ctx, conn)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	given := map[string]bool{}
	for _, arg := range args {
		given[arg] = true
	}
	var left []cobra.Completion
	for _, name := range found {
		if !given[name] {
			left = append(left, name)
		}
	}
	return left, cobra.ShellCompDirectiveNoFileComp
}

// completes turns off file names as arguments for all commands below cmd, unless a command defines its own completion. It completes flags that
// take policy files or the name of a policy in force.
func (a *app) completes(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	if file := cmd.Flags().Lookup("file"); file != nil && len(file.Annotations) == 0 {
		_ = cmd.MarkFlagFilename("file", "yaml", "yml") // fails if the command lacks the flag
	}
	for _, name := range []string{"now", "policy"} {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, a.completeInForce) // as above
		}
	}
	for _, sub := range cmd.Commands() {
		a.completes(sub)
	}
}
