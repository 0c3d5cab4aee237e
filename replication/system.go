package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Identity says which database a stream reads. The system identifier alone does not: the databases of one cluster share
// it, and so does a copy made by CREATE DATABASE … TEMPLATE or from a backup.
type Identity struct {
	SystemIdentifier uint64
	DatabaseOID      uint32
	Database         string
	Timeline         Timeline // the server's at the start; a transaction's may be older
	ServerVersion    int      // server_version_num
	Encoding         string   // of all values and names: the database's
}

// readIdentity asks a replication connection who is there. A standby is refused.
func readIdentity(ctx context.Context, conn *pgx.Conn) (Identity, error) {
	system, err := pglogrepl.IdentifySystem(ctx, conn.PgConn())
	if err != nil {
		return Identity{}, fmt.Errorf("identify system: %w", err)
	}
	id := Identity{Timeline: Timeline(system.Timeline)}
	if id.SystemIdentifier, err = strconv.ParseUint(system.SystemID, 10, 64); err != nil {
		return Identity{}, fmt.Errorf("identify system: read the system identifier: %w", err)
	}
	const query = `
select d.oid, d.datname::text, current_setting('server_version_num')::integer,
       current_setting('server_encoding'), pg_is_in_recovery()
  from pg_catalog.pg_database d
 where d.datname = current_database()`
	var standby bool
	err = conn.QueryRow(ctx, query).Scan(&id.DatabaseOID, &id.Database, &id.ServerVersion, &id.Encoding, &standby)
	if err != nil {
		return Identity{}, fmt.Errorf("identify database: %w", err)
	}
	if standby {
		return Identity{}, fmt.Errorf("%w: name the primary in the connection string", ErrStandby)
	}
	return id, nil
}

// history is the timelines that a cluster went through.
type history []ended

// ended is a timeline that the cluster left, and the first position that is not its own.
type ended struct {
	timeline Timeline
	at       LSN
}

// timelineOf returns the timeline in whose history the position falls. A slot that comes over a promotion still has
// transactions of the former timeline to send, while the server already calls itself the new one.
func (h history) timelineOf(current Timeline, position LSN) Timeline {
	for _, e := range h {
		if position < e.at {
			return e.timeline
		}
	}
	return current
}

// readHistory fetches the history of a timeline. The first has none.
func readHistory(ctx context.Context, conn *pgconn.PgConn, timeline Timeline) (history, error) {
	if timeline <= 1 {
		return nil, nil
	}
	file, err := pglogrepl.TimelineHistory(ctx, conn, int32(timeline))
	if err != nil {
		return nil, fmt.Errorf("read the history of timeline %d: %w", timeline, err)
	}
	h, err := parseHistory(file.Content)
	if err != nil {
		return nil, fmt.Errorf("read the history of timeline %d: %w", timeline, err)
	}
	return h, nil
}

// parseHistory reads a history file: a line per timeline that was left, with its number and the position, in order;
// comments and blank lines between.
func parseHistory(content []byte) (history, error) {
	var h history
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
		at, err := ParseLSN(fields[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		h = append(h, ended{timeline: Timeline(timeline), at: at})
	}
	for i := 1; i < len(h); i++ {
		if h[i].timeline <= h[i-1].timeline || h[i].at < h[i-1].at {
			return nil, errors.New("its timelines are not in order")
		}
	}
	return h, nil
}
