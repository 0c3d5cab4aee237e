package config_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"lapse/internal/config"
)

// schemaNode is one place of schemas/lapse.schema.json, and how a file reaches it: path with % where the value stands.
type schemaNode struct {
	path     string
	says     map[string]any
	required bool
}

// schemaNodes walks the schema: every key that a file can have, the mappings among them.
func schemaNodes(t *testing.T) []schemaNode {
	t.Helper()
	text, err := os.ReadFile("../../schemas/lapse.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	var all []schemaNode
	var walk func(path string, says map[string]any, required bool)
	walk = func(path string, says map[string]any, required bool) {
		all = append(all, schemaNode{path, says, required})
		needs, _ := says["required"].([]any)
		properties, _ := says["properties"].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			walk(strings.Replace(path, "%", "{ "+key+": % }", 1), properties[key].(map[string]any), slices.Contains(needs, any(key)))
		}
		for _, of := range []string{"oneOf", "anyOf"} {
			forms, _ := says[of].([]any)
			for _, form := range forms {
				if form, is := form.(map[string]any); is && form["type"] == "object" {
					form = maps.Clone(form)
					form["description"] = says["description"]
					walk(path, form, required)
				}
			}
		}
		if items, is := says["items"].(map[string]any); is && items["type"] == "object" {
			items = maps.Clone(items)
			items["description"] = says["description"]
			walk(strings.Replace(path, "%", "[%]", 1), items, true)
		}
	}
	walk("%", root, true)
	return all
}

// keysHere are the keys that the reader knows in a mapping: it names them where it meets one that it does not know. There are none where no
// mapping may stand.
func keysHere(t *testing.T, path string) []string {
	t.Helper()
	_, err := config.Load(write(t, strings.Replace(path, "%", "{ zzzzzzzzzzzzzzzzzzzz: 1 }", 1)), config.Overrides{}, nothing)
	if err == nil {
		t.Errorf("%s: the reader takes any key", path)
		return nil
	}
	found := regexp.MustCompile(`known here are ([^\n]*)`).FindStringSubmatch(err.Error())
	if found == nil {
		return nil
	}
	keys := strings.Split(found[1], ", ")
	slices.Sort(keys)
	return keys
}

// A key is in the schema if, and only if, the reader knows it; the schema says what it is for, and what it is if it is left out.
func TestTheSchemaHasTheKeysOfTheReader(t *testing.T) {
	t.Parallel()
	seen, forms := 0, map[string]bool{}
	nodes := schemaNodes(t)
	for _, n := range nodes {
		if n.says["properties"] != nil {
			forms[n.path] = true
		}
	}
	for _, n := range nodes {
		properties, _ := n.says["properties"].(map[string]any)
		want := slices.Sorted(maps.Keys(properties))
		if got := keysHere(t, n.path); !slices.Equal(got, want) && (properties != nil || !forms[n.path]) && n.says["type"] != "array" {
			t.Errorf("%s: the reader knows %q, the schema %q", n.path, got, want)
		}
		seen += len(want)
		said, _ := n.says["description"].(string)
		if said == "" {
			t.Errorf("%s: the schema does not say what it is", n.path)
		}
		_, has := n.says["default"]
		if properties == nil && !has && !n.required && !strings.Contains(said, "Default: ") {
			t.Errorf("%s: the schema does not say what it is if it is left out: %s", n.path, said)
		}
	}
	if seen < 55 {
		t.Errorf("the schema has %d keys", seen)
	}
}

// ofTheExecutor are keys whose default is not in the settings: the executor has it.
var ofTheExecutor = map[string]bool{"{ limits: { workers: % } }": true, "{ limits: { replica_lag: % } }": true, "{ limits: { old_snapshot: % } }": true}

// A file that says a default says nothing.
func TestTheSchemasDefaultsAreTheReaders(t *testing.T) {
	t.Parallel()
	plain, err := config.Load(write(t, "# nothing\n"), config.Overrides{}, nothing)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, n := range schemaNodes(t) {
		value, has := n.says["default"]
		if !has || n.required || strings.Contains(n.path, "[{") || ofTheExecutor[n.path] {
			continue
		}
		seen++
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		said, err := config.Load(write(t, strings.Replace(n.path, "%", string(text), 1)), config.Overrides{}, nothing)
		if err != nil {
			t.Errorf("%s: the default %s is refused: %v", n.path, text, err)
			continue
		}
		said.File = plain.File
		if fmt.Sprintf("%+v", said) != fmt.Sprintf("%+v", plain) {
			t.Errorf("%s: its default is not %s", n.path, text)
		}
	}
	if seen < 14 {
		t.Errorf("the schema has %d defaults", seen)
	}
}

// madeUp are values that somebody may write anywhere.
var madeUp = []string{
	"true", "0", "1", "-1", "1.5", "70000000000", "''", "' '", "A-b.c", "off", "forever", "'dir:'", "dir:/a", "5 seconds", "host:1", "':1'", "'host:99999'", "https://a.example.com",
	"http://a.example.com", "http://localhost:1", "file:/a", "print", "postgres://a@b/c", "'*.*'", "ä", "'\\u202e'", "[]", "[a, 1]", "['h:1', 'i:2']", "['']", "[[]]", "{}", "{ $schema: a }", "snappy",
}

// stricter says why the reader may refuse a value that the schema takes: what a pattern cannot say, or would say in a way that nobody could read.
var stricter = regexp.MustCompile(`is no address|is not a length of time above zero|are to work on one database`)

// quoted says why the schema may refuse a value that the reader takes: an editor asks for the quotation marks around a text that looks like a number.
var quoted = regexp.MustCompile(`got (number|boolean), want string`)

// What one refuses the other refuses, of values that somebody may write anywhere.
func TestTheSchemaRefusesWhatTheReaderRefuses(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile("../../schemas/lapse.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	files, refused, file := 0, 0, write(t, "")
	for _, n := range schemaNodes(t) {
		for _, value := range append(madeUp, fmt.Sprint(n.says["default"])) {
			text := strings.Replace(n.path, "%", value, 1)
			var read any
			if err := yaml.Unmarshal([]byte(text), &read); err != nil {
				continue
			}
			files++
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, byReader := config.Load(file, config.Overrides{}, nothing)
			bySchema := schema.Validate(read)
			if byReader != nil {
				refused++
			}
			switch {
			case (byReader == nil) == (bySchema == nil):
			case bySchema == nil && stricter.MatchString(byReader.Error()), byReader == nil && quoted.MatchString(bySchema.Error()):
			default:
				t.Errorf("%s\n  the reader: %.200v\n  the schema: %.400v", text, byReader, bySchema)
			}
		}
	}
	if files < 1500 || refused < 1000 || refused == files {
		t.Errorf("of %d files %d were refused", files, refused)
	}
}
