package main

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"lapse/internal/yamldoc"
)

// envelope is what --json prints: exactly one for each command, also after an error. schemas/result.schema.json describes it. Events are a
// separate contract and have no envelope.
type envelope struct {
	Schema   int       `json:"schema"`
	Version  string    `json:"version"` // the program's
	Command  string    `json:"command"`
	OK       bool      `json:"ok"` // Exit is 0
	Exit     int       `json:"exit"`
	Result   any       `json:"result"` // null if an error left none
	Warnings []string  `json:"warnings"`
	Errors   []mistake `json:"errors"`
}

// envelopeSchema is the version of the envelope and of all results.
const envelopeSchema = 1

// mistake is one error. An error in a file has a place.
type mistake struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Policy  string `json:"policy"`
	Message string `json:"message"`
	Text    string `json:"text"` // the line's
	Fix     string `json:"fix"`  // what to run or to read, if Message does not say it
}

// jsonFlag adds --json.
func (a *app) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.asJSON, "json", false, "print the result as JSON")
}

// verboseFlag adds --verbose, which prints details.
func (a *app) verboseFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&a.verbose, "verbose", false, usage)
}

// printJSON sets the result. execute prints it later, when the exit code is known.
func (a *app) printJSON(value any) error {
	a.answer.Result = value
	return nil
}

// answerJSON prints the envelope.
func (a *app) answerJSON(command string, err error) error {
	e := a.answer
	a.answer.Result = nil
	e.Warnings = a.warnings.all()
	text, err := e.text(command, err)
	if err != nil {
		return err
	}
	_, err = a.out.Write(text)
	return err
}

// text is the envelope of a command that ended with err.
func (e envelope) text(command string, err error) ([]byte, error) {
	e.Schema, e.Version, e.Command, e.Exit = envelopeSchema, readVersions().Version, strings.TrimPrefix(command, "lapse "), exitCode(err)
	e.OK, e.Errors = e.Exit == exitDone, mistakesOf(command, err)
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(jsonValue(reflect.ValueOf(e)))
	return b.Bytes(), err
}

// mistakesOf splits an error.
func mistakesOf(command string, err error) []mistake {
	if err == nil || errors.Is(err, errNeedsPerson) {
		return nil
	}
	var all []mistake
	var inFiles yamldoc.Errors
	errors.As(err, &inFiles)
	for _, e := range inFiles {
		all = append(all, mistakeIn(e))
	}
	// Errors other than those of the files: for instance, the database cannot be reached.
	if text := strings.TrimSpace(strings.Replace(err.Error(), inFiles.Error(), "", 1)); text != "" {
		m := mistake{Message: withoutCommand(command, text)}
		var usage *usageError
		var fixable interface{ Fix() string }
		switch {
		case errors.As(err, &usage):
			m.Fix = "see " + command + " --help"
		case errors.As(err, &fixable):
			m.Fix = fixable.Fix()
		}
		all = append(all, m)
	}
	return all
}

// mistakeIn is an error in a file.
func mistakeIn(e *yamldoc.Error) mistake {
	return mistake{Message: e.Message, File: e.File, Line: e.Place.Line, Column: e.Place.Column, Policy: e.Policy, Text: e.Line}
}

// member is one key of an object, in the order of the struct.
type member struct {
	name  string
	value any
}

type object []member

func (o object) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			text = append(text, ',')
		}
		name, err := encode(m.name)
		if err != nil {
			return nil, err
		}
		value, err := encode(m.value)
		if err != nil {
			return nil, err
		}
		text = append(append(append(text, name...), ':'), value...)
	}
	return append(text, '}'), nil
}

// encode is json.Marshal without the escaping of <, > and &, which SQL contains.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// jsonValue encodes a value of a result: every key is present, absent values are null, "" or 0, an array is never null, and a duration is a
// number of seconds.
func jsonValue(v reflect.Value) any {
	if !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil() {
		return nil
	}
	switch x := v.Interface().(type) {
	case time.Time:
		if x.IsZero() {
			return nil
		}
		return x
	case uuid.UUID:
		if x == uuid.Nil {
			return nil
		}
		return x
	case time.Duration:
		return x.Seconds()
	case json.Marshaler, encoding.TextMarshaler:
		return x
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return jsonValue(v.Elem())
	case reflect.Slice, reflect.Array:
		all := make([]any, v.Len())
		for i := range all {
			all[i] = jsonValue(v.Index(i))
		}
		return all
	case reflect.Map:
		all := map[string]any{}
		for key, value := range v.Seq2() {
			all[key.String()] = jsonValue(value)
		}
		return all
	case reflect.Struct:
		return members(nil, v)
	default:
		return v.Interface()
	}
}

// members adds the fields of a struct and of its embedded structs.
func members(o object, v reflect.Value) object {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "" && field.Type.Kind() == reflect.Pointer:
			if value.IsNil() {
				value = reflect.New(field.Type.Elem())
			}
			o = members(o, value.Elem())
		case field.Anonymous && name == "":
			o = members(o, value)
		case name != "" && name != "-":
			o = append(o, member{name, jsonValue(value)})
		}
	}
	return o
}

// warnings collects the log's messages of level warn for the envelope.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// mostWarnings bounds the warnings: a command may run for months.
const mostWarnings = 100

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said
}

// listener is a slog handler that also collects warnings.
type listener struct {
	slog.Handler
	warnings *warnings
}

func (l listener) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += "; " + a.Key + ": " + a.Value.String(); return true })
		l.warnings.mu.Lock()
		if len(l.warnings.said) < mostWarnings {
			l.warnings.said = append(l.warnings.said, text)
		}
		l.warnings.mu.Unlock()
	}
	return l.Handler.Handle(ctx, r)
}

func (l listener) WithAttrs(attrs []slog.Attr) slog.Handler {
	return listener{l.Handler.WithAttrs(attrs), l.warnings}
}

func (l listener) WithGroup(name string) slog.Handler {
	return listener{l.Handler.WithGroup(name), l.warnings}
}
