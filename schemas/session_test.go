package schemas_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// contrary has another value for each setting of a session.
func contrary() map[string]string {
	return map[string]string{
		"row_security": "on", "default_transaction_isolation": "serializable", "default_transaction_deferrable": "on",
		"constraint_exclusion": "on", "jit": "on", "client_encoding": "LATIN1", "timezone": "Australia/Lord_Howe",
		"timezone_abbreviations": "India", "datestyle": "German, DMY", "intervalstyle": "sql_standard", "extra_float_digits": "-15",
		"bytea_output": "escape", "lc_monetary": "POSIX", "quote_all_identifiers": "on", "standard_conforming_strings": "off",
		"backslash_quote": "on", "transform_null_equals": "on", "array_nulls": "off", "gin_fuzzy_search_limit": "1",
		"check_function_bodies": "off", "plpgsql.extra_errors": "all", "exit_on_error": "on", "client_min_messages": "error",
		"search_path": "public", "idle_session_timeout": "10min",
	}
}

func TestASessionHasItsSettingsWhateverLoginDatabaseAndConnectionStringSay(t *testing.T) {
	t.Parallel()
	pgtest.Every(t, func(t *testing.T, db *pgtest.DB) {
		login := db.NewRole(t, "login", "replication")
		var options, parameters strings.Builder
		for name, value := range contrary() {
			db.Exec(t, fmt.Sprintf("alter database %s set %s = '%s'", db.Name, name, value),
				fmt.Sprintf("alter role %s set %s = '%s'", login, name, value))
			fmt.Fprintf(&options, " -c %s=%s", name, strings.ReplaceAll(value, " ", `\ `))
			fmt.Fprintf(&parameters, " %s='%s'", strings.ToUpper(name), value)
		}
		connString := fmt.Sprintf("host=127.0.0.1 port=%d dbname=%s user=%s sslmode=disable options='%s' %s",
			db.Server.Port(), db.Name, login, strings.ReplaceAll(options.String(), `\`, `\\`), parameters.String())
		for _, protocol := range []string{"", " replication=database"} {
			config, err := pgx.ParseConfig(connString + protocol)
			if err != nil {
				t.Fatal(err)
			}
			config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
			schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close(context.Background()) })
			has(t, conn, "when it starts"+protocol)
			for name, value := range contrary() {
				if name != "client_encoding" { // pgx does not send text in another
					set(t, conn, fmt.Sprintf("set %s = '%s'", name, value))
				}
			}
			set(t, conn, "reset all")
			has(t, conn, "after reset all"+protocol)
		}
	})
}

func set(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(t.Context(), statement).ReadAll(); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// has fails the test unless a session has every setting.
func has(t *testing.T, conn *pgx.Conn, when string) {
	t.Helper()
	settings := schemas.SessionSettings()
	if len(contrary()) != len(settings) {
		t.Errorf("%d settings, and another value is tried for %d", len(settings), len(contrary()))
	}
	for name, other := range contrary() {
		results, err := conn.PgConn().Exec(t.Context(), "select pg_catalog.current_setting('"+name+"')").ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(results[0].Rows[0][0]); got != settings[name] || got == other {
			t.Errorf("%s: %s is %q, want %q", when, name, got, settings[name])
		}
	}
}

func TestOneSpellingOfASettingIsSent(t *testing.T) {
	config, err := pgconn.ParseConfig("postgres://login@nowhere/db?TimeZone=Asia/Tokyo&DATESTYLE=German&Search_Path=public&work_mem=8MB")
	if err != nil {
		t.Fatal(err)
	}
	schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
	for name := range config.RuntimeParams {
		if _, ours := schemas.SessionSettings()[name]; !ours && name != "work_mem" {
			t.Errorf("%s is sent too", name)
		}
	}
	if config.RuntimeParams["work_mem"] != "8MB" {
		t.Error("a setting that is none of ours is not sent")
	}
}
