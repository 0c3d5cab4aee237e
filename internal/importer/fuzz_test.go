package importer

import (
	"os"
	"strings"
	"testing"
)

// No text makes the readers fail otherwise than by a reason; and what is split at its semicolons has none left outside of texts.
func FuzzStatements(f *testing.F) {
	for _, j := range jobs {
		f.Add(j.text)
	}
	for _, a := range attempts {
		f.Add(a.text)
	}
	for _, b := range bodies {
		f.Add(b.body)
	}
	text, err := os.ReadFile("testdata/strangers.sql")
	must(f, err)
	f.Add(string(text))
	f.Add("BEGIN ATOMIC\n DELETE FROM public.logs\n   WHERE ((logs.created_at < (now() - '30 days'::interval)) AND (logs.id IN ( SELECT l.id FROM public.logs l LIMIT 5)));\nEND")
	f.Fuzz(func(t *testing.T, text string) {
		parts, ok := statements(text)
		for _, part := range parts {
			if tokens, all := scan(part); ok && all {
				for _, token := range tokens {
					if token.is(";") {
						t.Errorf("%q has a semicolon", part)
					}
				}
			}
			_, _ = called(part)
			_, _ = readDeletion("BEGIN ATOMIC " + part + ";\nEND")
			if n := parse(condition{"logs", part}); n != nil {
				_, _ = (&surroundings{zone: utc, columns: map[string]string{"created_at": "timestamp with time zone", "e": "bigint", "d": "date"}}).due(n)
			}
			_ = bare(condition{"logs", part})
		}
		_, _ = (&function{Language: "plpgsql", Body: text}).statements()
		_, _, _ = readJobs(text)
		if d, problem := readDeletion(text); problem == "" && !strings.Contains(d.table, ".") {
			t.Errorf("%q is a deletion of %q", text, d.table)
		}
	})
}
