package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// ErrSynchronous means that the server treats the stream as a synchronous standby. Commits would wait until Kafka has acknowledged their deletions.
var ErrSynchronous = errors.New("synchronous_standby_names makes the audit's stream a synchronous standby: commits would wait for Kafka")

// synchronous says which setting causes it, and how to fix it. Its grade is Retry: once it is fixed, the stream opens. state is the
// stream's sync_state, "" if not known.
func synchronous(setting, applicationName, state string) error {
	if state != "" {
		state = " (sync_state " + state + ")"
	}
	return fmt.Errorf("%w%s; it is %s and the stream is called %s: name the real standbys in it and neither * nor %s, for instance: "+
		"alter system set synchronous_standby_names = 'FIRST 1 (standby1, standby2)'; select pg_reload_conf()",
		ErrSynchronous, state, schemas.Literal(setting), schemas.Literal(applicationName), applicationName)
}

// ApplicationName returns the application_name of a stream with this connection string.
func ApplicationName(connString string) (string, error) {
	config, err := pgconn.ParseConfig(connString)
	if err != nil {
		return "", err
	}
	return applicationName(config), nil
}

func applicationName(config *pgconn.Config) string {
	if name := config.RuntimeParams["application_name"]; name != "" {
		return name
	}
	return "lapse"
}

// CheckSynchronousNames returns ErrSynchronous if the server would treat a stream of this application_name as a synchronous standby. It
// needs no stream.
func CheckSynchronousNames(ctx context.Context, q Querier, applicationName string) error {
	var setting string
	err := q.QueryRow(ctx, `select pg_catalog.current_setting('synchronous_standby_names')`).Scan(&setting)
	if err != nil {
		return fmt.Errorf("read synchronous_standby_names: %w", err)
	}
	if namesStandby(setting, applicationName) {
		return synchronous(setting, applicationName, "")
	}
	return nil
}

// CheckAsync returns ErrSynchronous unless the stream that a server process serves (Stream.ServerPID) is an asynchronous standby. It needs
// a connection for SQL.
//
// Only members of pg_read_all_stats see sync_state in pg_stat_replication, not even the stream's own login, and it is async until the
// stream has sent a position. So the setting, which every role may read, and the name of the stream decide too. A stream that has ended is
// not an error: its reader will notice.
func CheckAsync(ctx context.Context, q Querier, pid uint32, applicationName string) error {
	const query = `
select pg_catalog.current_setting('synchronous_standby_names'),
       coalesce((select r.sync_state from pg_catalog.pg_stat_replication r where r.pid = $1::bigint), '')`
	var setting, state string
	if err := q.QueryRow(ctx, query, int64(pid)).Scan(&setting, &state); err != nil {
		return fmt.Errorf("check the stream's sync_state: %w", err)
	}
	if !namesStandby(setting, applicationName) && (state == "" || state == "async") {
		return nil
	}
	return synchronous(setting, applicationName, state)
}

// namesStandby reports whether a value of synchronous_standby_names matches an application_name. The server has checked its form: names
// separated by commas, or FIRST n (names), ANY n (names), n (names). Any place in the list makes a standby sync, quorum or potential, and *
// matches everything, quoted or not.
func namesStandby(setting, applicationName string) bool {
	for _, name := range standbyNames(setting) {
		if name == "*" || strings.EqualFold(name, applicationName) {
			return true
		}
	}
	return false
}

func standbyNames(setting string) (names []string) {
	var name strings.Builder
	quoted := false
	take := func() {
		if name.Len() > 0 {
			names = append(names, name.String())
		}
		name.Reset()
	}
	for i := 0; i < len(setting); i++ {
		switch c := setting[i]; {
		case c == '"' && quoted && i+1 < len(setting) && setting[i+1] == '"':
			name.WriteByte(c)
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
			name.WriteByte(c)
		case c == '(': // before it are the method and the number
			names = nil
			name.Reset()
		case c == ',' || c == ')':
			take()
		case strings.IndexByte(" \t\n\r\f\v", c) < 0:
			name.WriteByte(c)
		}
	}
	take()
	return names
}
