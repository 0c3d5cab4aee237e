package policyfile

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lapse/internal/yamldoc"
)

// corpus are the files below testdata, by name.
func corpus(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	all := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = text
	}
	return all
}

func TestGoodFilesAreTakenByTheParserAndByTheSchema(t *testing.T) {
	t.Parallel()
	schema := policySchema(t)
	all := corpus(t, "good")
	example, err := os.ReadFile(filepath.Join("..", "..", "examples", "policies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all["the example"] = example
	for name, text := range all {
		if _, err := Parse(name, text); err != nil {
			t.Errorf("the parser refuses it: %v", err)
		}
		if err := validate(schema, text); err != nil {
			t.Errorf("%s: the schema refuses it: %v", name, err)
		}
	}
}

var (
	wantLine    = regexp.MustCompile(`# want: ([^\r\n]*)`)
	schemaTakes = "# the schema takes it"
)

// A bad file has one mistake, and ends with what is said of it. Some mistakes no schema can see, and the file says that too.
func TestBadFilesAreRefusedByTheParserAndByTheSchema(t *testing.T) {
	t.Parallel()
	schema := policySchema(t)
	for name, text := range corpus(t, "bad") {
		want := wantLine.FindSubmatch(text)
		_, err := Parse("f", text)
		var all yamldoc.Errors
		if !errors.As(err, &all) || want == nil || !strings.Contains(err.Error(), string(want[1])) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
		if len(all) > 1 {
			t.Errorf("%s: one mistake, and %d complaints: %v", name, len(all), err)
		}
		if takes := validate(schema, text) == nil; takes != strings.Contains(string(text), schemaTakes) {
			t.Errorf("%s: the schema takes it: %t", name, takes)
		}
	}
}
