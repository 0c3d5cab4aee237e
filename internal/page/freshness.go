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

// freshness says how old a page's results are and, if they are older than they should be, what is wrong.
type freshness struct {
	At      string // when they were read, by the server's clock
	Age     string // the time since then, if there is trouble
	Trouble string // "" if there is none
}

// troubleText says why there is nothing newer. It does not repeat the database's message, which may contain values: the process's log has it.
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

// freshnessOf makes the freshness of results that were read at a time, zero for never; at is the server's clock then.
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
		f.Trouble += ": what is shown is older"
		f.Age = status.Short(time.Since(read)) + " ago"
	}
	return f
}
