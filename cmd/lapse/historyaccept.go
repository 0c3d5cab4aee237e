package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/audit"
	"lapse/audit/history"
	"lapse/internal/config"
	"lapse/internal/setup/site"
	"lapse/planner/database"
)

func (a *app) historyAcceptCommand() *cobra.Command {
	var yes, unwatched bool
	var reason string
	cmd := &cobra.Command{
		Use:   "accept --reason TEXT",
		Short: "Say that the log goes on with this database",
		Long: `Compares like "lapse history". If the log and the database are not one history it shows both, asks, and records that the log
goes on with this database, as the next history. The auditor then tells every consumer, by a rewind record, which events never
happened here, and goes on in the same topics within seconds. Policies that were armed delete again once the auditor has passed
this moment. If there is nothing to accept, it says so and changes nothing.

If the log's last heartbeat is younger than two minutes, another auditor may still run and would be ended: the command watches the log
until it knows. --unwatched skips that, if you know that the other server is gone.

With audit: off it accepts the server, its timeline and system, and the database as they are, whatever an executor remembers.`,
		Example: `  lapse history accept --reason "restored last night's backup, ticket 4711"`,
		Args:    noArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if reason == "" {
				return wrongUsage("say why this database is the one to go on with: --reason TEXT")
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			return a.acceptHistory(cmd.Context(), reason, yes, unwatched)
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", reasonFlag)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&unwatched, "unwatched", false, "do not watch whether another auditor writes the log")
	a.jsonFlag(cmd)
	return cmd
}

// acceptedHistory is the result of `lapse history accept`. Number is 0 if there was nothing to accept.
type acceptedHistory struct {
	Number   int32           `json:"accepted"`
	At       time.Time       `json:"at,omitzero"`
	LogEnd   string          `json:"log_end,omitempty"`
	Fork     string          `json:"fork,omitempty"`
	Restated int             `json:"policies_restated"` // armed policies, which now wait for the auditor
	Outcome  history.Outcome `json:"standing"`          // the outcome before
}

func (a *app) acceptHistory(ctx context.Context, reason string, yes, unwatched bool) error {
	owner, s, err := a.openOwner(ctx, "lapse history")
	if err != nil {
		return err
	}
	defer database.Close(owner.Conn)
	p, err := a.historyAsAuditor(ctx, owner.Conn, s)
	switch {
	case err != nil:
		return err
	case p.Outcome == outcomeRefused:
		return errors.New("nothing was accepted: " + p.Why)
	case p.Outcome == outcomePending:
		return errors.New("nothing was accepted: " + p.verdict() + ": " + p.Next[0])
	case p.Outcome != history.OutcomeBent:
		if a.asJSON {
			return a.printJSON(acceptedHistory{Outcome: p.Outcome})
		}
		_, err := fmt.Fprintf(a.out, "nothing to accept: %s\n", p.verdict())
		return err
	}
	if err := a.confirmAccept(ctx, p, yes); err != nil {
		return err
	}
	if p.found != nil && !unwatched {
		if err := a.watchLog(ctx, s, p.found.LogHeartbeat); err != nil {
			return err
		}
	}
	done, err := writeHistory(ctx, owner, p, reason)
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(done)
	}
	return a.printAccepted(done)
}

// confirmAccept shows both sides and asks for consent.
func (a *app) confirmAccept(ctx context.Context, p *historyView, yes bool) error {
	if !a.asJSON {
		p.Next = nil
		if err := a.printHistory(p); err != nil {
			return err
		}
	}
	return a.confirm(ctx, yes, "go on with this database", "to look: lapse history", "nothing was accepted")
}

// twoHeartbeats is twice the interval of heartbeats: within that time a live auditor has written to the log.
const twoHeartbeats = 2 * time.Minute

// watchLog makes sure that no other auditor writes to the log: if this database is a copy, the original's auditor may still run.
func (a *app) watchLog(ctx context.Context, s *config.Settings, last time.Time) error {
	watch := twoHeartbeats - time.Since(last)
	if last.IsZero() || watch <= 0 {
		return nil
	}
	watch = min(watch, twoHeartbeats)
	a.log.Info("the log's last heartbeat is young: watching whether another auditor writes it", "log", s.Topics.Log,
		"for", watch.Round(time.Second), "not", "--unwatched")
	audited, err := a.auditConfig(s, nil)
	if err != nil {
		return err
	}
	if err := audit.WatchLog(ctx, audited, watch); err != nil {
		return fmt.Errorf("nothing was accepted: %w", err)
	}
	return nil
}

var errHistoryChanged = errors.New("another session has accepted a history in the meantime: look again with lapse history")

// writeHistory writes the next history while it has all gates locked: no batch runs meanwhile, and later batches see it. From then on
// armed policies wait for the auditor. A crash before the commit accepts nothing. After it, the auditor continues and the executor
// notes the position that the auditor must pass.
func writeHistory(ctx context.Context, owner *site.Session, p *historyView, reason string) (*acceptedHistory, error) {
	done := &acceptedHistory{Outcome: p.Outcome}
	highest := int64(p.History.Number)
	if found := p.found; found != nil {
		if !found.ServerStart.Truncate(time.Microsecond).Equal(p.Database.Started.Truncate(time.Microsecond)) {
			return nil, errors.New("the owner's connection and the auditor's lead to two servers: see database: in lapse.yaml")
		}
		highest = max(highest, int64(found.Highest))
		done.LogEnd, done.Fork = found.LogEnd.String(), found.Fork.String()
	}
	restated, err := owner.RestateAll(ctx, "accept the history", func(tx pgx.Tx) (string, error) {
		err := tx.QueryRow(ctx, `
			insert into lapse.history (number, log_end, fork, timeline, system_identifier, reason)
			select $1::bigint + 1, nullif($2, ''), nullif($3, ''), lapse.timeline(), lapse.system_identifier(), $4
			 where (select max(n.number) from lapse.history n) = $5
			returning number, at`, highest, done.LogEnd, done.Fork, reason, p.History.Number).Scan(&done.Number, &done.At)
		if errors.Is(err, pgx.ErrNoRows) {
			return "", errHistoryChanged
		}
		if err != nil || p.found == nil {
			return "", err
		}
		return fmt.Sprintf("restated: history %d accepted", done.Number), nil
	})
	done.Restated = restated
	if err != nil {
		return nil, err
	}
	return done, nil
}

func (a *app) printAccepted(done *acceptedHistory) error {
	fmt.Fprintf(a.out, "accepted: history %d, at %s\n", done.Number, instant(&done.At))
	if done.LogEnd == "" {
		return nil
	}
	fmt.Fprintf(a.out, "the auditor goes on within seconds if it runs, and tells consumers that nothing above %s happened\n", done.Fork)
	if done.Restated > 0 {
		fmt.Fprintf(a.out, "%s: armed, and deleting again once the auditor has read past this moment\n", counted(done.Restated, "policy"))
	}
	return nil
}
