package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"lapse/audit/evidence"
	"lapse/internal/config"
	"lapse/planner/database"
	"lapse/schemas"
)

// destroyedKey is the result of `lapse keys destroy`.
type destroyedKey struct {
	Epoch   schemas.Epoch `json:"epoch"`
	Remains []string      `json:"remains"` // what can still reveal rows of the month
}

// remains lists what the destruction of a month's key does not reach.
var remains = []string{
	"copies of the key file: on other machines that audit, and in backups; replace or remove them",
	"receipts that were given: each opens its row still",
}

func (a *app) keysDestroyCommand() *cobra.Command {
	var month string
	var yes bool
	cmd := &cobra.Command{
		Use:   "destroy --epoch MONTH",
		Short: "Destroy a month's key, so that no row of that month can be linked to the log",
		Long: `Overwrites the month's key in the file of the key named rows. Nobody can then tell from the log and the topic of commitments which rows were
deleted in that month, nor make a receipt for one; every root, proof and checkpoint verifies as before.

It is refused while something still names those rows: events of the month in the topics, or of an earlier one, batches of it in the ledger, or an
auditor that has not come past it. Copies of the key file and receipts that were given still open rows: the result says so.

Give the changed file to every machine that audits, and start the auditors again: the log then says that the key was destroyed.`,
		Example: `  lapse keys destroy --epoch 2025-02`,
		Args:    needsFlag("--epoch"),
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) error {
		epoch, err := schemas.ParseEpoch(month)
		if err != nil {
			return wrongUsage("--epoch: %v", err)
		}
		s, err := a.settings()
		if err != nil {
			return err
		}
		if err := a.mayDestroy(cmd.Context(), s, epoch, time.Now()); err != nil {
			return invalid(err)
		}
		err = a.confirm(cmd.Context(), yes, fmt.Sprintf("destroy the key of %s in %s, for ever", epoch, s.Keys.Place(config.RowsKey)),
			"nothing was destroyed", "nothing was destroyed")
		if err != nil {
			return err
		}
		if err := s.Keys.DestroyMonth(epoch); err != nil {
			return invalid(err)
		}
		if a.asJSON {
			return a.printJSON(destroyedKey{epoch, remains})
		}
		_, err = fmt.Fprintf(a.out, "the key of %s is destroyed in %s; start the auditors again with this file, so that the log says so\n", epoch, s.Keys.Place(config.RowsKey))
		for _, what := range remains {
			if err == nil {
				_, err = fmt.Fprintf(a.out, "rows of that month are still opened by %s\n", what)
			}
		}
		return err
	})
	cmd.Flags().StringVar(&month, "epoch", "", "the `month`, such as 2025-02")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	a.jsonFlag(cmd)
	return cmd
}

// mayDestroy returns an error while anything still names rows of a month.
func (a *app) mayDestroy(ctx context.Context, s *config.Settings, epoch schemas.Epoch, now time.Time) error {
	end := epoch.Next().Begin()
	if now.Before(end) {
		return fmt.Errorf("%s is not over: rows are still committed to with its key", epoch)
	}
	if err := a.ledgerHasNone(ctx, s, epoch); err != nil {
		return err
	}
	keys, err := s.Keys.EpochKeys()
	if err != nil {
		return err
	}
	if keys[epoch] == nil {
		return fmt.Errorf("%s: %w", epoch, config.ErrNoEpoch)
	}
	if s.Audit == config.AuditOff {
		return errAuditOff
	}
	if err := s.RequireSink(); err != nil {
		return err
	}
	c := &consumer{app: a, settings: s}
	if c.client, err = a.newClient(s); err != nil {
		return err
	}
	defer c.client.Close()
	for _, topic := range []string{s.Topics.System, s.Topics.User} {
		if err := c.noneBefore(ctx, topic, end); err != nil {
			return err
		}
	}
	return c.logIsPast(ctx, end)
}

// noneBefore returns an error while a topic has a record from before an instant.
func (c *consumer) noneBefore(ctx context.Context, topic string, end time.Time) error {
	readers, err := c.partitionsOf(ctx, topic)
	if err != nil {
		return err
	}
	for _, l := range readers {
		for {
			record, _, err := c.read(ctx, l)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if record.IsFence() {
				continue
			}
			if record.Time.Before(end) {
				return fmt.Errorf("%s/%d still has events of %s, which name rows: wait until the topic's retention has removed them", topic, l.partition,
					record.Time.UTC().Format(time.DateOnly))
			}
			break
		}
	}
	return nil
}

// logIsPast returns an error while the auditor may still have to commit to rows from before an instant.
func (c *consumer) logIsPast(ctx context.Context, end time.Time) error {
	past := false
	err := c.client.Backward(ctx, c.settings.Topics.Log, 0, -1, func(rec *schemas.Record, _ int64) (bool, error) {
		if evidence.LogRecordIn(rec) == nil {
			return true, nil
		}
		past = !rec.Time.Before(end)
		return false, nil
	})
	if err == nil && !past {
		err = errors.New("the log has not come past that month: an auditor may still have to commit to rows of it")
	}
	return c.silence(err)
}

// ledgerHasNone returns an error while the ledger has batches of a month.
func (a *app) ledgerHasNone(ctx context.Context, s *config.Settings, epoch schemas.Epoch) error {
	conn, err := a.open(ctx, s, session{command: "lapse keys destroy", to: s.Database.Executor, role: s.Roles.Executor})
	if err != nil {
		return err
	}
	defer database.Close(conn)
	var has bool
	err = conn.QueryRow(ctx, `select exists (select from lapse.batch where started_at >= $1 and started_at < $2)`, epoch.Begin(), epoch.Next().Begin()).Scan(&has)
	if err == nil && has {
		err = fmt.Errorf("the ledger still has batches of %s: they go after ledger_days", epoch)
	}
	return err
}
