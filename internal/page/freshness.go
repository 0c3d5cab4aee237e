package page

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/status"
	"lapse/schemas"
)

// freshness says how old it is what a page shows, and what is wrong where that is older than it should be.
type freshness struct {
	At      string // when it was read, by the server's clock
	Age     string // since then, where there is trouble
	Trouble string // "" for none
}

// troubleText says what keeps anything newer from being shown. What the database wrote is in the process's log and not here: it may have values.
func troubleText(err error) string {
	var connect *pgconn.ConnectError
	state := schemas.StateOf(err)
	switch {
	case errors.Is(err, errSlow), errors.Is(err, context.DeadlineExceeded), state == schemas.SQLStateQueryCanceled:
		return errSlow.Error()
	case state != "":
		return fmt.Sprintf("the database refuses (SQLSTATE %s): the log of this process says more", state)
	case errors.As(err, &connect):
		return "nobody answers at the database's address"
	}
	return "the catalog cannot be read: the log of this process says why"
}

// freshnessOf is for what was read at a time, zero for never; at is the server's clock then.
func freshnessOf(err error, read, at time.Time) freshness {
	f := freshness{}
	if !read.IsZero() {
		f.At = at.UTC().Format(time.DateTime) + " UTC"
	}
	if err == nil {
		return f
	}
	f.Trouble = troubleText(err)
	if read.IsZero() {
		f.Trouble += ": nothing is known yet"
	} else {
		f.Trouble += ": what is below is older"
		f.Age = status.Short(time.Since(read)) + " ago"
	}
	return f
}
