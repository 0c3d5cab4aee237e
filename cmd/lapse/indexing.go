package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/apply"
)

// connectToIndex opens a session of the applying login's own, in which indexes are made and dropped in the name of their
// tables' owners.
func (a *applier) connectToIndex(ctx context.Context) (*pgx.Conn, error) {
	return a.open(ctx, a.settings, session{command: "lapse apply", to: a.settings.Database.Owner, superuser: true})
}

// tellIndex is told how far an index is that is made: one line that changes where a person watches, otherwise a line of the log
// for each phase.
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
