package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// documents reads JSON: a sequence of documents and of arrays of documents, nested to any depth.
func documents(text string) (all []map[string]any, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	for decoder.More() {
		var value any
		if err := decoder.Decode(&value); err != nil {
			return nil, fmt.Errorf("read JSON: %w", err)
		}
		all = append(all, flat(value)...)
	}
	if len(all) == 0 {
		return nil, errors.New("there is no JSON document in the text")
	}
	return all, nil
}

func flat(value any) (all []map[string]any) {
	switch v := value.(type) {
	case map[string]any:
		return []map[string]any{v}
	case []any:
		for _, each := range v {
			all = append(all, flat(each)...)
		}
	}
	return all
}

// text returns a member that is a string, a number or a boolean as text; also in MongoDB's extended JSON.
func text(document map[string]any, names ...string) string {
	for _, name := range names {
		switch v := document[name].(type) {
		case string:
			return v
		case json.Number:
			return v.String()
		case bool:
			return fmt.Sprint(v)
		case map[string]any:
			if inner := text(v, "$numberInt", "$numberLong", "$numberDouble"); inner != "" {
				return inner
			}
		}
	}
	return ""
}

// inner is a member that is a document.
func inner(document map[string]any, name string) map[string]any {
	v, _ := document[name].(map[string]any)
	return v
}

// written is a document on one line.
func written(document map[string]any) string {
	line, _ := json.Marshal(document)
	return string(line)
}
