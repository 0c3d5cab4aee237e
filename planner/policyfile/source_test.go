package policyfile

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// What is kept of an entry is a policy file's entry again, and the same one.
func TestTheSourceOfAPolicyReadsAsThePolicy(t *testing.T) {
	t.Parallel()
	inBraces := `policies: [{name: a, table: b.c, expire: {column: d, after: 1 day}}, {name: b, table: "b.\"d}\"", expire: INTERVAL '1 day' ON e}]`
	for _, text := range []string{supportedFile, inBraces} {
		file, err := Parse("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range file.Policies {
			if !strings.Contains(p.Source(), "name: "+string(p.Name)) {
				t.Errorf("the source of %s is %q", p.Name, p.Source())
			}
			again, err := Parse("f", []byte("policies:\n  - "+strings.ReplaceAll(p.Source(), "\n", "\n    ")+"\n"))
			if err != nil || len(again.Policies) != 1 {
				t.Errorf("%q: %v", p.Source(), err)
				continue
			}
			got := again.Policies[0]
			if got.source != p.source {
				t.Errorf("the source of %q is %q", p.source, got.source)
			}
			got.places, got.lines, p.places, p.lines = nil, nil, nil, nil
			if !reflect.DeepEqual(got, p) {
				t.Errorf("%q reads as %+v, want %+v", p.source, got, p)
			}
		}
	}
}

func TestAnEntryThatNobodyReadsIsRefused(t *testing.T) {
	t.Parallel()
	text := fmt.Sprintf("policies:\n  - name: a\n    table: b.c\n    expire: {column: d, after: 1 day}\n    owner: %s\n", strings.Repeat("x", MaxSource))
	if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), "f:2:5: policy a: the entry is longer than 65536 bytes") {
		t.Errorf("got %.200v", err)
	}
}
