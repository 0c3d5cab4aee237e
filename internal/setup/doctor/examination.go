package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

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

// Finding is the result of one of the doctor's checks.
type Finding struct {
	Check  string   `json:"check"`
	Grade  Grade    `json:"grade"`
	Text   string   `json:"text"`
	Fix    []string `json:"fix,omitempty"`    // statements that run as they are, in this order, as a superuser in this database
	Advice string   `json:"advice,omitempty"` // what to do where no statement does it, or none that a stranger should choose
}

// Doctor checks a database and says what is wrong with it. It changes nothing, takes no lock that others wait for, and reads only the
// system catalog and schema lapse, never a user's table. So any login can run it. What the login may not see is a warning.
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

// examination is a Doctor at work.
type examination struct {
	Doctor
	database  string
	version   int // server_version_num
	roles     bool
	installed *site.Installation // nil where nothing is installed
	policies  []record.InForce
}

// ok is the line of a check that found nothing wrong.
func ok(format string, args ...any) []Finding {
	return []Finding{{Grade: OK, Text: fmt.Sprintf(format, args...)}}
}

// one is a check's only finding.
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

// setting returns the server's own value of a setting, not this session's.
func (e *examination) setting(ctx context.Context, name string) (value string, err error) {
	err = e.Conn.QueryRow(ctx, `select pg_catalog.current_setting($1)`, name).Scan(&value)
	return value, err
}

// setForSessions lists where databases and roles set a setting to another value than wanted, each as the statement that resets it.
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
