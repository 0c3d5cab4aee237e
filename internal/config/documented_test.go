package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every key that the code reads from lapse.yaml is in the section about it.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## lapse.yaml\n")
	section, _, _ = strings.Cut(section, "\n## The policy file\n")
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	keys := 0
	for _, name := range files {
		code, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, found := range regexp.MustCompile(`(?m)^\s+(?:f\.mapping\(node, "[a-z]+", )?(?:field)?\{"([a-z_]+)", (?:f\.|func|\()`).FindAllStringSubmatch(string(code), -1) {
			keys++
			if !regexp.MustCompile("[`.]" + found[1] + "[`.:]").MatchString(section) {
				t.Errorf("the key %s of lapse.yaml is not in docs/configuration.md", found[1])
			}
		}
	}
	if keys < 40 {
		t.Errorf("only %d keys were found in the code", keys)
	}
}
