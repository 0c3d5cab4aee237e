package main

import (
	"errors"
	"fmt"
	"strings"

	"lapse/internal/config"
	"lapse/internal/yamldoc"
	"lapse/replication"
	"lapse/schemas"
)

// The exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitInvalid = 2
	exitPerson  = 3
)

// usageError says that the command line is wrong.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func wrongUsage(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...).Error()}
}

// inputError says that what was given to the command (a file, a setting, a key) cannot be used as it is.
type inputError struct{ cause error }

func (e *inputError) Error() string { return e.cause.Error() }
func (e *inputError) Unwrap() error { return e.cause }

// invalid marks an error as one of the input.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return &inputError{err}
}

// errNeedsPerson says that the command is done and found something. What it found has been printed.
var errNeedsPerson = errors.New("done, but a person has to act: see above")

// exitCode is the one place that decides what an error means to the caller of the program.
func exitCode(err error) int {
	var usage *usageError
	var input *inputError
	var mistakes yamldoc.Errors
	var identity *replication.IdentityError
	var superuser *superuserError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errNeedsPerson):
		return exitPerson
	case errors.As(err, &usage), errors.As(err, &input), errors.As(err, &mistakes),
		errors.As(err, &identity), errors.As(err, &superuser), errors.Is(err, config.ErrNoKey), errors.Is(err, config.ErrNoBrokers),
		errors.Is(err, schemas.ErrKeyTooShort):
		return exitInvalid
	default:
		return exitFailed
	}
}

// show prints what a person is to know of an error, and nothing for one that was printed as a result.
func (a *app) show(command string, err error) {
	if err == nil || errors.Is(err, errNeedsPerson) {
		return
	}
	text := withoutCommand(command, err.Error())
	if a.logFormat == formatJSON && a.log != nil {
		a.log.Error("the command failed", "command", command, "error", text)
		return
	}
	var mistakes yamldoc.Errors
	if errors.As(err, &mistakes) {
		fmt.Fprintln(a.err, unhidden(text)) // each line begins with its place
		return
	}
	fmt.Fprintf(a.err, "%s: %s\n", command, unhidden(text))
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(a.err, "see %s --help\n", command)
	}
}

// withoutCommand is an error's text; that of a command that runs one part has the part's name already.
func withoutCommand(command, text string) string {
	return strings.TrimSpace(strings.TrimPrefix(text, command[strings.LastIndexByte(command, ' ')+1:]+": "))
}
