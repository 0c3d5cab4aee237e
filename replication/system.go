package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// Identity says which database a stream reads. The system identifier alone does not: the databases of one cluster share it, and so does a
// copy made by CREATE DATABASE … TEMPLATE or from a backup.
type Identity struct {
	SystemIdentifier uint64
	DatabaseOID      uint32
	Database         string
	Timeline         schemas.Timeline // the server's at the start; a transaction's may be older
	Ancestry         Ancestry         // the timelines that it left before
	ServerStart      time.Time        // when the server was started, by its own clock
	Flushed          schemas.LSN      // the end of its log on disk when the stream was opened: nothing above it was ever sent
	ServerVersion    int              // server_version_num
	Encoding         string           // of all values and names: the database's
}

// readIdentity reads the identity over a replication connection. It refuses a standby.
func readIdentity(ctx context.Context, conn *pgx.Conn) (Identity, error) {
	system, err := pglogrepl.IdentifySystem(ctx, conn.PgConn())
	if err != nil {
		return Identity{}, fmt.Errorf("identify system: %w", err)
	}
	id := Identity{Timeline: schemas.Timeline(system.Timeline)}
	if id.SystemIdentifier, err = strconv.ParseUint(system.SystemID, 10, 64); err != nil {
		return Identity{}, fmt.Errorf("identify system: read the system identifier: %w", err)
	}
	const query = `
select d.oid, d.datname::text, current_setting('server_version_num')::integer,
       current_setting('server_encoding'), pg_is_in_recovery(), pg_postmaster_start_time(),
       case when not pg_is_in_recovery() then pg_current_wal_flush_lsn()::text end
  from pg_catalog.pg_database d
 where d.datname = current_database()`
	var standby bool
	err = conn.QueryRow(ctx, query).Scan(&id.DatabaseOID, &id.Database, &id.ServerVersion, &id.Encoding, &standby,
		&id.ServerStart, &id.Flushed)
	if err != nil {
		return Identity{}, fmt.Errorf("identify database: %w", err)
	}
	if standby {
		return Identity{}, fmt.Errorf("%w: name the primary in the connection string", errStandby)
	}
	return id, nil
}

// TimelineOf returns the timeline of a position.
func (id *Identity) TimelineOf(position schemas.LSN) schemas.Timeline {
	return id.Ancestry.TimelineOf(id.Timeline, position)
}

// Ancestry is the timelines that a cluster left, in order.
type Ancestry []Switch

// Switch is a timeline that the cluster left, and the first position that is not its own.
type Switch struct {
	Timeline schemas.Timeline
	At       schemas.LSN
}

// End returns the first position after a timeline, if the cluster was on it and left it.
func (a Ancestry) End(timeline schemas.Timeline) (at schemas.LSN, found bool) {
	for _, s := range a {
		if s.Timeline == timeline {
			return s.At, true
		}
	}
	return 0, false
}

// TimelineOf returns the timeline of a position; current is the timeline above the last switch. After a promotion a slot may still have
// transactions of the former timeline to send, while the server already is on the new one.
func (a Ancestry) TimelineOf(current schemas.Timeline, position schemas.LSN) schemas.Timeline {
	for _, s := range a {
		if position < s.At {
			return s.Timeline
		}
	}
	return current
}

// readAncestry fetches the history file of a timeline. The first has none.
func readAncestry(ctx context.Context, conn *pgconn.PgConn, timeline schemas.Timeline) (Ancestry, error) {
	if timeline <= 1 {
		return nil, nil
	}
	file, err := pglogrepl.TimelineHistory(ctx, conn, int32(timeline))
	if err != nil {
		return nil, fmt.Errorf("read the history of timeline %d: %w", timeline, err)
	}
	a, err := parseAncestry(file.Content)
	if err != nil {
		return nil, fmt.Errorf("read the history of timeline %d: %w", timeline, err)
	}
	return a, nil
}

// parseAncestry reads a history file: a line per timeline that was left, with its number and the position, in order;
// comments and blank lines between.
func parseAncestry(content []byte) (Ancestry, error) {
	var a Ancestry
	for number, line := range bytes.Split(content, []byte("\n")) {
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		fields := strings.Fields(text)
		if len(fields) < 2 {
			return nil, fmt.Errorf("line %d has no position", number+1)
		}
		timeline, err := strconv.ParseUint(fields[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		at, err := schemas.ParseLSN(fields[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		a = append(a, Switch{Timeline: schemas.Timeline(timeline), At: at})
	}
	for i := 1; i < len(a); i++ {
		if a[i].Timeline <= a[i-1].Timeline || a[i].At < a[i-1].At {
			return nil, errors.New("its timelines are not in order")
		}
	}
	return a, nil
}
