package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

func TestAnErrorIsGradedByItsStateAndNotByItsText(t *testing.T) {
	t.Parallel()
	state := func(code string) error {
		return fmt.Errorf("open stream: %w", &pgconn.PgError{Code: code, Message: "connection timeout, retry"})
	}
	slot := func(reason error) error { return &SlotError{Slot: "s", Reason: reason} }
	for name, c := range map[string]struct {
		err  error
		want Grade
	}{
		"a server that stops":           {state("57P01"), Retry},
		"a server that crashed":         {state("57P02"), Retry},
		"a server that starts":          {state("57P03"), Retry},
		"too many connections":          {state("53300"), Retry},
		"a full disk":                   {state("53100"), Retry},
		"a lock timeout":                {state("55P03"), Retry},
		"a cancelled statement":         {state("57014"), Retry},
		"a deadlock":                    {state("40P01"), Retry},
		"a broken connection":           {state("08006"), Retry},
		"a database that was dropped":   {state("57P04"), Stop},
		"too many slots":                {state("53400"), Stop},
		"a wrong password":              {state("28P01"), Stop},
		"no privilege":                  {state("42501"), Stop},
		"no such database":              {state("3D000"), Stop},
		"damaged data":                  {state("XX001"), Stop},
		"a state that is none":          {state(""), Stop},
		"a slot in use":                 {slot(ErrSlotActive), Retry},
		"a slot that is gone":           {slot(errSlotMissing), Stop},
		"a slot that is lost":           {slot(ErrSlotLost), Stop},
		"full of slots":                 {&SlotError{Slot: "s", Reason: state("53300")}, Stop},
		"no publication":                {publicationMissing("s", state("57P01")), Stop},
		"bad bytes":                     {&decodeError{Reason: io.ErrUnexpectedEOF}, Stop},
		"the end of the connection":     {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), Retry},
		"a refused connection":          {&net.OpError{Op: "dial", Err: errors.New("refused")}, Retry},
		"a connection that took long":   {fmt.Errorf("connect: %w", context.DeadlineExceeded), Retry},
		"a caller who has had enough":   {fmt.Errorf("connect: %w", context.Canceled), Stop},
		"a server that ended the copy":  {errServerStopped, Retry},
		"a server that shuts down":      {ErrStopping, Retry},
		"one that waited for a standby": {(&Stream{slot: "s"}).streamError(&pgconn.PgError{Code: schemas.SQLStateNotInPrerequisiteState, Routine: "StandbySlotsHaveCaughtup"}), Retry},
		"a server that waited enough":   {errOverdue, Retry},
		"a wake":                        {ErrWoken, Retry},
		"a server without an answer":    {errNoAnswer, Retry},
		"a closed stream":               {errClosed, Stop},
		"no server that takes writes":   {fmt.Errorf("connect: %w", pgconn.ErrReadOnlyConnection), Retry},
		"no primary":                    {fmt.Errorf("connect: %w", pgconn.ErrStandbyConnection), Retry},
		"a standby":                     {fmt.Errorf("%w: name the primary", errStandby), Stop},
		"something else":                {errors.New("connection refused, try again"), Stop},
	} {
		if got := GradeOf(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestAServersErrorDoesNotQuoteAValue(t *testing.T) {
	t.Parallel()
	const secret = "0x6a 0x61 0x6e"
	s := &Stream{slot: "s"}
	err := s.streamError(&pgconn.PgError{Code: "22021", Message: "invalid byte sequence: " + secret})
	if strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "22021") || schemas.StateOf(err) != "22021" {
		t.Errorf("got %v", err)
	}
	if err = s.streamError(&pgconn.PgError{Code: "57P01", Message: "terminating"}); !strings.Contains(err.Error(), "terminating") {
		t.Errorf("got %v", err)
	}
}
