package replication

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
)

func TestSynchronousStandbyNamesFitOrDoNot(t *testing.T) {
	t.Parallel()
	for setting, fits := range map[string]bool{
		``: false, `*`: true, `"*"`: true, `lapse`: true, `LAPSE`: true, `"lapse"`: true, `"Lapse"`: true,
		`other`: false, `lapse2`: false, `"la""pse"`: false, `a, lapse`: true, `a,b`: false,
		`FIRST 1 (a, lapse)`: true, `ANY 2 (a, b, *)`: true, `any 1(lapse,b)`: true, `2 (a, b)`: false,
		`first 1 (a, "b,lapse")`: false, `FIRST 1 ("(lapse)")`: false, "1 (\tlapse )": true,
	} {
		if got := namesStandby(setting, "lapse"); got != fits {
			t.Errorf("%s: %v", setting, got)
		}
	}
}

// The server is the judge: what it says of a stream's sync_state is what was said of the setting.
func TestAStreamThatWouldBeASynchronousStandbyIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `create role plain login replication`, `grant usage on schema public to plain`)
		url := db.Server.URL("plain", db.Name)
		login, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = login.Close(t.Context()) })
		set := func(names string) {
			t.Helper()
			exec(t, conn, `alter system set synchronous_standby_names = '`+names+`'`, `select pg_reload_conf()`)
			for _, c := range []*pgx.Conn{conn, login} {
				eventually(t, "the setting is read", func() bool {
					var is string
					return c.QueryRow(t.Context(), `show synchronous_standby_names`).Scan(&is) == nil && is == names
				})
			}
		}
		s := openStream(t, url, db.Name)
		if err := s.flush(t.Context()); err != nil { // before the first status sync_state is async
			t.Fatal(err)
		}
		for names, refused := range map[string]bool{
			`*`: true, `"lapse"`: true, `FIRST 1 (other, "LAPSE")`: true, `ANY 1 (other, lapse)`: true, `ANY 1 (*)`: true,
			`other`: false, `FIRST 1 (other, another)`: false, ``: false,
		} {
			set(names)
			eventually(t, "the server's own word is "+names, func() bool {
				var state string
				err := conn.QueryRow(t.Context(), `select sync_state from pg_stat_replication where pid = $1`, s.ServerPID()).Scan(&state)
				return err == nil && (state != "async") == refused
			})
			for who, c := range map[string]*pgx.Conn{"superuser": conn, "the stream's login": login} {
				err := CheckAsync(t.Context(), c, s.ServerPID(), "lapse")
				if errors.Is(err, ErrSynchronous) != refused || err != nil && (GradeOf(err) != Retry || !strings.Contains(err.Error(), "alter system set")) {
					t.Errorf("%s asks under %q: %v", who, names, err)
				}
				if err := CheckSynchronousNames(t.Context(), c, "lapse"); errors.Is(err, ErrSynchronous) != refused {
					t.Errorf("%s asks for the setting %q: %v", who, names, err)
				}
			}
		}
		closeStream(t, s)
		exec(t, conn, `set synchronous_commit to local`)
		set(`*`)
		if _, err := Open(t.Context(), StreamConfig{ConnString: url, Slot: db.Name}); !errors.Is(err, ErrSynchronous) {
			t.Errorf("opened: %v", err)
		}
		set(`other`)
		closeStream(t, openStream(t, url, db.Name))
		set(``)
	})
}
