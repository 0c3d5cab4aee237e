package expiry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// families are all kinds. An entry is of the first one whose mark it has: one with instant and epoch is an instant.
func families() []family {
	return []family{
		sidecarFamily(), ttlFamily(), instantFamily(), epochFamily(), isoFamily(), bucketFamily(), expressionFamily(), ageFamily(),
	}
}

// Keys are the keys that an entry may have.
func Keys() []string {
	keys := []string{"column", "after", "zone"}
	for _, f := range families() {
		for _, key := range f.keys {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// of returns the kind of an entry.
func of(e Entry) family {
	all := families()
	for _, f := range all {
		for _, mark := range f.marks {
			if _, there := e[mark]; there {
				return f
			}
		}
	}
	return all[len(all)-1]
}

// Check says what is wrong with an entry, without a database.
func Check(e Entry) []Problem {
	f := of(e)
	for _, key := range Keys() {
		if _, there := e[key]; !there || slices.Contains(f.keys, key) {
			continue
		}
		if len(f.marks) == 0 {
			return []Problem{{key, key + " needs " + strings.Join(marksWith(key), " or ")}}
		}
		return []Problem{{key, fmt.Sprintf("%s and %s exclude each other", key, f.marks[0])}}
	}
	return f.check(e)
}

// marksWith are the marks of the kinds that have a key.
func marksWith(key string) (marks []string) {
	for _, f := range families() {
		if slices.Contains(f.keys, key) {
			marks = append(marks, f.marks[:min(1, len(f.marks))]...)
		}
	}
	return marks
}

// Read lets PostgreSQL read an entry's durations. The kind that it returns has the names of its columns, but not their types.
func Read(ctx context.Context, db DB, e Entry) (Kind, []Problem, error) {
	return of(e).read(ctx, db, e)
}

// Record is a kind as lapse.policy keeps it, in JSON.
type Record struct{ Kind }

// MarshalJSON writes the kind's values, and its name if it is not the first.
func (r Record) MarshalJSON() ([]byte, error) { return json.Marshal(r.Kind) }

// UnmarshalJSON refuses what it does not know: a newer program may have written it.
func (r *Record) UnmarshalJSON(text []byte) error {
	var named struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	for _, f := range families() {
		if f.name != named.Kind {
			continue
		}
		kind, err := f.load(text)
		if err != nil {
			return fmt.Errorf("read when a row is due: %w", err)
		}
		r.Kind = kind
		return nil
	}
	return fmt.Errorf("a row is due by %q, which this version does not know", named.Kind)
}
