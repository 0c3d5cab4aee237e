package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// connect makes a replication connection that still accepts SQL, and the wire below it.
//
// The settings of our sessions pin the text form of every type: the same log gives the same bytes, whatever the role, the database or the
// server's configuration says. Only client_encoding is set again, to the database's.
func connect(ctx context.Context, c StreamConfig) (*pgx.Conn, *wire, error) {
	config, err := pgx.ParseConfig(c.ConnString)
	if err != nil {
		return nil, nil, err
	}
	// A replication connection knows the simple protocol only.
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
	schemas.PinSession(config.RuntimeParams, map[string]string{"replication": "database"})
	config.RuntimeParams["application_name"] = applicationName(&config.Config)
	config.AfterConnect = c.Admit
	wire := attachWire(&config.Config)
	conn, err := pgx.ConnectConfig(ctx, config)
	switch {
	case schemas.StateOf(err) == schemas.SQLStateInsufficientPrivilege:
		return nil, nil, fmt.Errorf("%w; to read the log, run: alter role %s replication", err, schemas.Identifier(config.User))
	case schemas.StateOf(err) == schemas.SQLStateProtocolViolation, schemas.StateOf(err) == schemas.SQLStateUndefinedObject:
		return nil, nil, fmt.Errorf("%w; a setting of the session is refused: connect to PostgreSQL directly, not through a pooler", err)
	case err != nil:
		return nil, nil, err
	}
	if err := allowLongTransactions(ctx, conn); err != nil {
		return nil, nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, wire(), nil
}

// allowLongTransactions lifts transaction_timeout, the one server setting that would end a stream: the server counts the decoding of a
// transaction as one. Before PostgreSQL 17 there is no such setting, so it cannot be a startup parameter.
func allowLongTransactions(ctx context.Context, conn *pgx.Conn) error {
	const query = `select pg_catalog.set_config(s.name, '0', false) from pg_catalog.pg_settings s where s.name = 'transaction_timeout'`
	if _, err := conn.Exec(ctx, query); err != nil {
		return fmt.Errorf("set transaction_timeout: %w", err)
	}
	return nil
}

// senderTimeout returns how long the server waits for a message of ours. It makes sure that this is neither forever nor longer than we want to
// wait for the server's.
func senderTimeout(ctx context.Context, conn *pgx.Conn) (time.Duration, error) {
	var milliseconds int64
	const query = `select s.setting::bigint from pg_catalog.pg_settings s where s.name = 'wal_sender_timeout'`
	if err := conn.QueryRow(ctx, query).Scan(&milliseconds); err != nil {
		return 0, fmt.Errorf("read wal_sender_timeout: %w", err)
	}
	if timeout := time.Duration(milliseconds) * time.Millisecond; timeout > 0 && timeout <= senderTimeoutAtMost {
		return timeout, nil
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf("set wal_sender_timeout to '%dms'", senderTimeoutAtMost.Milliseconds())); err != nil {
		return 0, fmt.Errorf("set wal_sender_timeout: %w", err)
	}
	return senderTimeoutAtMost, nil
}
