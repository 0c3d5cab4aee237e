package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"lapse/internal/yamldoc"
)

// document is lapse.yaml while it is being read. A value that cannot be read leaves its setting unchanged.
type document struct{ yamldoc.Document }

// field is a key of a mapping and the function that reads its value.
type field struct {
	name string
	read func(yamldoc.Node)
}

func (d *document) complain(node yamldoc.Node, format string, args ...any) {
	d.Complain(node.Place(), format, args...)
}

// mapping passes each key's value to its field, and reports unknown keys.
func (d *document) mapping(node yamldoc.Node, what string, fields ...field) {
	entries, ok := d.Entries(node, what)
	if !ok {
		d.complain(node, "%s: want names with values below them, not %s", what, kindOf(node))
		return
	}
	for _, e := range entries {
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == e.Key })
		switch {
		case at < 0:
			d.Complain(e.At, "unknown key %q%s", e.Key, suggestion(e.Key, fields))
		case e.Earlier > 0:
			d.Complain(e.At, "%q is here already, in line %d", e.Key, e.Earlier)
		case e.Value.Kind() == yamldoc.Nothing:
			d.Complain(e.At, "%q has no value: give it one or leave the key out", e.Key)
		default:
			fields[at].read(e.Value)
		}
	}
}

func suggestion(name string, fields []field) string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.name)
	}
	if near := yamldoc.Nearest(name, names); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ": known here are " + strings.Join(names, ", ")
}

// text reads a scalar unchanged.
func (d *document) text(into *string) func(yamldoc.Node) {
	return func(node yamldoc.Node) {
		given, ok := node.Scalar()
		switch {
		case !ok:
			d.complain(node, "want a text, not %s", kindOf(node))
		case given == "":
			d.complain(node, "want a text that is not empty: or leave the key out")
		default:
			*into = given
		}
	}
}

// word reads one of several words. off and on are words here, not booleans.
func (d *document) word(into *string, words ...string) func(yamldoc.Node) {
	return func(node yamldoc.Node) {
		var given string
		d.text(&given)(node)
		switch {
		case slices.Contains(words, given):
			*into = given
		case given == "":
		default:
			near := ""
			if n := yamldoc.Nearest(given, words); n != "" {
				near = fmt.Sprintf(": did you mean %q?", n)
			}
			d.complain(node, "%q is not one of %s%s", given, strings.Join(words, ", "), near)
		}
	}
}

func (d *document) flag(into *bool) func(yamldoc.Node) {
	return func(node yamldoc.Node) {
		value, ok := node.Bool()
		if !ok {
			d.complain(node, "want true or false, not %s", kindOf(node))
			return
		}
		*into = value
	}
}

func (d *document) count(into *int, least int) func(yamldoc.Node) {
	return d.between(into, least, math.MaxInt32)
}

func (d *document) between(into *int, least, most int) func(yamldoc.Node) {
	return func(node yamldoc.Node) {
		if node.Kind() != yamldoc.Integer {
			d.complain(node, "want a whole number, not %s", kindOf(node))
			return
		}
		value, ok := node.Int()
		if written, _ := node.Scalar(); !ok && strings.HasPrefix(written, "0") {
			d.complain(node, "want a whole number in decimal digits that does not begin with 0: some readers of YAML take one that does for another number")
			return
		}
		if !ok || value > uint64(most) || int(value) < least {
			d.complain(node, "want a whole number from %d to %d", least, most)
			return
		}
		*into = int(value)
	}
}

func (d *document) duration(into *time.Duration) func(yamldoc.Node) {
	return func(node yamldoc.Node) {
		var text string
		d.text(&text)(node)
		if text == "" {
			return
		}
		value, err := parseDuration(text)
		if err != nil {
			d.complain(node, "%v", err)
			return
		}
		*into = value
	}
}

// list reads a sequence of texts, or one text as a sequence of one.
func (d *document) list(into *[]string) func(yamldoc.Node) {
	return func(node yamldoc.Node) {
		values, ok := node.List()
		if !ok {
			var one string
			d.text(&one)(node)
			if one != "" {
				*into = []string{one}
			}
			return
		}
		var all []string
		for _, value := range values {
			one, ok := value.Scalar() // the caller refuses an empty text: it knows what the text means
			if !ok {
				d.complain(value, "want a text, not %s", kindOf(value))
			}
			all = append(all, one)
		}
		*into = all
	}
}

// kindOf names a value's kind for messages.
func kindOf(node yamldoc.Node) string {
	switch node.Kind() {
	case yamldoc.Mapping:
		return "a mapping"
	case yamldoc.List:
		return "a list"
	case yamldoc.Boolean:
		return "true or false"
	case yamldoc.Integer, yamldoc.Float:
		return "a number"
	case yamldoc.Nothing:
		return "nothing"
	case yamldoc.Other:
		return "a tag, which this file does not use: write the value alone"
	case yamldoc.Reference:
		return "an anchor or alias, which this file does not use: write the value out"
	default:
		return "a text"
	}
}

// units are the words for units of time.
var units = []struct {
	length time.Duration
	words  []string
}{
	{time.Millisecond, []string{"ms", "millisecond", "milliseconds"}},
	{time.Second, []string{"s", "sec", "second", "seconds"}},
	{time.Minute, []string{"m", "min", "minute", "minutes"}},
	{time.Hour, []string{"h", "hour", "hours"}},
	{24 * time.Hour, []string{"d", "day", "days"}},
}

// parseDuration reads "5 seconds", "1 min", "1m30s".
func parseDuration(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is not a length of time above zero: write it as in 500 ms, 5 seconds or 1m30s", text)
	if d, err := time.ParseDuration(strings.ReplaceAll(text, " ", "")); err == nil && d > 0 {
		return d, nil
	}
	number, unit, _ := strings.Cut(strings.TrimSpace(text), " ")
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || n == 0 {
		return 0, wrong
	}
	for _, u := range units {
		switch {
		case !slices.Contains(u.words, strings.TrimSpace(unit)):
		case n > uint64(math.MaxInt64/u.length):
			return 0, fmt.Errorf("%q is too long: want 292 years at most", text)
		default:
			return time.Duration(n) * u.length, nil
		}
	}
	return 0, wrong
}
