package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/config"
	"lapse/internal/catalog"
	"lapse/schemas"
)

const (
	connectTimeout = 10 * time.Second
	closeTimeout   = 2 * time.Second
)

// connection is how to log in with c and play role. An empty role is the login's own.
//
// A login that is not the role becomes it for the whole session: what it makes then belongs to the role, and what the
// role may not do it may not do either, though it be a superuser's. No session depends on what the login or the database
// has set.
func connection(c config.ConnString, role, command string) (*pgx.ConnConfig, error) {
	parsed, err := pgx.ParseConfig(string(c))
	if err != nil {
		return nil, invalid(fmt.Errorf("read the database's connection string: %w", err))
	}
	if parsed.RuntimeParams["application_name"] == "" {
		parsed.RuntimeParams["application_name"] = command
	}
	schemas.PinSession(parsed.RuntimeParams, schemas.SessionSettings())
	if role != "" && parsed.User != role {
		schemas.PinSession(parsed.RuntimeParams, map[string]string{"role": role})
	}
	parsed.AfterConnect = checkPinned
	if parsed.ConnectTimeout == 0 {
		parsed.ConnectTimeout = connectTimeout
	}
	return parsed, nil
}

// errNotPinned says that a session does not have the settings that it was started with.
var errNotPinned = errors.New("the session was started with settings of its own and does not have them: " + connectDirectly)

// connectDirectly is what to do about whoever stands between us and the server. A pooler in transaction mode also mixes
// the sessions of several clients.
const connectDirectly = "connect to PostgreSQL directly, not through a pooler"

// checkPinned refuses a session whose settings a pooler has swallowed. The names that it asks for would be looked up where
// the login says: so they are qualified.
func checkPinned(ctx context.Context, conn *pgconn.PgConn) error {
	path, err := ask(ctx, conn, `select pg_catalog.current_setting('search_path')`)
	if err != nil {
		return fmt.Errorf("look at the session's settings: %w", err)
	}
	if path != schemas.SessionSettings()["search_path"] {
		return errNotPinned
	}
	return nil
}

// ask returns the one value of the one row that a query has, "" for none. It is for connections that know the simple
// protocol only too.
func ask(ctx context.Context, conn *pgconn.PgConn, query string) (string, error) {
	results, err := conn.Exec(ctx, query).ReadAll()
	if err != nil {
		return "", err
	}
	if len(results) == 0 || len(results[0].Rows) == 0 {
		return "", nil
	}
	return string(results[0].Rows[0][0]), nil
}

// connect logs in with c and plays role. It takes any login, a superuser's too: all but init and apply use
// app.connect.
func connect(ctx context.Context, c config.ConnString, role, command string) (*pgx.Conn, error) {
	parsed, err := connection(c, role, command)
	if err != nil {
		return nil, err
	}
	return connectWith(ctx, parsed, c, role)
}

// connectWith is connect with a connection that has been prepared.
func connectWith(ctx context.Context, parsed *pgx.ConnConfig, c config.ConnString, role string) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, parsed)
	if err != nil {
		return nil, explainConnect(err, c, role)
	}
	return conn, nil
}

// explainConnect says what to do where it is known.
func explainConnect(err error, c config.ConnString, role string) error {
	var refused *superuserError
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("connect to %s: %w", c, refused)
	case errors.Is(err, errNotPinned):
		return fmt.Errorf("connect to %s: %w", c, errNotPinned)
	}
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return fmt.Errorf("connect to %s: %w", c, err)
	}
	login, _ := c.Login()
	switch {
	case server.Code == schemas.SQLStateProtocolViolation, server.Code == schemas.SQLStateUndefinedObject:
		return fmt.Errorf("connect to %s: a setting that the session starts with is refused (%s): %s", c, server.Message, connectDirectly)
	case server.Code == schemas.SQLStateInsufficientPrivilege && role != "":
		return fmt.Errorf("connect to %s: %s: have a superuser run: grant %s to %s", c, server.Message, schemas.Identifier(role), schemas.Identifier(login))
	case role != "" && server.Code == schemas.SQLStateInvalidParameterValue: // there is no such role
		return fmt.Errorf("connect to %s: %s: run lapse init", c, server.Message)
	default:
		return fmt.Errorf("connect to %s: %w", c, server)
	}
}

// hangUp closes a connection; what was open is rolled back.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// installation is the row that `lapse init` leaves.
type installation struct {
	schemaVersion int
	slot          string
	slotStart     schemas.LSN // zero: no slot is on record
	slotMade      bool        // one was, now or formerly
	auditRequired bool
	keys          map[string]string // fingerprints, by the keys' names
}

var errNotInstalled = errors.New("this database has no schema lapse: run lapse init")

// readInstallation returns what init left, or errNotInstalled. A schema that is not ours is a *catalog.SchemaError.
func readInstallation(ctx context.Context, conn *pgx.Conn, roles schemas.Roles) (*installation, error) {
	there, err := catalog.CheckSchema(ctx, conn, roles)
	if err != nil {
		return nil, fmt.Errorf("look for the installation: %w", err)
	}
	if !there {
		return nil, errNotInstalled
	}
	var i installation
	err = conn.QueryRow(ctx, `
		select i.schema_version, i.slot::text, i.slot_start::text, (to_jsonb(i) ->> 'slot_made_at') is not null,
		       i.audit_required, coalesce(to_jsonb(i) -> 'keys', '{}')
		  from lapse.installation i`).
		Scan(&i.schemaVersion, &i.slot, &i.slotStart, &i.slotMade, &i.auditRequired, &i.keys)
	switch {
	case errors.Is(err, pgx.ErrNoRows), schemas.StateOf(err) == schemas.SQLStateUndefinedTable:
		return nil, errNotInstalled
	case err != nil:
		return nil, fmt.Errorf("read the installation: %w", err)
	}
	return &i, nil
}

// awaitInstallation is requireInstallation over a connection of its own, for what runs until it is stopped: a server that
// is not there yet, or is starting, is waited for unless impatient.
func (a *app) awaitInstallation(
	ctx context.Context, s *config.Settings, c config.ConnString, role string, impatient bool,
) (*installation, error) {
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		i, err := a.lookInstalled(ctx, s, c, role)
		if err == nil || impatient || !mayPass(err) {
			return i, err
		}
		a.log.Warn("no connection to the database; trying again", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (a *app) lookInstalled(ctx context.Context, s *config.Settings, c config.ConnString, role string) (*installation, error) {
	conn, err := a.connect(ctx, s, c, role, "lapse")
	if err != nil {
		return nil, err
	}
	defer hangUp(conn)
	return requireInstallation(ctx, conn, s)
}

// mayPass says whether a failure to connect is one that waiting may settle: nobody answered, or the server is starting,
// stopping or full.
func mayPass(err error) bool {
	var failed *pgconn.ConnectError
	switch schemas.StateOf(err) {
	case schemas.SQLStateAdminShutdown, schemas.SQLStateCrashShutdown, schemas.SQLStateCannotConnectNow, schemas.SQLStateTooManyConnections:
		return true
	case "":
		return errors.As(err, &failed)
	default:
		return false
	}
}

// requireInstallation returns what init left, if this program and its settings fit to it.
func requireInstallation(ctx context.Context, conn *pgx.Conn, s *config.Settings) (*installation, error) {
	i, err := readInstallation(ctx, conn, s.Roles)
	if err != nil {
		return nil, err
	}
	required := s.Audit == config.AuditRequired
	switch {
	case i.schemaVersion > schemas.Version:
		return nil, fmt.Errorf("the catalog has version %d, this program knows %d: use a newer lapse", i.schemaVersion, schemas.Version)
	case i.schemaVersion < schemas.Version:
		return nil, fmt.Errorf("the catalog has version %d, this program needs %d: run lapse init", i.schemaVersion, schemas.Version)
	case i.slot != s.Slot:
		return nil, invalid(fmt.Errorf("this database is installed with slot %q, not %q: set slot: %s in lapse.yaml", i.slot, s.Slot, i.slot))
	case i.auditRequired && !required:
		return nil, invalid(errors.New("lapse.yaml says audit: off, but this database is installed with audit: required: run lapse init to change that"))
	case !i.auditRequired && required:
		return nil, invalid(errors.New("this database is installed with audit: off: say so in lapse.yaml, or run lapse init to require the audit again"))
	}
	return i, nil
}
