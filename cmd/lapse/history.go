package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"lapse/audit"
	"lapse/audit/evidence"
	"lapse/internal/backoff"
	"lapse/internal/config"
	"lapse/replication"
	"lapse/schemas"
)

func (a *app) historyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show where the log and the database stand to each other",
		Long: `A database's past can change: a snapshot is restored, a clone is started, a standby is promoted. The log remembers what was. This
compares the two, as the auditor does each time it starts, and says what the log has and the database has not, and what to type.
It changes nothing. The exit code is 3 if a person has to decide.

While an auditor reads the slot nobody else can compare; an auditor that reads has compared. Where the database is not the log's,
the auditor holds the slot for moments only: this waits for them, up to half a minute.`,
		Example: `  lapse history
  lapse history accept --reason "restored last night's backup, ticket 4711"`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(cmd, args)
			}
			return a.does(func(cmd *cobra.Command, _ []string) error { return a.showHistory(cmd.Context(), asJSON) })(cmd, args)
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.AddCommand(a.historyAcceptCommand())
	return cmd
}

// What `lapse history` finds beyond what the audit's check does.
const (
	standingRead    audit.Standing = "read"    // an auditor reads the slot, and has passed the check
	standingChecked audit.Standing = "checked" // an auditor has the slot, and has not said yet what it found
	standingRefused audit.Standing = "refused" // the audit cannot start, for another reason than its past
)

// pasts is where the log and the database stand to each other.
type pasts struct {
	Standing audit.Standing `json:"standing"`
	Why      string         `json:"why,omitempty"`
	History  historyRow     `json:"history"` // in force in the database
	Database databaseSide   `json:"database"`
	Slot     *slotSide      `json:"slot,omitempty"`
	Log      *logSide       `json:"log,omitempty"`
	Fork     string         `json:"fork,omitempty"` // up to where both are the same
	Lost     *lostSide      `json:"lost,omitempty"` // what the log has above it
	Next     []string       `json:"next"`

	found *audit.Examination // nil where nothing was compared
}

// historyRow is the row of lapse.history that is in force.
type historyRow struct {
	Number   int32     `json:"number"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
	Timeline int32     `json:"timeline"` // of the server on which it was accepted, and the next one too
	System   string    `json:"system_identifier"`
}

// databaseSide is what the server says of itself.
type databaseSide struct {
	Timeline int32       `json:"timeline"`
	System   string      `json:"system_identifier"`
	Written  schemas.LSN `json:"-"`
	Started  time.Time   `json:"server_started"`
	Beat     *time.Time  `json:"last_heartbeat,omitempty"`
	Fresh    bool        `json:"-"` // an auditor has beaten lately, on this server as it runs and in this history

	Reaches string `json:"reaches"`
}

// slotSide is what the server says of the slot.
type slotSide struct {
	Name  string `json:"name"`
	At    string `json:"at,omitempty"` // confirmed up to there; empty if the slot does not exist
	State string `json:"state"`

	reader   int32 // the process that streams from it; 0 for none
	recorded bool  // it is the one that init has made last
}

// logSide is what the log says of itself.
type logSide struct {
	Topic   string     `json:"topic"`
	Reaches string     `json:"reaches,omitempty"` // empty if there is no log yet
	Beat    *time.Time `json:"last_heartbeat,omitempty"`
}

// lostSide is what the log has and the database has not.
type lostSide struct {
	Transactions uint64            `json:"transactions"`
	Events       map[string]uint64 `json:"events"` // by cause
	Beats        uint64            `json:"heartbeats"`
}

func (a *app) showHistory(ctx context.Context, asJSON bool) error {
	owner, s, err := a.openOwner(ctx, "lapse history")
	if err != nil {
		return err
	}
	defer closeConn(owner.Conn)
	p, err := a.historyOf(ctx, owner.Conn, s)
	if err != nil {
		return err
	}
	if asJSON {
		err = a.printJSON(p)
	} else {
		err = a.printPasts(p)
	}
	if err == nil && p.needsPerson() {
		err = errNeedsPerson
	}
	return err
}

// needsPerson says whether nothing goes on without a person's word.
func (p *pasts) needsPerson() bool {
	return p.Standing == audit.StandingBent || p.Standing == standingRefused
}

// historyOf is comparePasts for commands that refuse a superuser's login.
func (a *app) historyOf(ctx context.Context, conn *pgx.Conn, s *config.Settings) (*pasts, error) {
	auditor, err := a.connection(s, s.Database.Auditor, s.Roles.Auditor, "lapse history")
	if err != nil {
		return nil, err
	}
	return a.comparePasts(ctx, conn, s, auditor.AfterConnect)
}

// comparePasts looks at both sides. It writes nothing and confirms nothing.
func (a *app) comparePasts(ctx context.Context, conn *pgx.Conn, s *config.Settings, admit pgconn.AfterConnectFunc) (*pasts, error) {
	p := &pasts{Next: []string{}}
	if err := p.readDatabase(ctx, conn); err != nil {
		return nil, err
	}
	if s.Audit == config.AuditOff {
		p.compareServer()
		return p, nil
	}
	c, err := a.auditConfig(s, admit)
	if err != nil {
		return nil, err
	}
	c.Stream.Logger = nil // what it says at info is no news here
	if p.Log, err = a.readLogSide(ctx, s); err != nil {
		return nil, err
	}
	if err := p.examine(ctx, conn, c); err != nil {
		return p, err
	}
	if p.Slot.At != "" && !p.Slot.recorded {
		p.Standing, p.Why = standingRefused, fmt.Sprintf("slot %q is not on record: a publication had to be made again, past which it "+
			"cannot be read, or an init --new-slot did not end; lapse init --new-slot makes another, and the log goes on in the same "+
			"topics, with a gap", s.Slot)
	}
	p.advise()
	return p, nil
}

// readDatabase asks the server.
func (p *pasts) readDatabase(ctx context.Context, conn *pgx.Conn) error {
	var standby bool
	if err := conn.QueryRow(ctx, `select pg_is_in_recovery()`).Scan(&standby); err != nil {
		return fmt.Errorf("look at the server: %w", err)
	}
	if standby {
		return errors.New("this server is a standby: point database: in lapse.yaml at the primary")
	}
	h, d := &p.History, &p.Database
	err := conn.QueryRow(ctx, `
		select n.number, n.at, n.by, n.reason, n.timeline, n.system_identifier,
		       lapse.timeline(), lapse.system_identifier(), pg_current_wal_flush_lsn()::text, pg_postmaster_start_time(),
		       (select max(b.at) from lapse.heartbeat b),
		       exists (select from lapse.heartbeat b
		                where b.at between clock_timestamp() - interval '2 minutes' and clock_timestamp() + interval '2 minutes'
		                  and b.history = n.number and b.timeline = lapse.timeline() and b.server_start = pg_postmaster_start_time())
		  from lapse.history n
		 order by n.number desc
		 limit 1`).
		Scan(&h.Number, &h.At, &h.By, &h.Reason, &h.Timeline, &h.System,
			&d.Timeline, &d.System, &d.Written, &d.Started, &d.Beat, &d.Fresh)
	if err != nil {
		return fmt.Errorf("read the history in force: %w", err)
	}
	d.Reaches = evidence.Reach{
		History: schemas.History(h.Number), Timeline: schemas.Timeline(d.Timeline), LSN: d.Written,
	}.String()
	return nil
}

// compareServer is the whole comparison where there is no log: is the server the one that was accepted last?
func (p *pasts) compareServer() {
	p.Standing = audit.StandingStraight
	if p.History.Timeline == p.Database.Timeline && p.History.System == p.Database.System {
		return
	}
	p.Standing = audit.StandingBent
	p.Why = fmt.Sprintf("this server is on timeline %d of system %s, and the one that was accepted last on timeline %d of system %s",
		p.Database.Timeline, p.Database.System, p.History.Timeline, p.History.System)
	p.adviseToAccept()
}

const (
	// slotPatience is how long the slot is tried for while somebody has it. The auditor of a database that is not the log's
	// tries it for a moment every five seconds.
	slotPatience = 20 * time.Second
	// slotHeld is for how long one process must have had it, to be an auditor that reads.
	slotHeld  = 8 * time.Second
	slotPause = 250 * time.Millisecond
)

// examine makes the auditor's check, as soon as nobody else has the slot, or finds that an auditor reads.
func (p *pasts) examine(ctx context.Context, conn *pgx.Conn, c audit.Config) error {
	began, since, reader := time.Now(), time.Now(), int32(0)
	for {
		if err := p.readSlot(ctx, conn, c.Stream.Slot); err != nil {
			return err
		}
		if p.Slot.reader == 0 || p.Slot.reader != reader {
			reader, since = p.Slot.reader, time.Now()
		}
		found, err := audit.Examine(ctx, c)
		switch {
		case err == nil:
			p.take(found)
			return nil
		case !errors.Is(err, replication.ErrSlotActive):
			return p.refuse(err)
		case p.Database.Fresh && time.Since(since) > slotHeld:
			p.Standing = standingRead
			return nil
		case time.Since(began) > slotPatience:
			p.Standing = standingChecked
			if p.Database.Fresh {
				p.Standing = standingRead
			}
			return nil
		}
		if err := backoff.Sleep(ctx, slotPause); err != nil {
			return err
		}
	}
}

func (p *pasts) readSlot(ctx context.Context, conn *pgx.Conn, name string) error {
	state, err := replication.ReadSlot(ctx, conn, name)
	if err != nil {
		return err
	}
	p.Slot = &slotSide{Name: name, State: "does not exist", reader: state.ActivePID}
	if err := conn.QueryRow(ctx, `select i.slot_start is not null from lapse.installation i`).Scan(&p.Slot.recorded); err != nil {
		return fmt.Errorf("read the installation: %w", err)
	}
	switch {
	case !state.Exists:
	case state.Lost():
		p.Slot.State = "lost"
	default:
		p.Slot.At, p.Slot.State = state.Confirmed.String(), "there"
	}
	return nil
}

// take takes over what the check found.
func (p *pasts) take(found *audit.Examination) {
	p.found, p.Standing, p.Why = found, found.Standing, found.Why
	if found.Fork != (evidence.Reach{}) {
		p.Fork = found.Fork.String()
	}
	if found.Standing == audit.StandingBent {
		p.Lost = &lostSide{Transactions: found.LostTransactions, Events: found.LostEvents, Beats: found.LostBeats}
	}
}

// refuse takes what a person must put right for the result; anything else went wrong.
func (p *pasts) refuse(err error) error {
	var refusal *audit.RefusalError
	var slot *replication.SlotError
	var publication *replication.PublicationError
	if !errors.As(err, &refusal) && !errors.As(err, &slot) && !errors.As(err, &publication) {
		return err
	}
	p.Standing, p.Why = standingRefused, err.Error()
	return nil
}
