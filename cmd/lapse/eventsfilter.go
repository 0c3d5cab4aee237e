package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"lapse/audit/evidence"
	"lapse/internal/config"
	"lapse/schemas"
)

// readMoment parses a time on the command line: RFC 3339, or a day, which begins at midnight UTC.
func readMoment(flag, text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err = time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return at, wrongUsage("%s: want a time such as %s, or a day such as %s", flag, "2026-11-21T10:15:30Z", "2026-11-21")
}

// keyFilter is the row key of --key: values in the order of the key's columns, or values by column name.
type keyFilter struct {
	values []string
	named  map[string]string // nil if values counts
	names  []string          // the names in named, in the user's order
	hashes []schemas.Key     // without them the filter does not find rows with hashed keys
}

// readKey parses a key: a JSON object as in events, or values as CSV. The key may be personal, so no error repeats any of it.
func readKey(text string) (*keyFilter, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		values, err := csv.NewReader(strings.NewReader(text)).Read()
		if err != nil {
			return nil, wrongUsage("--key: want a value, several as CSV, or a JSON object such as {\"id\":\"42\"}")
		}
		return &keyFilter{values: values}, nil
	}
	names, values, ok := readKeyObject([]byte(text))
	if !ok {
		return nil, wrongUsage("--key: want a JSON object of texts and numbers, such as {\"id\":\"42\"}")
	}
	k := &keyFilter{named: map[string]string{}, names: names}
	for i, name := range names {
		k.named[name] = values[i]
	}
	return k, nil
}

// null stands for NULL among the values of a key. It equals no text.
const null = "\x00null"

// readKeyObject parses a record's key in the order of its columns. A number equals a text of the same digits.
func readKeyObject(text []byte) (names, values []string, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, nil, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, nil, false
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, nil, false
		}
		var s string
		switch {
		case string(value) == "null":
			s = null
		case json.Unmarshal(value, &s) != nil:
			s = string(value)
		}
		names, values = append(names, name.(string)), append(values, s)
	}
	end, err := d.Token()
	return names, values, err == nil && end == json.Delim('}') && !d.More()
}

// matches reports whether a record has the filter's key.
func (k *keyFilter) matches(key []byte) bool {
	names, values, ok := readKeyObject(key)
	if !ok || len(values) != max(len(k.values), len(k.named)) {
		return false
	}
	for i, name := range names {
		var asked string
		if k.named == nil {
			asked = k.values[i]
		} else if asked, ok = k.named[name]; !ok {
			return false
		}
		if values[i] != asked && !k.isHash(values[i], asked) {
			return false
		}
	}
	return len(values) > 0
}

// of returns the key's values in the order of columns, nil for NULL; ok is false if the key has other columns.
func (k *keyFilter) of(columns []string) (values []*string, ok bool) {
	if len(columns) != max(len(k.values), len(k.named)) {
		return nil, false
	}
	for i, column := range columns {
		var value string
		if k.named == nil {
			value = k.values[i]
		} else if value, ok = k.named[column]; !ok {
			return nil, false
		}
		if value == null {
			values = append(values, nil)
		} else {
			values = append(values, &value)
		}
	}
	return values, true
}

// isHash reports whether an event has this value, a hash, in place of another value.
func (k *keyFilter) isHash(value, of string) bool {
	return of != null && slices.ContainsFunc(k.hashes, func(key schemas.Key) bool { return value == evidence.HashOf(key, of) })
}

// concerns reports whether an event is about the filter's row, or about all rows of its table.
func (c *consumer) concerns(r *schemas.Record) bool {
	op := r.Header(schemas.HeaderOp)
	return c.key == nil || op == evidence.Truncate.String() || op == evidence.Drop.String() || c.key.matches(r.Key)
}

// setFilters parses the filters that need parsing.
func (c *consumer) setFilters(since, until, key string, s *config.Settings) (err error) {
	if c.cause != "" && !slices.Contains(causes(), c.cause) {
		return wrongUsage("--cause %s: want system, user or unverified", c.cause)
	}
	if c.limit < 0 {
		return wrongUsage("--limit %d: want a number of events", c.limit)
	}
	if c.since, err = readMoment("--since "+since, since); err != nil {
		return err
	}
	if c.until, err = readMoment("--until "+until, until); err != nil {
		return err
	}
	if !c.until.IsZero() && !c.since.Before(c.until) {
		return wrongUsage("--since %s and --until %s: there is nothing between them", since, until)
	}
	if c.follow && !c.until.IsZero() && c.until.Before(time.Now()) {
		return wrongUsage("--until %s is past, and --follow waits for new events: leave one of them out", until)
	}
	if key == "" {
		return nil
	}
	if c.key, err = readKey(key); err != nil {
		return err
	}
	// Without the hash keys the filter finds only keys that are not hashed.
	if hash, err := s.Keys.Load(config.HashKey); err == nil {
		c.key.hashes = append(c.key.hashes, hash)
	}
	if former, err := s.Keys.Former(config.HashKey); err == nil {
		c.key.hashes = append(c.key.hashes, former...)
	}
	return nil
}

// within reports whether a record's commit is in the requested period. Records have their commit time in milliseconds.
func (c *consumer) within(at time.Time) bool {
	return !at.Before(c.since.Truncate(time.Millisecond)) && (c.until.IsZero() || at.Before(c.until))
}

// errEnough ends a replay that has printed --limit events.
var errEnough = errors.New("the limit of events is reached")
