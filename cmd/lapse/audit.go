package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"lapse/audit"
	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/internal/config"
	"lapse/replication"
	"lapse/schemas"
)

func (a *app) auditCommand() *cobra.Command {
	var once, wait bool
	var to string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Publish what was deleted and keep the log, until stopped",
		Long: `Runs the auditor: it reads the replication slot, tells system, user and unverified deletes apart, and puts each into
its topic once. With --once it reads to the current end of the write-ahead log and exits. One auditor runs per database; a
second one waits until the first has ended; with --once it waits only with --wait.

With --to the events go to a file, or with --to - to standard output, one line each, as they would be in the topics. They are read from a
temporary copy of the slot: Kafka loses nothing and is not needed, and an auditor may run at the same time. An existing file is
continued after its last whole line, as long as the slot has not moved on past it.`,
		Example: `  lapse audit --once
  lapse audit --http 127.0.0.1:7433
  lapse audit --once --to -`,
		Args: noArgs,
	}
	cmd.RunE = a.untilStopped(&once, func(cmd *cobra.Command) error {
		if a.asJSON && !once {
			return wrongUsage("--json needs --once: without it there is no result to print")
		}
		s, err := a.settings()
		if err != nil {
			return err
		}
		if to != "" {
			if a.overrides.HTTP != "" {
				return wrongUsage("--to and --http exclude each other")
			}
			return a.copyEvents(cmd.Context(), s, to, once)
		}
		if wait && !once {
			return wrongUsage("--wait needs --once: without it a second auditor waits anyway")
		}
		auditor, err := a.newAuditor(cmd.Context(), s, once)
		if err != nil {
			return err
		}
		if once && !wait {
			auditor.config.SlotPatience = slotPatience
			a.log.Info("reading to the current end of the log; if another auditor has the slot, this waits 5 s for it", "slot", s.Slot)
		}
		web, err := a.webPart(cmd.Context(), a.overrides.HTTP, []readiness{auditor.readiness()}, auditor.Collectors(), nil)
		if err != nil {
			return err
		}
		if err := runParts(cmd.Context(), a.log, append([]part{auditor.part()}, web...)...); err != nil || !once {
			return besideAnother(err)
		}
		return auditor.printReached(cmd.Context())
	})
	cmd.Flags().BoolVar(&once, "once", false, "read to the current end of the write-ahead log and exit")
	cmd.Flags().BoolVar(&wait, "wait", false, "with --once: wait until a running auditor has ended")
	cmd.Flags().StringVar(&to, "to", "", "write events to this `file`, or - for standard output, instead of Kafka")
	cmd.Flags().StringVar(&a.overrides.HTTP, "http", "", "serve /healthz, /readyz and /metrics at this `address` (default: not at all)")
	a.jsonFlag(cmd)
	return cmd
}

// slotPatience is how long --once waits for the slot without --wait: longer than a server takes to notice that an auditor is gone.
const slotPatience = 5 * time.Second

// besideAnother explains what a running auditor means for --once.
func besideAnother(err error) error {
	if errors.Is(err, replication.ErrSlotActive) {
		return fmt.Errorf("%w: another auditor is running, and publishes all of this; --wait waits until it has ended", err)
	}
	return err
}

// auditor is the audit of one database, and how many copies its topics get.
type auditor struct {
	*app
	config  audit.Config
	copies  bool // the number of copies is not configured: ask the brokers
	running atomic.Pointer[audit.Auditor]
}

var errAuditOff = errors.New("lapse.yaml says audit: off: there is nothing to audit; set audit: required and run lapse init")

// newAuditor makes the auditor from the settings and from what init recorded in the database.
func (a *app) newAuditor(ctx context.Context, s *config.Settings, once bool) (*auditor, error) {
	if s.Audit != config.AuditOff {
		if err := s.RequireSink(); err != nil {
			return nil, err
		}
	}
	login, err := a.auditorLogin(ctx, s, once)
	if err != nil {
		return nil, err
	}
	auditor := &auditor{app: a, copies: s.Folder == "" && s.Topics.Create && s.Topics.Replication == 0}
	if auditor.config, err = a.auditConfig(s, login.AfterConnect); err != nil {
		return nil, err
	}
	auditor.config.Database, auditor.config.Once, auditor.config.Metrics = audit.NewDatabase(login), once, audit.NewMetrics()
	auditor.config.Database.Declared = &evidence.Declared{WALArchive: s.Declared.WALArchive, Backups: s.Declared.Backups}
	_, err = audit.New(auditor.config)
	return auditor, invalid(err)
}

// auditorLogin configures the auditor's SQL connections, to a database that was installed with the keys of the settings.
func (a *app) auditorLogin(ctx context.Context, s *config.Settings, once bool) (*pgx.ConnConfig, error) {
	if s.Audit == config.AuditOff {
		return nil, invalid(errAuditOff)
	}
	// All keys are required, although not all are used yet: otherwise a running auditor would have to stop when it needs one.
	for _, name := range config.KeyNames() {
		if _, err := s.Keys.Load(name); err != nil {
			return nil, invalid(err)
		}
	}
	login, err := a.connection(s, s.Database.Auditor, s.Roles.Auditor, "lapse audit")
	if err != nil {
		return nil, err
	}
	installed, err := a.awaitInstallation(ctx, s, session{command: "lapse", to: s.Database.Auditor, role: s.Roles.Auditor}, once)
	if err != nil {
		return nil, err
	}
	return login, checkKeys(s, installed, config.KeyNames()...)
}

// auditConfig makes the auditor's configuration from the settings, as far as reading needs it.
func (a *app) auditConfig(s *config.Settings, admit pgconn.AfterConnectFunc) (audit.Config, error) {
	var brokers kafka.Config
	if s.Folder == "" {
		var err error
		if brokers, err = a.kafkaConfig(s); err != nil {
			return audit.Config{}, err
		}
	}
	c, err := a.slotConfig(s, admit)
	c.Kafka, c.Folder = brokers, s.Folder
	if err == nil {
		err = a.showConfig(s, &c)
	}
	return c, err
}

// slotConfig is auditConfig without the brokers.
func (a *app) slotConfig(s *config.Settings, admit pgconn.AfterConnectFunc) (audit.Config, error) {
	tag, err := s.Keys.Load(config.TagKey)
	if err != nil {
		return audit.Config{}, invalid(err)
	}
	hash, err := s.Keys.Load(config.HashKey)
	if err != nil {
		return audit.Config{}, invalid(err)
	}
	sign, err := s.Keys.Load(config.LogKey)
	if err != nil {
		return audit.Config{}, invalid(err)
	}
	former, err := s.Keys.Former(config.HashKey)
	if err != nil {
		return audit.Config{}, invalid(err)
	}
	formerSign, err := s.Keys.Former(config.LogKey)
	if err != nil {
		return audit.Config{}, invalid(err)
	}
	rows, err := s.Keys.EpochKeys()
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("%s has no keys of months: run lapse keys rotate, and give the file to every machine that audits", s.Keys.Place(config.RowsKey))
	}
	if err != nil {
		return audit.Config{}, invalid(err)
	}
	c := audit.Config{
		Stream: replication.StreamConfig{ConnString: string(s.Database.Auditor), Slot: s.Slot, Admit: admit, Logger: a.log},
		System: s.Topics.System, User: s.Topics.User, Log: s.Topics.Log,
		Partitions: s.Topics.Partitions, Replication: s.Topics.Replication, Create: s.Topics.Create,
		Retention: s.Topics.Retention,
		Safe:      s.Topics.Replication > 0, // the user asked for it
		Keys:      []schemas.Key{tag}, HashKey: hash, FormerHashKeys: former, Format: string(s.Format),
		LogKey: sign, FormerLogKeys: formerSign, LogName: s.LogName,
		Proofs: s.Topics.Proofs, ProofRetention: s.Proofs, RowsKeys: rows,
		FailoverTolerance: s.FailoverTolerance, Logger: a.log,
	}
	if s.FailoverTolerance == 0 {
		c.FailoverTolerance = -1 // in the audit's configuration 0 means the default
	}
	return c, nil
}

// Run audits until ctx ends, or --once is done.
func (a *auditor) Run(ctx context.Context) error {
	defer a.config.Database.Close()
	if a.copies {
		n, err := a.app.copies(ctx, a.config.Kafka)
		if err != nil {
			return nil // stopped before it began
		}
		a.config.Replication = n
	}
	running, err := audit.New(a.config)
	if err != nil {
		return err
	}
	a.running.Store(running)
	return running.Run(ctx)
}

// Ready returns nil while the audit does its job.
func (a *auditor) Ready() error {
	if running := a.running.Load(); running != nil {
		return running.Ready()
	}
	return errors.New("no broker has answered yet")
}

// awaits says what the auditor waits for; "" once log and database have been compared, or another auditor is at work, and without an audit.
func (a *auditor) awaits() string {
	if a == nil {
		return ""
	}
	if running := a.running.Load(); running != nil && running.Compared() {
		return ""
	}
	if err := a.Ready(); err != nil {
		return err.Error()
	}
	return "the comparison" // it has just ended
}

// readiness is the auditor's readiness, with a remark if it stands by.
func (a *auditor) readiness() readiness {
	return readiness{"audit", a.Ready, func() string {
		if running := a.running.Load(); running != nil {
			return running.StandsBy()
		}
		return ""
	}}
}

// Collectors are the audit's metrics.
func (a *auditor) Collectors() []prometheus.Collector {
	return append(a.config.Metrics.Collectors(), a.config.Database.SlotLag(a.config.Stream.Slot))
}

// auditStop is longer than the audit takes to drain and to close its connections.
const auditStop = 15 * time.Second

func (a *auditor) part() part { return part{name: "audit", run: a.Run, stop: auditStop} }

// auditedTo is the result of `lapse audit --once`. If events were copied, From and Events say which.
type auditedTo struct {
	From    *string `json:"from"`
	Reached string  `json:"reached"`
	Events  *int    `json:"events"`
}

// printReached prints the position that --once reached, unless it was stopped before.
func (a *auditor) printReached(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	reached := a.running.Load().Until()
	if a.asJSON {
		return a.printJSON(auditedTo{Reached: reached.String()})
	}
	_, err := fmt.Fprintf(a.out, "everything up to %s is published\n", reached)
	return err
}
