package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
	"lapse/planner/record"
	"lapse/schemas"
)

// Grade is how much a finding matters.
type Grade string

// The grades.
const (
	OK   Grade = "ok"
	Warn Grade = "warn" // it works, and somebody should know
	Fail Grade = "fail" // something does not work, or is not safe
)

// Finding is what a check of the doctor's has found.
type Finding struct {
	Check  string   `json:"check"`
	Grade  Grade    `json:"grade"`
	Text   string   `json:"text"`
	Fix    []string `json:"fix,omitempty"`    // statements that run as they are, in this order, as a superuser in this database
	Advice string   `json:"advice,omitempty"` // what to do where no statement does it, or none that a stranger should choose
}

// Doctor checks a database and says what is wrong with it. It changes nothing, takes no lock that others wait for, and reads
// the system catalog and schema lapse alone: nothing of a user's table. So it takes any login. What the login may not see is a
// warning.
type Doctor struct {
	Conn   *pgx.Conn
	Roles  schemas.Roles
	Slot   string
	Logins access.Logins
	Now    func() time.Time // the clock of this machine
}

// check is one precondition.
type check struct {
	name string
	find func(context.Context) ([]Finding, error)
}

// examination is a Doctor's at work.
type examination struct {
	Doctor
	database  string
	version   int // server_version_num
	roles     bool
	installed *site.Installation // nil where nothing is installed
	policies  []record.InForce
}

// Examine goes through all checks. Where nothing is installed it checks the server alone. An error says that the connection
// is lost; what a single check cannot be told is a finding.
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

// checks are those that need no policy. "schema lapse" says whether anything is installed, and which policies are in force.
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

// ok is the one line of a check that found nothing wrong.
func ok(format string, args ...any) []Finding {
	return []Finding{{Grade: OK, Text: fmt.Sprintf(format, args...)}}
}

// one is the one finding of a check.
func one(grade Grade, fix []string, format string, args ...any) []Finding {
	return []Finding{{Grade: grade, Text: fmt.Sprintf(format, args...), Fix: fix}}
}

// advise is a finding without a statement that fixes it.
func advise(grade Grade, advice, format string, args ...any) []Finding {
	return []Finding{{Grade: grade, Text: fmt.Sprintf(format, args...), Advice: advice}}
}

// Failed reports whether a check failed.
func Failed(found []Finding) bool {
	for _, f := range found {
		if f.Grade == Fail {
			return true
		}
	}
	return false
}

// list reads rows of texts.
func (e *examination) list(ctx context.Context, sql string, args ...any) ([]string, error) {
	rows, err := e.Conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// setting is the server's own value of a setting, not the one that this session was started with.
func (e *examination) setting(ctx context.Context, name string) (value string, err error) {
	err = e.Conn.QueryRow(ctx, `select pg_catalog.current_setting($1)`, name).Scan(&value)
	return value, err
}

// setForSessions lists what databases and roles set for their sessions, if it is another value than wanted: each as the
// statement that takes it back.
func (e *examination) setForSessions(ctx context.Context, name, wanted string) ([]string, error) {
	return e.list(ctx, `
		select case when s.setrole = 0 then format('alter database %I reset %I', d.datname, $1::text)
		            when s.setdatabase = 0 then format('alter role %I reset %I', r.rolname, $1::text)
		            else format('alter role %I in database %I reset %I', r.rolname, d.datname, $1::text) end
		  from pg_db_role_setting s
		  left join pg_database d on d.oid = s.setdatabase
		  left join pg_roles r on r.oid = s.setrole
		 cross join unnest(s.setconfig) c(line)
		 where (s.setdatabase = 0 or d.datname = current_database())
		   and lower(split_part(c.line, '=', 1)) = $1 and lower(substr(c.line, strpos(c.line, '=') + 1)) <> $2
		   and (s.setrole = 0 or r.rolname = any ($3) or r.rolname like $4 || '%')
		 order by 1`, name, wanted, append(e.Logins.Names(), e.Roles.Owner, e.Roles.Executor, e.Roles.Auditor),
		strings.ReplaceAll(e.Roles.DeleterPrefix, "_", `\_`))
}

const reload = "select pg_reload_conf()"
