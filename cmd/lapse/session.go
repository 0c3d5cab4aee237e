package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/backoff"
	"lapse/internal/config"
	"lapse/internal/setup/site"
	"lapse/planner/database"
	"lapse/schemas"
)

const connectTimeout = 10 * time.Second

// session describes a session that a command opens.
//
// If the login is not the role, the session switches to the role: what it creates belongs to the role, and it has only the role's rights, even
// if the login is a superuser's. The settings of the login and of the database do not matter.
type session struct {
	command   string // application_name, unless the connection string has one
	to        config.ConnString
	role      string                                   // "" for the login itself
	superuser bool                                     // accepts a superuser's login: for superuserCommands
	with      map[string]string                        // further settings
	connect   func(context.Context) (*pgx.Conn, error) // nil: as configOf says
}

// configOf configures a session. Each connection is checked before use: see admit.
func (a *app) configOf(s *config.Settings, w session) (*pgx.ConnConfig, error) {
	parsed, err := pgx.ParseConfig(string(w.to))
	if err != nil {
		return nil, invalid(fmt.Errorf("read the database's connection string: %w", err))
	}
	if parsed.RuntimeParams["application_name"] == "" {
		parsed.RuntimeParams["application_name"] = w.command
	}
	schemas.PinSession(parsed.RuntimeParams, schemas.SessionSettings())
	if w.role != "" && parsed.User != w.role {
		schemas.PinSession(parsed.RuntimeParams, map[string]string{"role": w.role})
	}
	schemas.PinSession(parsed.RuntimeParams, w.with)
	parsed.AfterConnect = checkPinned
	if !w.superuser {
		parsed.AfterConnect = a.admit(s, parsed.User)
	}
	if parsed.ConnectTimeout == 0 {
		parsed.ConnectTimeout = connectTimeout
	}
	return parsed, nil
}

// connection is configOf for the executor and the auditor, which open their connections themselves.
func (a *app) connection(s *config.Settings, to config.ConnString, role, command string) (*pgx.ConnConfig, error) {
	return a.configOf(s, session{command: command, to: to, role: role})
}

// open opens a session. If it cannot connect, the error is a *connectError.
func (a *app) open(ctx context.Context, s *config.Settings, w session) (*pgx.Conn, error) {
	parsed, err := a.configOf(s, w)
	if err != nil {
		return nil, err
	}
	if w.connect == nil {
		w.connect = func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, parsed) }
	}
	conn, err := w.connect(ctx)
	if err != nil {
		return nil, a.canceled(ctx, s, w, &connectError{session: w, login: parsed.User, cause: err, unsaid: a.unsaid(w.to)})
	}
	return conn, nil
}

// unsaid reports whether neither the settings nor the environment name a database, so that the defaults apply.
func (a *app) unsaid(to config.ConnString) bool {
	return to == "" && !slices.ContainsFunc([]string{"PGHOST", "PGSERVICE", "PGDATABASE"}, func(name string) bool { value, _ := a.env(name); return value != "" })
}

// whichDatabase is the advice to a user who has not named a database.
const whichDatabase = "no database is configured: set LAPSE_DATABASE_URL (postgres://LOGIN@HOST/DATABASE), --database, or database: in lapse.yaml"

// openInstalled is open for a database with an installation that fits this program and its settings.
func (a *app) openInstalled(ctx context.Context, s *config.Settings, w session) (*pgx.Conn, *site.Installation, error) {
	conn, err := a.open(ctx, s, w)
	if err != nil {
		return nil, nil, err
	}
	installed, err := checkInstalled(ctx, conn, s)
	if err != nil {
		database.Close(conn)
		return nil, nil, a.canceled(ctx, s, w, err)
	}
	return conn, installed, nil
}

// checkInstalled reads the installation of a session's database, and refuses one that does not fit this program and its settings.
func checkInstalled(ctx context.Context, conn *pgx.Conn, s *config.Settings) (*site.Installation, error) {
	installed, err := site.ReadInstallation(ctx, conn, s.Roles)
	if err != nil {
		return nil, err
	}
	return installed, fits(installed, s)
}

// openOwner is openInstalled with the role of the catalog's owner. It returns the settings too.
func (a *app) openOwner(ctx context.Context, command string) (*site.Session, *config.Settings, error) {
	s, err := a.settings()
	if err != nil {
		return nil, nil, err
	}
	conn, _, err := a.openInstalled(ctx, s, session{command: command, to: s.Database.Owner, role: s.Roles.Owner})
	if err != nil {
		return nil, nil, err
	}
	return &site.Session{Conn: conn, Roles: s.Roles, Log: a.log}, s, nil
}

// connectError says that a session could not be opened and, if known, what to do.
type connectError struct {
	session session
	login   string
	cause   error
	unsaid  bool // no setting names the database
}

// Unwrap returns the cause, a *superuserError for instance.
func (e *connectError) Unwrap() error { return e.cause }

func (e *connectError) Error() string {
	if e.unsaid {
		return fmt.Sprintf("%s; %s was tried instead: %s", whichDatabase, e.session.to, e.what())
	}
	return fmt.Sprintf("connect to %s: %s", e.session.to, e.what())
}

func (e *connectError) what() string {
	var refused *superuserError
	var server *pgconn.PgError
	switch {
	case errors.As(e.cause, &refused):
		return refused.Error()
	case errors.Is(e.cause, errNotPinned):
		return errNotPinned.Error()
	case !errors.As(e.cause, &server):
		return e.cause.Error()
	}
	switch server.Code {
	case schemas.SQLStateProtocolViolation, schemas.SQLStateUndefinedObject:
		return fmt.Sprintf("a setting that the session starts with is refused (%s): %s", server.Message, connectDirectly)
	case schemas.SQLStateInsufficientPrivilege:
		if e.session.role != "" {
			return fmt.Sprintf("%s: have a superuser run: grant %s to %s", server.Message, schemas.Identifier(e.session.role), schemas.Identifier(e.login))
		}
	case schemas.SQLStateInvalidParameterValue: // the role does not exist
		if e.session.role != "" {
			return server.Message + ": run lapse init"
		}
	}
	return server.Error()
}

// passing reports whether waiting may help after a failure to connect: the server did not answer, or it is starting, stopping or full.
func passing(err error) bool {
	var failed *pgconn.ConnectError
	var refused *superuserError
	var nowhere *connectError
	if errors.As(err, &refused) || errors.Is(err, errNotPinned) || errors.As(err, &nowhere) && nowhere.unsaid {
		return false
	}
	switch schemas.StateOf(err) {
	case schemas.SQLStateAdminShutdown, schemas.SQLStateCrashShutdown, schemas.SQLStateCannotConnectNow, schemas.SQLStateTooManyConnections:
		return true
	case "":
		return errors.As(err, &failed)
	default:
		return false
	}
}

// awaitInstallation reads the installation over a connection of its own, or over the one that w.connect makes, which stays open. It serves commands
// that run until they are stopped: unless impatient, it waits for a server that is down or starting.
func (a *app) awaitInstallation(ctx context.Context, s *config.Settings, w session, impatient bool) (*site.Installation, error) {
	for pause := (backoff.Backoff{Min: 250 * time.Millisecond, Max: 10 * time.Second}); ; {
		conn, installed, err := a.openInstalled(ctx, s, w)
		if err == nil {
			if w.connect == nil {
				database.Close(conn)
			}
			return installed, nil
		}
		if impatient || !passing(err) {
			return nil, err
		}
		a.log.Warn("no connection to the database; trying again", "error", err)
		if err := pause.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// fits refuses an installation that does not fit this program or its settings.
func fits(i *site.Installation, s *config.Settings) error {
	required := s.Audit == config.AuditRequired
	why, remedy := schemas.OtherVersion(i.SchemaVersion)
	switch {
	case why != "":
		return fmt.Errorf("%s: %s", why, remedy)
	case i.Slot != s.Slot:
		return invalid(fmt.Errorf("this database is installed with slot %q, not %q: set slot: %s in lapse.yaml", i.Slot, s.Slot, i.Slot))
	case i.AuditRequired && !required:
		return invalid(errors.New("lapse.yaml says audit: off, but this database is installed with audit: required: run lapse init to change that"))
	case !i.AuditRequired && required:
		return invalid(errors.New("this database is installed with audit: off: say so in lapse.yaml, or run lapse init to require the audit again"))
	}
	return nil
}
