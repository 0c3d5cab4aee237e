package importer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// Server is the session that looks up tables and parses statements. Its settings are pinned. It prepares no named statements, so that a user's
// code, should it run after all, cannot replace one.
type Server struct {
	conn      *pgx.Conn
	Database  string
	Login     string
	superuser bool
	sees      bool     // what row security hides from others
	usual     settings // the settings of a session for which neither role nor database sets anything
}

// Timeouts are settings of the session, so that nobody waits long for a locked table.
func Timeouts() map[string]string {
	return map[string]string{"lock_timeout": "1s", "statement_timeout": "20s"}
}

// ErrTooOld says that the server cannot parse a statement without running it.
var ErrTooOld = errors.New("PostgreSQL 14 or later is needed, which parses a statement as the body of a function")

// NewServer reads the session's role and settings.
func NewServer(ctx context.Context, conn *pgx.Conn) (*Server, error) {
	s := &Server{conn: conn, usual: settings{SearchPath: `"$user", public`, DateStyle: "ISO, MDY", IntervalStyle: "postgres", assumedZone: true}}
	var version int
	err := s.row(ctx, conn, `
		select current_setting('server_version_num')::int, current_database()::text, current_user::text, r.rolsuper, r.rolsuper or r.rolbypassrls,
		       current_setting('log_timezone')
		  from pg_roles r
		 where r.rolname = current_user`).Scan(&version, &s.Database, &s.Login, &s.superuser, &s.sees, &s.usual.Zone)
	if err != nil {
		return nil, fmt.Errorf("ask the server who we are: %w", err)
	}
	if version < 140000 {
		return nil, ErrTooOld
	}
	if !s.superuser {
		return s, nil
	}
	// This session has its own settings; only a superuser may read those in the server's files.
	rows, err := collect[setting](ctx, conn, `select lower(name), setting from pg_file_settings where applied and setting is not null order by seqno`)
	if err != nil {
		return nil, fmt.Errorf("read the server's settings: %w", err)
	}
	for _, r := range rows {
		s.usual.set(r.Name, r.Value)
	}
	return s, nil
}

// setting is a setting from the server's files or a catalog.
type setting struct{ Name, Value string }

// queryer is a connection or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (s *Server) row(ctx context.Context, q queryer, sql string, args ...any) pgx.Row {
	return q.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeDescribeExec}, args...)...)
}

func collect[T any](ctx context.Context, q queryer, sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, append([]any{pgx.QueryExecModeDescribeExec}, args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}

// undone runs work in a transaction and rolls it back.
func (s *Server) undone(ctx context.Context, work func(tx pgx.Tx) error) error {
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(work(tx), tx.Rollback(context.WithoutCancel(ctx)))
}

// settings are those on which a statement's meaning depends.
type settings struct {
	Role                                       string // the role that runs the statement and that "$user" in SearchPath means; "" for none
	SearchPath, Zone, DateStyle, IntervalStyle string
	assumedZone                                bool     // the zone is the server's: neither role nor database sets one
	odd                                        []string // settings that change the meaning of texts and conditions
}

// settingsOf returns the settings of a role's session in this database.
func (s *Server) settingsOf(ctx context.Context, role string) (settings, error) {
	set := s.usual
	set.Role = role
	rows, err := collect[setting](ctx, s.conn, `
		select lower(split_part(c.setting, '=', 1)), substr(c.setting, strpos(c.setting, '=') + 1)
		  from pg_db_role_setting s
		 cross join lateral unnest(s.setconfig) c(setting)
		 where s.setdatabase in (0, (select d.oid from pg_database d where d.datname = current_database()))
		   and s.setrole in (0, coalesce((select r.oid from pg_roles r where r.rolname = $1), 0))
		 order by s.setrole <> 0, s.setdatabase <> 0`, role)
	if err != nil {
		return set, fmt.Errorf("read the settings of role %s: %w", role, err)
	}
	for _, r := range rows {
		set.set(r.Name, r.Value)
	}
	return set, nil
}

// set takes one setting in the form of pg_db_role_setting and pg_proc.
func (s *settings) set(name, value string) {
	switch strings.ToLower(name) {
	case "role":
		if value != "none" {
			s.Role = value
		}
	case "search_path":
		s.SearchPath = value
	case "timezone":
		s.Zone, s.assumedZone = value, false
	case "datestyle":
		s.DateStyle = value
	case "intervalstyle":
		s.IntervalStyle = value
	case "standard_conforming_strings", "array_nulls":
		s.deviates(name, !slices.Contains([]string{"on", "true", "yes", "1"}, strings.ToLower(value)))
	case "transform_null_equals":
		s.deviates(name, !slices.Contains([]string{"off", "false", "no", "0"}, strings.ToLower(value)))
	}
}

// deviates records whether a setting differs from the one under which the importer parses.
func (s *settings) deviates(name string, odd bool) {
	s.odd = slices.DeleteFunc(slices.Clone(s.odd), func(other string) bool { return other == name })
	if odd {
		s.odd = append(s.odd, name)
	}
}

// user returns the search path's entry for the role that runs the statement: for a SECURITY DEFINER function its owner.
var user = regexp.MustCompile(`(^|,)\s*(?:"\$user"|\$user\b)`)

// path returns SearchPath for that role.
func (s *settings) path() string {
	return user.ReplaceAllString(s.SearchPath, "${1}"+strings.ReplaceAll(schemas.Identifier(s.Role), "$", "$$"))
}

// body returns PostgreSQL's text of a statement that it parsed as in a session with these settings: see the package. problem is for the
// statement's author.
func (s *Server) body(ctx context.Context, statement string, set settings) (normal, problem string, err error) {
	const name = "pg_temp.lapse_import"
	sql := "create function " + name + "() returns void language sql begin atomic\n" + statement + "\n;end"
	err = s.undone(ctx, func(tx pgx.Tx) error {
		// One statement: PostgreSQL refuses more at this point, before it looks anything up.
		if _, err := tx.Conn().Prepare(ctx, "", sql); err != nil {
			return err
		}
		run, err := s.runner(ctx, tx)
		if err != nil {
			return err
		}
		if err := assume(ctx, tx, set); err != nil {
			return err
		}
		if err := run(sql); err != nil {
			return err
		}
		if err := assume(ctx, tx, pinned); err != nil {
			return err
		}
		return s.row(ctx, tx, `
			select pg_catalog.pg_get_function_sqlbody(p.oid)
			  from pg_catalog.pg_proc p
			 where p.pronamespace = pg_catalog.pg_my_temp_schema() and p.proname = 'lapse_import'`).Scan(&normal)
	})
	var server *pgconn.PgError
	switch {
	case err == nil:
		return normal, "", nil
	case !errors.As(err, &server):
		return "", "", fmt.Errorf("have a statement parsed: %w", err)
	case server.Code == schemas.SQLStateReadOnlyTransaction:
		return "", "", fmt.Errorf("have a statement parsed: %w: connect to the primary", err)
	case server.Code == schemas.SQLStateLockNotAvailable:
		return "", "a table is locked: import again", nil
	}
	switch server.Code[:2] {
	case "0A", "22", "2B", "3F", "42", "P0", "XX":
		return "", "PostgreSQL does not parse it: " + server.Message, nil
	}
	return "", "", fmt.Errorf("have a statement parsed: %w", err)
}

// pinned are the importer's own settings.
var pinned = settings{SearchPath: "pg_catalog, pg_temp", Zone: "UTC", DateStyle: "ISO, YMD", IntervalStyle: "postgres"}

// assume sets the settings on which a statement's meaning depends, and pins the rest.
func assume(ctx context.Context, tx pgx.Tx, set settings) error {
	_, err := tx.Exec(ctx, `
		select pg_catalog.set_config(name, value, true)
		  from (values ('search_path', $1::pg_catalog.text), ('timezone', $2::pg_catalog.text), ('datestyle', $3::pg_catalog.text), ('intervalstyle', $4::pg_catalog.text), ('quote_all_identifiers', 'off'),
		               ('standard_conforming_strings', 'on'), ('backslash_quote', 'safe_encoding'), ('extra_float_digits', '1'),
		               ('check_function_bodies', 'on'), ('transform_null_equals', 'off'), ('row_security', 'on')) s(name, value)`,
		pgx.QueryExecModeDescribeExec, set.path(), set.Zone, set.DateStyle, set.IntervalStyle)
	if err != nil {
		return fmt.Errorf("set search_path and zone: %w", err)
	}
	return nil
}

// runner runs one statement. For a superuser it uses the rights of a role that can only read; the transaction's rollback removes the role.
func (s *Server) runner(ctx context.Context, tx pgx.Tx) (run func(sql string) error, err error) {
	if !s.superuser {
		return func(sql string) error {
			_, err := tx.Exec(ctx, sql, pgx.QueryExecModeDescribeExec)
			return err
		}, nil
	}
	role := "lapse_import_" + strings.ToLower(rand.Text())
	function := "pg_temp." + role
	_, err = tx.Exec(ctx, `
		create role `+role+` nologin;
		grant pg_read_all_data to `+role+`;
		grant temporary on database `+schemas.Identifier(s.Database)+` to `+role+`;
		create function `+function+`(statement text) returns void language plpgsql security definer as 'begin execute statement; end';
		alter function `+function+`(text) owner to `+role, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, fmt.Errorf("make a role that can only read: %w", err)
	}
	return func(sql string) error {
		_, err := tx.Exec(ctx, "select "+function+"($1)", pgx.QueryExecModeDescribeExec, sql)
		return err
	}, nil
}
