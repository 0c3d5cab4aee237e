package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/backoff"
	"lapse/internal/config"
	"lapse/internal/status"
	"lapse/schemas"
)

// watchInterval is the interval of --watch.
const watchInterval = 2 * time.Second

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of policies, deletion and audit",
		Long: fmt.Sprintf(`Shows in one screen whether deletion is paused, whether executors and auditor run, how far the replication slot is behind, and for
each policy its state, its last run, how late it is and what holds it back. It reads only the catalog and counts
no rows of a table: "lapse plan" does. If due rows stay it says why, in one of these words, how many and since when:

%s
The exit code is 3 if that needs a person: breaker, held_back, quarantine, guard and clock always, lock and limit once the oldest due row is
past the policy's latitude (a day if it has none); and if an armed policy is late by more than its latitude while no executor runs. So it is if
the slot is missing, lost or nearly lost, or if the auditor waits for a person or has stopped every deletion. With --watch it refreshes every two seconds until Ctrl-C.

With --config given several times it shows a line for each database: how many of its policies delete, how many need a person, the longest
lag, its executors, and how far its audit is behind; below, what needs a person. A database that cannot be read is named, and ends it with 1.`, reasonsHelp()),
		Example: "  lapse status\n  lapse status --watch\n  lapse status --json\n  lapse status --config app.yaml --config billing.yaml",
		Args:    noArgs,
	}
	cmd.RunE = a.untilStopped(new(bool), func(cmd *cobra.Command) error {
		if len(a.configFiles) > 1 {
			if watch {
				return wrongUsage("--watch takes one --config")
			}
			return a.severalStatuses(cmd.Context())
		}
		if watch {
			return a.watchStatus(cmd.Context())
		}
		s, err := a.readStatus(cmd.Context())
		if err != nil {
			return err
		}
		if err := a.showStatus(s); err != nil {
			return err
		}
		if s.NeedsPerson() {
			return errNeedsPerson
		}
		return nil
	})
	cmd.Flags().BoolVar(&watch, "watch", false, "refresh every two seconds, until stopped")
	a.verboseFlag(cmd, "print the tables too")
	a.jsonFlag(cmd)
	return cmd
}

// reasonsHelp explains the reasons for which due rows stay, one per line.
func reasonsHelp() string {
	var b strings.Builder
	for _, reason := range schemas.HeldBackReasons {
		fmt.Fprintf(&b, "  %-12s%s\n", reason, reason.Means())
	}
	return b.String()
}

// readStatus opens a session and reads the status.
func (a *app) readStatus(ctx context.Context) (*status.Status, error) {
	s, err := a.settings()
	if err != nil {
		return nil, err
	}
	return a.statusOfSettings(ctx, s)
}

// statusOf reads the status as the catalog's owner or with the executor's rights.
func (a *app) statusOf(ctx context.Context, conn *pgx.Conn, s *config.Settings) (*status.Status, error) {
	suspended, err := a.restored(ctx, conn, s)
	if err != nil {
		return nil, err
	}
	slot := s.Slot
	if s.Audit != config.AuditRequired {
		slot = ""
	}
	return status.Read(ctx, conn, slot, suspended)
}

// watchStatus shows the status again and again. It waits for a server that goes away meanwhile.
func (a *app) watchStatus(ctx context.Context) error {
	for first := true; ; first = false {
		s, err := a.readStatus(ctx)
		switch {
		case ctx.Err() != nil:
			return errors.Join(err, context.Cause(ctx))
		case err != nil && (first || !passing(err)):
			return err
		case err != nil:
			a.log.Warn("the server does not answer; trying again", "error", err)
		default:
			if a.width != nil && !a.asJSON {
				fmt.Fprint(a.raw(), clearScreen)
			} else if !first && !a.asJSON {
				fmt.Fprintln(a.out)
			}
			err = a.showStatus(s)
			if a.asJSON {
				err = a.answerJSON("lapse status", nil)
			}
			if err != nil {
				return err
			}
		}
		if err := backoff.Sleep(ctx, watchInterval); err != nil {
			return err
		}
	}
}
