package functions_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"lapse/internal/fixture/definitions"
)

// findCalls are what a finding function may call: each only reads, but for the one that gives it its settings back.
var findCalls = []string{
	"array_agg", "array_position", "cardinality", "coalesce", "count", "current_setting", "format", "get_byte", "greatest", "hashtextextended", "interval_send", "lapse.pin", "max", "min", "num_nonnulls",
	"pg_relation_filenode",
	"pg_relation_size", "quote_literal",
}

// A stable function may call a volatile one, which may write: so what it calls is listed.
func TestAFindingFunctionCallsOnlyWhatReads(t *testing.T) {
	t.Parallel()
	call := regexp.MustCompile(`\b([a-z_][a-z_0-9.]*)\(`)
	for name, d := range definitions.Golden() {
		if name == "expression" || name == "expression_where" {
			continue // what the policy's author wrote is called too
		}
		_, find, err := d.DeletionFunctions()
		if err != nil {
			t.Fatal(err)
		}
		head, body, _ := strings.Cut(find, "as $lapse$")
		if !strings.Contains(head, "language plpgsql stable\n") || strings.Contains(head, "security definer") || strings.Contains(head, "\nset ") {
			t.Errorf("%s: it is not stable, or runs with rights or settings of its own", name)
		}
		for _, c := range call.FindAllStringSubmatch(body, -1) {
			if !slices.Contains(findCalls, c[1]) && !sqlWords[c[1]] {
				t.Errorf("%s: it calls %s", name, c[1])
			}
		}
	}
}

// sqlWords are followed by a parenthesis and are no functions.
var sqlWords = map[string]bool{"and": true, "any": true, "as": true, "case": true, "from": true, "in": true, "is": true, "not": true, "or": true, "select": true, "when": true, "where": true, "filter": true, "then": true, "else": true, "least": true}
