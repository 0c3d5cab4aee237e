package policyfile

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"lapse/planner/expiry"
)

// Every key that the file takes has a line of its own in the page about it, with what it says and an example.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, policies, found := strings.Cut(string(page), "\n## The policy file\n")
	_, due, foundDue := strings.Cut(policies, "\n### When a row is due\n")
	if !found || !foundDue {
		t.Fatal("the page has no section about the policy file, or none about when a row is due")
	}
	for _, key := range keyNames() {
		if !regexp.MustCompile("(?m)^\\| (`[a-z_]+`, )*`" + key + "`(, `[a-z_]+`)* \\|.*\\|.+\\|$").MatchString(policies) {
			t.Errorf("the key %s of a policy has no line in docs/configuration.md", key)
		}
	}
	for _, key := range expiry.Keys() {
		key, inner, _ := strings.Cut(key, ".")
		line := regexp.MustCompile("(?m)^\\| `" + key + "` \\|.*\\|.+\\|$").FindString(due)
		if line == "" || !strings.Contains(line, inner) {
			t.Errorf("the key %s %s of expire has no line in docs/configuration.md", key, inner)
		}
	}
}
