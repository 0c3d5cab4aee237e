package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// ErrSynchronous means that the server takes the stream for a synchronous standby. Commits would wait until Kafka has
// acknowledged what they deleted.
var ErrSynchronous = errors.New("synchronous_standby_names makes the audit's stream a synchronous standby: commits would wait for Kafka")

// synchronous says which setting does it, and how to fix it. GradeOf is Retry: once it is fixed, the stream opens. state is the stream's
// sync_state, "" where it is not known.
func synchronous(setting, applicationName, state string) error {
	if state != "" {
		state = " (sync_state " + state + ")"
	}
	return fmt.Errorf("%w%s; it is %s and the stream is called %s: name the real standbys in it and neither * nor %s, for instance: "+
		"alter system set synchronous_standby_names = 'FIRST 1 (standby1, standby2)'; select pg_reload_conf()",
		ErrSynchronous, state, schemas.Literal(setting), schemas.Literal(applicationName), applicationName)
}

// ApplicationName is what a stream with this connection string is called on the server.
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

// CheckSynchronousNames returns ErrSynchronous if the server would take a stream of this application_name for a
// synchronous standby. It needs no stream.
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

// CheckAsync returns ErrSynchronous unless the stream that a server process serves (Stream.ServerPID) is an
// asynchronous standby. It needs a connection for SQL.
//
// pg_stat_replication shows sync_state to members of pg_read_all_stats only, not even to its own login, and has it at
// async until the stream has told a position. So the setting decides with it, which everybody may read, and the name of
// the stream. A stream that is gone is not an error: its reader will notice.
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

// namesStandby says whether a value of synchronous_standby_names fits an application_name. The server has checked its
// form: names with commas between, or FIRST n (names), ANY n (names), n (names). Any place in the list makes a standby
// sync, quorum or potential, and * fits everything, quoted or not.
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
		case c == '(': // what was before it is the method and the number
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
