package expiry

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"lapse/internal/yamldoc"
	"lapse/schemas"
)

// A path leads to a value inside a jsonb column: keys with dots between them, "meta.expires". A key with a dot, a quote, a
// space or nothing in it goes in double quotes, a double quote in it twice: meta."valid.to". Where the document has an array,
// a number is an element's place in it, as PostgreSQL's #> has it.

var bareKey = regexp.MustCompile(`^[^\s".]+`)

var quotedKey = regexp.MustCompile(`^"((?:[^"]|"")*)"`)

// readPath cuts a path into its keys.
func readPath(path string) (keys []string, err error) {
	if path == "" {
		return nil, errors.New("path is empty: write for instance meta.expires")
	}
	for rest := path; ; rest = rest[1:] {
		if quoted := quotedKey.FindStringSubmatch(rest); quoted != nil {
			keys, rest = append(keys, strings.ReplaceAll(quoted[1], `""`, `"`)), rest[len(quoted[0]):]
		} else {
			bare := bareKey.FindString(rest)
			if bare == "" {
				return nil, fmt.Errorf("%s is not a path: keys with dots between them, such as meta.expires; a key with a dot, a space or a quote in it goes in double quotes",
					yamldoc.Quote(path))
			}
			keys, rest = append(keys, bare), rest[len(bare):]
		}
		if rest == "" {
			return keys, nil
		}
		if rest[0] != '.' {
			return nil, fmt.Errorf("%s is not a path: a dot belongs between two keys", yamldoc.Quote(path))
		}
	}
}

var arrayQuoted = regexp.MustCompile("[\\s{}\",\\\\\v]")

// pathSQL is a path that has been checked, as the operators #> and #>> take it: an array of texts, written as PostgreSQL writes
// it, since an index is found by its text.
func pathSQL(path string) string {
	keys, _ := readPath(path)
	for i, key := range keys {
		if key == "" || arrayQuoted.MatchString(key) || strings.EqualFold(key, "null") {
			keys[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		}
	}
	return schemas.Literal("{"+strings.Join(keys, ",")+"}") + "::text[]"
}
