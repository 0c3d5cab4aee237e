package replication_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"testing"

	"lapse/internal/pgtest"
	"lapse/replication"
)

// The example of Open is a program by itself: on a database without schema lapse it prints each deletion, and a second one goes
// on where the first ended.
func TestTheExampleOfOpenPrintsWhatIsDeletedOnce(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, `create table public.sessions (id int, part text, note text, primary key (id, part))`,
			`insert into public.sessions select n, 'p', 'n' from generate_series(1, 9) n`)
		for range 2 {
			if err := publish(t.Context(), db.URL, "public.sessions", db.Name); err != nil {
				t.Fatal(err)
			}
		}
		run := func(statement string, want ...string) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, in := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				err := printDeletes(ctx, in, db.URL, db.Name)
				_ = in.Close()
				ended <- err
			}()
			db.Exec(t, statement)
			lines := bufio.NewScanner(out)
			for _, line := range want {
				if !lines.Scan() || lines.Text() != line {
					t.Errorf("printed %q, want %q", lines.Text(), line)
				}
			}
			cancel()
			_ = out.Close() // what is still printed fails
			if err := <-ended; !errors.Is(err, context.Canceled) || replication.GradeOf(err) == replication.Retry {
				t.Errorf("ended with %v, want what the context says", err)
			}
		}
		run(`delete from public.sessions where id < 3`, "delete sessions [1 p]", "delete sessions [2 p]", "commit")
		run(`begin; insert into public.sessions values (10, 'p', 'n'); delete from public.sessions where id = 3; truncate public.sessions; commit`,
			"delete sessions [3 p]", "truncate sessions []", "commit")
	})
}
