package schemas

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A draft is a set of copies of the catalog's functions in the session's own temporary schema. Callers use it if the catalog does not
// exist, or if they may not call its functions. It ends with the transaction that made it.

// called finds calls of the catalog's functions.
var called = regexp.MustCompile(`\blapse\.([a-z_0-9]+)\(`)

// InDraft rewrites SQL to call a draft's functions; names are all functions of the draft.
func InDraft(sql string, names []string) string {
	return called.ReplaceAllStringFunc(sql, func(call string) string {
		name := strings.TrimSuffix(strings.TrimPrefix(call, "lapse."), "(")
		if !slices.Contains(names, name) {
			return call
		}
		return "pg_temp." + name + "("
	})
}

// DraftSQL returns the script that copies functions of the newest catalog, and all functions that they call, under the names that InDraft
// uses. PostgreSQL compiles none of them until it is called.
func DraftSQL(roles Roles, wanted ...string) (script string, names []string, err error) {
	texts, err := functionTexts(roles)
	if err != nil {
		return "", nil, err
	}
	names = slices.Clone(wanted)
	for i := 0; i < len(names); i++ {
		text, there := texts[names[i]]
		if !there {
			return "", nil, fmt.Errorf("draft the catalog: the migrations have no function lapse.%s", names[i])
		}
		for _, call := range called.FindAllStringSubmatch(text, -1) {
			if _, there := texts[call[1]]; there && !slices.Contains(names, call[1]) {
				names = append(names, call[1])
			}
		}
	}
	types, err := typeTexts(roles)
	if err != nil {
		return "", nil, err
	}
	var made, sql strings.Builder
	done := map[string]bool{}
	for _, name := range names {
		text := namedType.ReplaceAllStringFunc(InDraft(texts[name], names), func(mention string) string {
			of := namedType.FindStringSubmatch(mention)
			if types[of[1]] == "" {
				return mention
			}
			if !done[of[1]] {
				done[of[1]] = true
				fmt.Fprintf(&made, "create type pg_temp.%s as %s;\n", of[1], types[of[1]])
			}
			return "pg_temp." + of[1] + of[2]
		})
		fmt.Fprintf(&sql, "%s;\ngrant execute on function pg_temp.%s to public;\n", text, name)
	}
	return "set local check_function_bodies = off;\n" + made.String() + sql.String(), names, nil
}

// namedType finds what may be a type of the catalog, with the character after it, which for a call is "(". madeType finds its definition.
var (
	namedType = regexp.MustCompile(`\blapse\.([a-z_0-9]+)([^a-z_0-9(]|$)`)
	madeType  = regexp.MustCompile(`(?s)\ncreate type lapse\.([a-z_0-9]+) as (\([^;]*\));`)
)

// typeTexts returns the fields of the catalog's types, by name without the schema.
func typeTexts(roles Roles) (map[string]string, error) {
	steps, err := Migrations(roles)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, step := range steps {
		for _, made := range madeType.FindAllStringSubmatch(step.SQL, -1) {
			texts[made[1]] = made[2]
		}
	}
	return texts, nil
}

// functionTexts returns the texts of the catalog's functions, by name without the schema.
func functionTexts(roles Roles) (map[string]string, error) {
	steps, err := Migrations(roles)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, step := range steps {
		for sql := step.SQL; ; {
			start := strings.Index(sql, bodyStart)
			if start < 0 {
				break
			}
			start += len(bodyStart)
			body, rest, found := strings.Cut(sql[start:], bodyQuote)
			if head := functionHead.FindStringSubmatchIndex(sql[:start]); head != nil {
				if !found {
					return nil, fmt.Errorf("read a function's text: %s has no end", sql[head[2]:head[3]])
				}
				texts[strings.TrimPrefix(sql[head[2]:head[3]], "lapse.")] = sql[head[0]:start] + body + bodyQuote
			}
			sql = rest
		}
	}
	return texts, nil
}
