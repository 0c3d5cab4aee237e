package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Examine makes all checks. If nothing is installed it only checks the server. An error means that the connection is lost; what a single
// check cannot find out is a finding.
func (d Doctor) Examine(ctx context.Context) ([]Finding, error) {
	e := &examination{Doctor: d}
	err := d.Conn.QueryRow(ctx, `select current_database()::text, current_setting('server_version_num')::int,
		not exists (select from unnest($1::text[]) w where not exists (select from pg_roles r where r.rolname = w))`,
		[]string{d.Roles.Owner, d.Roles.Executor, d.Roles.Auditor}).Scan(&e.database, &e.version, &e.roles)
	if err != nil {
		return nil, fmt.Errorf("check the server: %w", err)
	}
	var all []Finding
	for _, checks := range []func() []check{e.checks, e.tables} {
		for _, c := range checks() {
			found, err := c.find(ctx)
			var server *pgconn.PgError
			switch {
			case err != nil && errors.As(err, &server) && !e.Conn.IsClosed():
				found = append(found, Finding{Grade: Warn, Text: fmt.Sprintf("this could not be checked (%s, SQLSTATE %s)", server.Message, server.Code)})
			case err != nil:
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			for _, f := range found {
				f.Check = c.name
				all = append(all, f)
			}
		}
	}
	return all, nil
}

// checks are the checks that need no policy. "schema lapse" finds whether anything is installed, and which policies are in force.
func (e *examination) checks() []check {
	return []check{
		{"read only", e.checkReadOnly}, // the statements that fix the others write
		{"version", e.checkVersion},
		{"primary", e.checkPrimary},
		{"wal_level", e.checkWALLevel},
		{"slots", e.checkFree},
		{"slot retention", e.checkRetention},
		{"track_counts", e.checkTrackCounts},
		{"session_replication_role", e.checkReplicationRole},
		{"isolation", e.checkIsolation},
		{"jit", e.checkJIT},
		{"synchronous standbys", e.checkSynchronous},
		{"clock", e.checkClock},

		{"prepared transactions", e.checkPrepared},
		{"long transactions", e.checkLong},
		{"load", e.checkLoad},

		{"schema lapse", e.checkCatalog},
		{"slot", e.checkSlot},
		{"publications", e.checkPublications},
		{"copy", e.checkCopy},
		{"paused", e.checkPaused},
		{"holds", e.checkHolds},

		{"roles", e.checkRoles},
		{"attributes", e.checkAttributes},
		{"grants", e.checkGrants},
		{"rights on tables", e.checkTableRights},
		{"logical messages", e.checkMessages},
	}
}
