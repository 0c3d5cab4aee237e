package replication

import (
	"errors"
	"fmt"
	"strings"

	"lapse/schemas"
)

// Errors for callers to branch on. All but errClosed come wrapped in an error that says what to do.
var (
	// ErrSlotActive: another connection streams from the slot. The slot is the mutex: another auditor is at work, or the server has not yet noticed
	// that its own last connection has ended.
	ErrSlotActive = errors.New("the slot is in use")
	// errSlotMissing: there is no such slot. What was deleted since it was dropped cannot be known: a gap.
	errSlotMissing = errors.New("the slot does not exist")
	// ErrSlotLost: the server has invalidated the slot, because it held back more log than allowed. A gap.
	ErrSlotLost = errors.New("the slot is lost")
	// errSlotForeign: the slot belongs to another program: it has another plugin or database, or is temporary.
	errSlotForeign = errors.New("the slot is not one of ours")
	// errPublicationMissing: a publication does not exist, or did not at the slot's position. The second cannot be repaired: publications must be
	// made before the slot.
	errPublicationMissing = errors.New("a publication does not exist")
	// errPublicationDiffers: a publication exists but publishes something else than Lapse relies on.
	errPublicationDiffers = errors.New("a publication is not as it must be")
	// errNotLogical: wal_level is below logical.
	errNotLogical = errors.New("the server does not write a log that can be decoded")
	// errStandby: the server is a standby. Nothing is deleted there, and nothing is audited there.
	errStandby = errors.New("the server is a standby")
	// errServerStopped: the server ended the stream in order, because it shuts down.
	errServerStopped = errors.New("the server has ended the stream")
	// errClosed: the stream was closed by its owner.
	errClosed = errors.New("the stream is closed")
)

// SlotError is everything that can be wrong with a slot. errors.Is finds the reason.
type SlotError struct {
	Slot   string
	Reason error
	Detail string // what is known beyond the reason
	Fix    string // what to do
}

func (e *SlotError) Error() string {
	text := fmt.Sprintf("slot %q: %v", e.Slot, e.Reason)
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	if e.Fix != "" {
		text += "; " + e.Fix
	}
	return text
}

func (e *SlotError) Unwrap() error { return e.Reason }

// decodeError says that a message was not understood. It ends the stream, because what follows could be misread too. It never contains the
// message's bytes, which are a user's row.
type decodeError struct {
	Type   byte        // pgoutput's letter, or that of the message around it
	LSN    schemas.LSN // the message's position, as the server said
	Length int         // of the message
	Reason error
}

func (e *decodeError) Error() string {
	return fmt.Sprintf("decode message %q of %d bytes at %s: %v", e.Type, e.Length, e.LSN, e.Reason)
}

func (e *decodeError) Unwrap() error { return e.Reason }

// redactedError hides the text of an error of class 22 (data exception), which quotes the value.
type redactedError struct{ cause error }

func (e *redactedError) Error() string {
	if state := schemas.StateOf(e.cause); strings.HasPrefix(state, classData) {
		return fmt.Sprintf("the server cannot send a value (SQLSTATE %s)", state)
	}
	return e.cause.Error()
}

func (e *redactedError) Unwrap() error { return e.cause }

// The classes of SQLSTATEs that this package knows by name.
const (
	classConnection          = "08"
	classData                = "22"
	classOperator            = "57"
	classTransactionRollback = "40"
	classResources           = "53"
)
