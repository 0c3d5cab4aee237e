package replication

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestAStreamsSessionHasTheSettingsOfEverySession(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		login := db.NewRole(t, "reader", "replication")
		db.Exec(t, "alter role "+login+" set search_path = public", "alter database "+db.Name+" set jit = on",
			"alter role "+login+" set extra_float_digits = -15")
		conn, _, err := connect(t.Context(), StreamConfig{ConnString: db.As(login) + "&TimeZone=Asia/Tokyo"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		for name, want := range schemas.SessionSettings() {
			var got string
			if err := conn.QueryRow(t.Context(), "select current_setting($1)", name).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	})
}

func TestAConnectionThatIsNotAdmittedOpensNoStream(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, nil)
		refusal := errors.New("not you")
		asked := 0
		config := StreamConfig{ConnString: db.URL, Slot: db.Name, Admit: func(ctx context.Context, c *pgconn.PgConn) error {
			asked++
			results, err := c.Exec(ctx, "select session_user").ReadAll()
			if err != nil || string(results[0].Rows[0][0]) != "postgres" {
				t.Errorf("the connection was asked who it is and said %v, %v", results, err)
			}
			return refusal
		}}
		_, err := Open(t.Context(), config)
		if !errors.Is(err, refusal) || GradeOf(err) != Stop || asked != 1 {
			t.Errorf("got %v, graded %v, after asking %d times", err, GradeOf(err), asked)
		}
		state, err := ReadSlot(t.Context(), conn, db.Name)
		if err != nil || state.Active {
			t.Errorf("the slot is %+v, %v", state, err)
		}
		config.Admit = func(context.Context, *pgconn.PgConn) error { return nil }
		s, err := Open(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
