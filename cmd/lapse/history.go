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
	"lapse/audit/history"
	"lapse/executor/guard"
	"lapse/executor/state"
	"lapse/internal/backoff"
	"lapse/internal/config"
	"lapse/planner/database"
	"lapse/replication"
	"lapse/schemas"
)

func (a *app) historyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show whether the log and the database agree",
		Long: `A database's past can change: a snapshot is restored, a clone is started, a standby is promoted. The log remembers what was. This
compares the two, as the auditor does each time it starts, and says what the log has that the database lacks, and what to type.
It changes nothing. The exit code is 3 if a person has to decide.

While an auditor reads the slot nobody else can compare; a reading auditor has compared already. If the database is not the log's,
the auditor holds the slot only briefly, and this command waits for it, up to half a minute.`,
		Example: `  lapse history
  lapse history accept --reason "restored last night's backup, ticket 4711"`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(cmd, args)
			}
			return a.does(func(cmd *cobra.Command, _ []string) error { return a.showHistory(cmd.Context()) })(cmd, args)
		},
	}
	a.jsonFlag(cmd)
	cmd.AddCommand(a.historyAcceptCommand())
	return cmd
}

// The outcomes of `lapse history` besides those of the history check.
const (
	outcomeRead    history.Outcome = "read"    // an auditor reads the slot and has passed the check
	outcomePending history.Outcome = "checked" // an auditor has the slot and may still be checking
	outcomeRefused history.Outcome = "refused" // the audit cannot start, for a reason other than its history
)

// historyView is the result of `lapse history`: both sides, and the outcome of the comparison.
type historyView struct {
	Outcome  history.Outcome `json:"standing"`
	Why      string          `json:"why,omitempty"`
	History  historyRow      `json:"history"` // the one in force in the database
	Database databaseSide    `json:"database"`
	Slot     *slotSide       `json:"slot,omitempty"`
	Log      *logSide        `json:"log,omitempty"`
	Fork     string          `json:"fork,omitempty"` // the last position that both share
	Lost     *lostSide       `json:"lost,omitempty"` // what the log has after it
	Next     []string        `json:"next"`

	found *history.Result // nil if nothing was compared
}

// historyRow is the row of lapse.history that is in force.
type historyRow struct {
	Number   int32     `json:"number"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
	Timeline int32     `json:"timeline"` // the timeline of the server that accepted it; the next one is accepted too
	System   string    `json:"system_identifier"`
}

// databaseSide is the server's state.
type databaseSide struct {
	Timeline  int32       `json:"timeline"`
	System    string      `json:"system_identifier"`
	Written   schemas.LSN `json:"-"`
	Started   time.Time   `json:"server_started"`
	Heartbeat *time.Time  `json:"last_heartbeat,omitempty"`
	Fresh     bool        `json:"-"` // this server wrote a heartbeat recently, since its start and in this history

	Reaches string `json:"reaches"`
}

// slotSide is the slot's state.
type slotSide struct {
	Name  string `json:"name"`
	At    string `json:"at,omitempty"` // the confirmed position; empty if the slot does not exist
	State string `json:"state"`

	reader   int32 // the process that streams from it; 0 if none does
	recorded bool  // init made this slot last
}

// logSide is the log's state.
type logSide struct {
	Topic     string     `json:"topic"`
	Reaches   string     `json:"reaches,omitempty"` // empty if there is no log yet
	Heartbeat *time.Time `json:"last_heartbeat,omitempty"`
}

// lostSide is what the log has and the database lacks.
type lostSide struct {
	Transactions uint64            `json:"transactions"`
	Events       map[string]uint64 `json:"events"` // by cause
	Heartbeats   uint64            `json:"heartbeats"`
}

func (a *app) showHistory(ctx context.Context) error {
	owner, s, err := a.openOwner(ctx, "lapse history")
	if err != nil {
		return err
	}
	defer database.Close(owner.Conn)
	p, err := a.historyAsAuditor(ctx, owner.Conn, s)
	if err != nil {
		return err
	}
	if a.asJSON {
		err = a.printJSON(p)
	} else {
		err = a.printHistory(p)
	}
	if err == nil && p.needsPerson() {
		err = errNeedsPerson
	}
	return err
}

// needsPerson reports whether a person must decide.
func (p *historyView) needsPerson() bool {
	return p.Outcome == history.OutcomeBent || p.Outcome == outcomeRefused
}

// historyAsAuditor is compareHistory with the auditor's login, which must not be a superuser's.
func (a *app) historyAsAuditor(ctx context.Context, conn *pgx.Conn, s *config.Settings) (*historyView, error) {
	auditor, err := a.connection(s, s.Database.Auditor, s.Roles.Auditor, "lapse history")
	if err != nil {
		return nil, err
	}
	return a.compareHistory(ctx, conn, s, auditor.AfterConnect)
}

// compareHistory reads and compares both sides. It writes nothing and confirms nothing.
func (a *app) compareHistory(ctx context.Context, conn *pgx.Conn, s *config.Settings, admit pgconn.AfterConnectFunc) (*historyView, error) {
	p := &historyView{Next: []string{}}
	if err := p.readDatabase(ctx, conn); err != nil {
		return nil, err
	}
	if s.Audit == config.AuditOff {
		memory, err := a.memory(s)
		if err != nil {
			return nil, err
		}
		return p, p.compareServer(ctx, conn, memory)
	}
	c, err := a.auditConfig(s, admit)
	if err != nil {
		return nil, err
	}
	c.Stream.Logger = nil // its info lines do not help here
	if p.Log, err = a.readLogSide(ctx, s); err != nil {
		return nil, err
	}
	wait := func(reader int32) {
		a.log.Info("a process reads the slot; watching for up to 20 s whether it is an auditor that goes on", "slot", s.Slot, "pid", reader)
	}
	if err := p.check(ctx, conn, c, wait); err != nil {
		return p, err
	}
	if p.Slot.At != "" && !p.Slot.recorded {
		p.Outcome, p.Why = outcomeRefused, fmt.Sprintf("slot %q is not on record: a publication had to be made again, past which it "+
			"cannot be read, or an init --new-slot did not end; lapse init --new-slot makes another, and the log goes on in the same "+
			"topics, with a gap", s.Slot)
	}
	p.advise()
	return p, nil
}

// readDatabase reads the database's state.
func (p *historyView) readDatabase(ctx context.Context, conn *pgx.Conn) error {
	var standby bool
	if err := conn.QueryRow(ctx, `select pg_is_in_recovery()`).Scan(&standby); err != nil {
		return fmt.Errorf("check the server: %w", err)
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
			&d.Timeline, &d.System, &d.Written, &d.Started, &d.Heartbeat, &d.Fresh)
	if err != nil {
		return fmt.Errorf("read the history in force: %w", err)
	}
	d.Reaches = evidence.Reach{
		History: schemas.History(h.Number), Timeline: schemas.Timeline(d.Timeline), LSN: d.Written,
	}.String()
	return nil
}

// compareServer compares without a log: is this the server that was accepted last, and is its database the one that the executors
// remember? The executors' own answer counts too, because this command may run where their memory is not available.
func (p *historyView) compareServer(ctx context.Context, conn *pgx.Conn, memory *state.Folder) error {
	restored, err := guard.Restored(ctx, conn, memory)
	if err != nil {
		return err
	}
	var said string
	err = conn.QueryRow(ctx, `
		select coalesce((select w.reason from lapse.worker w
		                  where w.policy_id = 0 and w.state = 'stopped' and w.at > $1
		                    and w.at > clock_timestamp() - interval '2 minutes' limit 1), '')`, p.History.At).Scan(&said)
	if err != nil {
		return fmt.Errorf("read what executors say: %w", err)
	}
	switch d, h := &p.Database, &p.History; {
	case h.Timeline != d.Timeline || h.System != d.System:
		p.Why = fmt.Sprintf("this server is on timeline %d of system %s, and the one that was accepted last on timeline %d of system %s",
			d.Timeline, d.System, h.Timeline, h.System)
	case restored != nil:
		p.Why = restored.Detail
	case said != "":
		p.Why = said
	default:
		p.Outcome = history.OutcomeStraight
		return nil
	}
	p.Outcome = history.OutcomeBent
	p.adviseToAccept()
	return nil
}

const (
	// busySlotWait is how long the check retries while another process has the slot. An auditor whose database is not the log's holds it for a
	// moment every five seconds.
	busySlotWait = 20 * time.Second
	// slotHeld is how long one process must hold the slot to count as an auditor that reads.
	slotHeld  = 8 * time.Second
	slotPause = 250 * time.Millisecond
)

// check runs the history check as soon as the slot is free, or finds that an auditor reads it. It passes wait the process that it waits for.
func (p *historyView) check(ctx context.Context, conn *pgx.Conn, c audit.Config, wait func(reader int32)) error {
	began, since, reader, told := time.Now(), time.Now(), int32(0), int32(-1)
	for {
		if err := p.readSlot(ctx, conn, c.Stream.Slot); err != nil {
			return err
		}
		if p.Slot.reader == 0 || p.Slot.reader != reader {
			reader, since = p.Slot.reader, time.Now()
		}
		found, err := audit.CheckHistory(ctx, c)
		switch {
		case err == nil:
			p.setResult(found)
			return nil
		case !errors.Is(err, replication.ErrSlotActive):
			return p.setRefusal(err)
		case p.Database.Fresh && time.Since(since) > slotHeld:
			p.Outcome = outcomeRead
			return nil
		case time.Since(began) > busySlotWait:
			p.Outcome = outcomePending
			if p.Database.Fresh {
				p.Outcome = outcomeRead
			}
			return nil
		}
		if reader != told {
			told = reader
			wait(reader)
		}
		if err := backoff.Sleep(ctx, slotPause); err != nil {
			return err
		}
	}
}

func (p *historyView) readSlot(ctx context.Context, conn *pgx.Conn, name string) error {
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

// setResult sets the result of the check.
func (p *historyView) setResult(found *history.Result) {
	p.found, p.Outcome, p.Why = found, found.Outcome, found.Why
	if found.Fork != (evidence.Reach{}) {
		p.Fork = found.Fork.String()
	}
	if found.Outcome == history.OutcomeBent {
		p.Lost = &lostSide{Transactions: found.LostTransactions, Events: found.LostEvents, Heartbeats: found.LostHeartbeats}
	}
}

// setRefusal sets what a person must fix. It returns any other error unchanged.
func (p *historyView) setRefusal(err error) error {
	var refusal *history.RefusalError
	var slot *replication.SlotError
	var publication *replication.PublicationError
	if !errors.As(err, &refusal) && !errors.As(err, &slot) && !errors.As(err, &publication) {
		return err
	}
	p.Outcome, p.Why = outcomeRefused, err.Error()
	return nil
}
