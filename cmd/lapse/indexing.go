package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/apply"
)

// connectToIndex opens a session of the applying login. In it indexes are created and dropped in the name of their tables' owners.
func (a *applier) connectToIndex(ctx context.Context) (*pgx.Conn, error) {
	return a.open(ctx, a.settings, session{command: "lapse apply", to: a.settings.Database.Owner, superuser: true})
}

// tellIndex reports the progress of an index build: on a terminal in one line that changes, elsewhere as a log line for each phase.
func (a *applier) tellIndex() func(apply.IndexProgress) {
	var last apply.IndexProgress
	return func(p apply.IndexProgress) {
		if a.shows {
			fmt.Fprintf(a.err, "\r\x1b[K%s", p)
			if p.Ended {
				fmt.Fprint(a.err, "\r\x1b[K")
			}
			return
		}
		if !p.Ended && (p.Index != last.Index || p.Phase != last.Phase) {
			a.log.Info("making an index", "index", p.Index, "phase", p.Phase)
		}
		last = p
	}
}
