package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lapse/schemas"
)

// mongoText reads TTL indexes from the JSON of createIndexes, listIndexes or getIndexes.
func mongoText(_ context.Context, _ *Server, body string) (items []Item, err error) {
	all, err := documents(body)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		collection := text(d, "createIndexes", "collection", "listIndexes")
		for _, index := range indexesOf(d) {
			if i, expires := mongoIndex(index, collection); expires {
				items = append(items, i)
			}
		}
	}
	if len(items) == 0 {
		return nil, errors.New("there is no index with expireAfterSeconds in the JSON")
	}
	return items, nil
}

// indexesOf returns a document's indexes: it is an index, or has a list of them.
func indexesOf(d map[string]any) []map[string]any {
	if cursor := inner(d, "cursor"); cursor != nil {
		return flat(cursor["firstBatch"])
	}
	if list, there := d["indexes"]; there {
		return flat(list)
	}
	return []map[string]any{d}
}

func mongoIndex(index map[string]any, collection string) (i Item, expires bool) {
	_, expires = index["expireAfterSeconds"]
	if !expires {
		return i, false
	}
	if _, name, found := strings.Cut(text(index, "ns"), "."); found {
		collection = name
	}
	key := inner(index, "key")
	var fields []string
	for field := range key {
		fields = append(fields, field)
	}
	i = Item{Origin: "Index " + strconv.Quote(text(index, "name")), Text: written(index)}
	n, err := strconv.ParseInt(strings.TrimSuffix(text(index, "expireAfterSeconds"), ".0"), 10, 64)
	p, ok := seconds(n)
	where, problem := mongoFilter(inner(index, "partialFilterExpression"))
	switch {
	case len(fields) != 1:
		i.lose("a TTL index has one field")
	case err != nil || !ok:
		i.lose("expireAfterSeconds is no number of seconds")
	case strings.Contains(fields[0], "."):
		i.lose("%s is inside a document: where PostgreSQL has that in a jsonb column, write expire: { column: …, path: …, iso8601: true, after: %s }", fields[0], p.interval())
	case problem != "":
		i.lose("partialFilterExpression: %s: a policy without it would delete more", problem)
	case collection == "":
		i.lose(`the JSON does not name the collection: write { "createIndexes": "…", "indexes": [ … ] }`)
	default:
		of := elsewhere(i.Origin, i.Text, tableName("public", collection), after(fields[0], p))
		of.Policy.Where, of.Policy.Every = where, "1 minute"
		of.note("a document whose field holds an array goes by its earliest date; a column has one")
		return of, true
	}
	return i, true
}

// mongoFilter converts a filter to SQL: fields that equal a value, are greater or less, or exist.
func mongoFilter(filter map[string]any) (sql, problem string) {
	var fields, parts []string
	for field := range filter {
		fields = append(fields, field)
	}
	slices.Sort(fields)
	for _, field := range fields {
		if field == "$and" {
			for _, each := range flat(filter[field]) {
				part, problem := mongoFilter(each)
				if problem != "" {
					return "", problem
				}
				parts = append(parts, part)
			}
			continue
		}
		if strings.ContainsAny(field, "$.") {
			return "", field + " is not one that import knows"
		}
		tests, isDocument := filter[field].(map[string]any)
		if !isDocument {
			tests = map[string]any{"$eq": filter[field]}
		}
		part, problem := mongoTests(schemas.Identifier(field), tests)
		if problem != "" {
			return "", problem
		}
		parts = append(parts, part...)
	}
	return strings.Join(parts, " and "), ""
}

func mongoTests(column string, tests map[string]any) (parts []string, problem string) {
	operators := map[string]string{"$eq": "=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
	var names []string
	for name := range tests {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := text(tests, name)
		if _, isText := tests[name].(string); isText {
			value = schemas.Literal(value)
		}
		switch {
		case name == "$exists" && value == "true":
			parts = append(parts, column+" is not null")
		case operators[name] != "" && value != "":
			parts = append(parts, fmt.Sprintf("%s %s %s", column, operators[name], value))
		default:
			return nil, name + " is not one that import knows"
		}
	}
	return parts, ""
}
