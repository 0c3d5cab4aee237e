package main

import (
	"errors"
	"fmt"
	"strings"

	"lapse/audit/export"
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

// inputError says that an input of the command (a file, a setting, a key) cannot be used.
type inputError struct{ cause error }

func (e *inputError) Error() string { return e.cause.Error() }
func (e *inputError) Unwrap() error { return e.cause }

// invalid marks an error as an input error.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return &inputError{err}
}

// errNeedsPerson says that the command succeeded and found something, which it has already printed.
var errNeedsPerson = errors.New("done, but a person has to act: see above")

// exitCode alone decides which exit code an error gets.
func exitCode(err error) int {
	var usage *usageError
	var input *inputError
	var mistakes yamldoc.Errors
	var identity *replication.IdentityError
	var superuser *superuserError
	var unusable *export.InputError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errNeedsPerson):
		return exitPerson
	case errors.As(err, &usage), errors.As(err, &input), errors.As(err, &mistakes),
		errors.As(err, &identity), errors.As(err, &superuser), errors.As(err, &unusable), errors.Is(err, config.ErrNoKey), errors.Is(err, config.ErrNoBrokers),
		errors.Is(err, schemas.ErrKeyTooShort):
		return exitInvalid
	default:
		return exitFailed
	}
}

// show prints an error, unless it was already printed as a result.
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
		fmt.Fprintln(a.err, unhidden(text)) // each line begins with its file and line
		return
	}
	fmt.Fprintf(a.err, "%s: %s\n", command, unhidden(text))
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(a.err, "see %s --help\n", command)
	}
}

// withoutCommand returns an error's text without the name of the command that runs only that part.
func withoutCommand(command, text string) string {
	return strings.TrimSpace(strings.TrimPrefix(text, command[strings.LastIndexByte(command, ' ')+1:]+": "))
}
