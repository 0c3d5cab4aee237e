package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// standbySignal makes a server a standby.
const standbySignal = "standby.signal"

// Standby is a server that streams from a primary. When it is promoted it is one like any other.
type Standby struct {
	*Server
	primary  *Server
	conninfo string
}

// Standby starts a hot standby of this server, made from a base backup that is taken here, without slots. It streams
// through a physical slot of that name, with hot_standby_feedback, and from PostgreSQL 17 on it synchronises the primary's
// failover slots. It returns when the standby takes queries. The slot stays on the primary when the standby is closed.
func (s *Server) Standby(ctx context.Context, slot string, settings map[string]string) (*Standby, error) {
	err := s.session(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `select pg_create_physical_replication_slot($1, true)`, slot)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a standby: %w", err)
	}
	copied, err := s.Snapshot(ctx, Backup)
	if err != nil {
		return nil, err
	}
	standby := &Standby{primary: s}
	standby.conninfo = fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres application_name=%s", s.port, slot)
	streaming := map[string]string{
		"primary_conninfo": standby.conninfo, "primary_slot_name": slot, "hot_standby_feedback": "on",
		"wal_receiver_status_interval": "1s", "wal_retrieve_retry_interval": "100ms",
	}
	if s.install.Major >= 17 {
		streaming["sync_replication_slots"] = "on"
	}
	signal := func(dataDir string) error { return os.WriteFile(filepath.Join(dataDir, standbySignal), nil, 0o600) }
	standby.Server, err = copied.Clone(ctx, WithoutSlots(), WithSettings(streaming), WithSettings(settings), signal)
	if err = errors.Join(err, copied.Close()); err != nil {
		return nil, err
	}
	return standby, nil
}

// WaitReplayed waits until the standby has replayed the primary's WAL up to a position, such as FlushLSN's.
func (s *Standby) WaitReplayed(ctx context.Context, lsn string) error {
	return s.waitFor(ctx, "replayed "+lsn, `select pg_last_wal_replay_lsn() >= $1::pg_lsn`, lsn)
}

// WaitSlotSynced waits until a failover slot of the primary would outlive a promotion. PostgreSQL 17 and later. It does not
// happen as long as the primary's slot is where it was made. So read is called now and then, and must confirm what
// the slot has; nil if somebody else does, such as an auditor at work.
func (s *Standby) WaitSlotSynced(ctx context.Context, slot string, read func(context.Context) error) error {
	for {
		// The slot's restart position moves when a record of the running transactions has been read.
		err := s.primary.session(ctx, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `select pg_log_standby_snapshot()`)
			return err
		})
		if err == nil && read != nil {
			err = read(ctx)
		}
		if err != nil {
			return fmt.Errorf("wait until slot %s is synchronised: %w", slot, err)
		}
		soon, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		err = s.waitFor(soon, "synchronised slot "+slot, `
			select exists (select from pg_replication_slots
			                where slot_name = $1 and synced and not temporary and invalidation_reason is null)`, slot)
		again := soon.Err() != nil && ctx.Err() == nil
		cancel()
		if !again {
			return err
		}
	}
}

func (s *Standby) waitFor(ctx context.Context, what, sql string, arg any) error {
	err := s.session(ctx, func(conn *pgx.Conn) error {
		return poll(ctx, func() (yes bool, err error) {
			err = conn.QueryRow(ctx, sql, arg).Scan(&yes)
			return yes, err
		})
	})
	if err != nil {
		return fmt.Errorf("wait until the standby has %s: %w", what, err)
	}
	return nil
}

// Detach ends the stream from the primary: what is committed there from now on is lost by a promotion. It returns when
// nothing more arrives.
func (s *Standby) Detach(ctx context.Context) error {
	if err := s.setPrimary(ctx, ""); err != nil {
		return err
	}
	return s.waitFor(ctx, "let go of its primary", `
		select $1 and not exists (select from pg_stat_activity where backend_type in ('walreceiver', 'slotsync worker'))`, true)
}

// Attach takes the stream up again.
func (s *Standby) Attach(ctx context.Context) error { return s.setPrimary(ctx, s.conninfo) }

func (s *Standby) setPrimary(ctx context.Context, conninfo string) error {
	return s.session(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "alter system set primary_conninfo = '"+conninfo+"'"); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, `select pg_reload_conf()`)
		return err
	})
}

// Promote makes the standby a primary on the next timeline. The former primary is not told, and goes on if it runs.
func (s *Standby) Promote(ctx context.Context) error {
	var promoted bool
	if err := s.scan(ctx, `select pg_promote(false)`, &promoted); err != nil {
		return err
	}
	return s.waitRecovered(ctx)
}
