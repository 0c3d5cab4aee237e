package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Canonical is the report's canonical JSON. The same two checkpoints and period always give the same bytes, from
// any copy of the log and on any machine: it contains neither the time of its making nor the build of Lapse.
//
//   - one line of UTF-8 with a line feed at its end, and no blanks between tokens;
//   - members in the order of the types in this package, each once; members marked omitempty only if not empty;
//   - null only for members that may be absent by their type; an empty list is [];
//   - integers in decimal without exponent; instants in the form of Instant;
//   - in strings <, >, &, U+2028 and U+2029 as \u escapes, so that a script in an HTML page can contain it.
func (r *Report) Canonical() ([]byte, error) { return canonical(r) }

// Parse parses canonical JSON. It refuses the same report in any other form.
func Parse(text []byte) (*Report, error) {
	var r Report
	if err := parse(text, &r, kind); err != nil {
		return nil, fmt.Errorf("read a report: %w", err)
	}
	return &r, nil
}

// edition is a report that has a canonical form.
type edition interface {
	head() (kind string, schema int)
}

func (r *Report) head() (string, int)   { return r.Kind, r.Schema }
func (r *Redacted) head() (string, int) { return r.Kind, r.Schema }

func canonical(e edition) ([]byte, error) {
	fillLists(reflect.ValueOf(e).Elem())
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

func parse(text []byte, into edition, want string) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if kind, schema := into.head(); kind != want || schema != Schema {
		return fmt.Errorf("it is a %q of schema %d; this program reads schema %d", kind, schema, Schema)
	}
	again, err := canonical(into)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, text) {
		return errors.New("it is not in canonical form: somebody has edited it")
	}
	return nil
}

// fillLists replaces nil lists by empty ones.
func fillLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fillLists(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fillLists(v.Field(i))
		}
	case reflect.Slice:
		if v.IsNil() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			fillLists(v.Index(i))
		}
	}
}
