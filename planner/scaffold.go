package planner

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"unicode/utf8"

	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// ScaffoldOption is a way to give a table's rows a due time.
type ScaffoldOption string

// The options of a scaffold.
const (
	ScaffoldExpiresAt ScaffoldOption = "expires_at" // a column, with a default at INSERT
	ScaffoldTTL       ScaffoldOption = "ttl"        // created_at and ttl_seconds, and the column computed from them
	ScaffoldSidecar   ScaffoldOption = "sidecar"    // a registry next to the table, which stays as it is
)

// ScaffoldMark is the comment on what a scaffold made, and so may remove.
const ScaffoldMark = "made by lapse scaffold"

// Scaffold says what a scaffold adds to a table. Its SQL is a pure function of it, which includes the table as it was found.
type Scaffold struct {
	Schema, Table string
	Owner         string // the role that everything belongs to
	Option        ScaffoldOption
	After         expiry.Interval
	Column        string // the column of the due time
	Refresh       bool   // an UPDATE restarts the time
	Present       []ScaffoldColumn
	Key           []ScaffoldColumn // of the primary key; for a sidecar
	Writers       []string         // who may insert into the table, as GRANT names them; for a sidecar
	Registry      bool             // there is a sidecar already
	Leaves        []string         // where the rows are, as SQL writes it
}

// ScaffoldColumn is a column of the table.
type ScaffoldColumn struct {
	Name string
	Type string // as SQL writes it, with its collation
	Made bool   // a scaffold made it
}

//go:embed scaffold.sql.tmpl hide.sql.tmpl
var scaffoldText embed.FS

var scaffoldTemplate = template.Must(template.New("").Option("missingkey=error").
	Funcs(template.FuncMap{"id": identifier, "lit": schemas.Literal, "inner": functions.Inner}).ParseFS(scaffoldText, "*.tmpl"))

func identifier(name string) string { return schemas.Identifier(name) }

// Columns are the names of the columns that the option adds.
func (s *Scaffold) Columns() []string {
	switch s.Option {
	case ScaffoldExpiresAt:
		return []string{s.Column}
	case ScaffoldTTL:
		return []string{"created_at", "ttl_seconds", s.Column}
	}
	return nil
}

// has reports whether the table has a column.
func (s *Scaffold) has(name string) bool {
	return slices.ContainsFunc(s.Present, func(c ScaffoldColumn) bool { return c.Name == name })
}

// made reports whether a scaffold made the column.
func (s *Scaffold) made(name string) bool {
	return slices.ContainsFunc(s.Present, func(c ScaffoldColumn) bool { return c.Name == name && c.Made })
}

// longestName is the longest name that PostgreSQL keeps whole, in bytes.
const longestName = 63

// derived makes a name from a table's, at most longestName bytes long. A digest distinguishes names that are cut off.
func derived(before, table, after string) string {
	name := before + table + after
	if len(name) <= longestName {
		return name
	}
	sum := sha256.Sum256([]byte(table))
	after = "_" + hex.EncodeToString(sum[:4]) + after
	cut := table[:longestName-len(before)-len(after)]
	for !utf8.ValidString(cut) {
		cut = cut[:len(cut)-1]
	}
	return before + cut + after
}

// RegistryName is the sidecar's name, in the table's schema.
func (s *Scaffold) RegistryName() string { return derived("", s.Table, "_ttl") }

// Check returns why the scaffold cannot be written.
func (s *Scaffold) Check() error {
	for _, name := range append([]string{s.Schema, s.Table, s.Owner, s.Column}, s.keyNames()...) {
		if strings.Contains(name, functions.BodyQuote) || strings.ContainsAny(name, "\r\n") {
			return fmt.Errorf("write the scaffold of %s: a name contains a line break or %s, which ends a function's body: rename it", schemas.Identifier(s.Schema, s.Table), functions.BodyQuote)
		}
	}
	switch {
	case s.Option == ScaffoldTTL && (s.After.Months != 0 || s.After.Exact()%1e6 != 0):
		return fmt.Errorf("a ttl is a number of whole seconds, and %s is not: write days", s.After)
	case s.Option == ScaffoldTTL && (s.Column == "created_at" || s.Column == "ttl_seconds"):
		return fmt.Errorf("the column of the due time cannot be %s, which option ttl has for something else", s.Column)
	case s.Option == ScaffoldSidecar && len(s.Key) == 0:
		return fmt.Errorf("a sidecar shares the primary key of %s, which has none: add one, or use another option", schemas.Identifier(s.Schema, s.Table))
	case slices.Contains(s.keyNames(), s.Column):
		return fmt.Errorf("%s is a column of the primary key: name another with --column", s.Column)
	}
	return nil
}

func (s *Scaffold) keyNames() []string {
	names := make([]string, len(s.Key))
	for i, k := range s.Key {
		names[i] = k.Name
	}
	return names
}

// SQL is the script that makes the scaffold: one transaction, which can be repeated. It rewrites no table and reads no row.
func (s *Scaffold) SQL() (string, error) { return s.fill("make " + string(s.Option)) }

// DropSQL removes the scaffold: triggers and functions and, with columns, also the columns that it added to the table, or the sidecar. What no
// scaffold made stays.
func (s *Scaffold) DropSQL(columns bool) (string, error) {
	return s.fill("drop", "DropColumns", columns)
}

// BackfillSQL gives existing rows a due time, counted from now, or from the created_at that option ttl finds. It works in pieces, each a
// transaction of its own; if run again it continues. The table's own triggers fire.
func (s *Scaffold) BackfillSQL() (string, error) { return s.fill("backfill") }

// Entry is the entry of the policy file for it.
func (s *Scaffold) Entry() string {
	name := strings.Trim(notInPolicyName.ReplaceAllString(strings.ToLower(s.Table), "-"), "-.")
	p := policyfile.Policy{
		Name: schemas.PolicyName(name[:min(len(name), 50)] + "-expiry"), Table: schemas.Identifier(s.Schema, s.Table),
		Expire: expiry.Entry{"column": s.Column, "after": "0 days"},
	}
	if s.Option == ScaffoldSidecar {
		p.Expire["sidecar"] = schemas.Identifier(s.Schema, s.RegistryName())
	}
	return p.Entry()
}

var notInPolicyName = regexp.MustCompile(`[^a-z0-9_.-]+`)

func (s *Scaffold) fill(name string, more ...any) (string, error) {
	if err := s.Check(); err != nil {
		return "", err
	}
	table := schemas.Identifier(s.Schema, s.Table)
	facts := scaffoldFacts{
		"Table": table, "Owner": s.Owner, "Column": s.Column, "After": s.After.String(), "Seconds": s.After.Exact() / 1e6,
		"Refresh": s.Refresh, "Mark": ScaffoldMark, "Add": s.adds(), "Remove": s.removes(), "Key": s.Key, "Writers": s.Writers,
		"Insert":   schemas.Identifier(s.Schema, derived("lapse_expire_", s.Table, "")),
		"Update":   schemas.Identifier(s.Schema, derived("lapse_refresh_", s.Table, "")),
		"Registry": schemas.Identifier(s.Schema, s.RegistryName()), "HasRegistry": s.Registry, "Leaves": s.Leaves,
		"Index": schemas.Identifier(derived("lapse_", s.Table, "_ttl")), "Option": string(s.Option),
		"KeyList": s.list(""), "NewKey": s.list("new."), "BaseKey": s.list("t."), "Entry": strings.Split(strings.TrimSuffix(s.Entry(), "\n"), "\n"),
	}
	for i := 0; i < len(more); i += 2 {
		facts[fmt.Sprint(more[i])] = more[i+1]
	}
	var sql strings.Builder
	if err := scaffoldTemplate.ExecuteTemplate(&sql, name, facts); err != nil {
		return "", fmt.Errorf("write the scaffold of %s: %w", table, err)
	}
	return sql.String(), nil
}

// scaffoldFacts are what the templates are filled with.
type scaffoldFacts map[string]any

// With returns the facts with the instant that a ttl is counted from.
func (f scaffoldFacts) With(from string) scaffoldFacts {
	more := maps.Clone(f)
	more["From"] = from
	return more
}

// list writes the key's columns.
func (s *Scaffold) list(prefix string) string {
	names := make([]string, len(s.Key))
	for i, k := range s.Key {
		names[i] = prefix + schemas.Identifier(k.Name)
	}
	return strings.Join(names, ", ")
}

// adds are the missing columns, with their types.
func (s *Scaffold) adds() (add []ScaffoldColumn) {
	for _, name := range s.Columns() {
		kind := "timestamp with time zone"
		if name == "ttl_seconds" && s.Option == ScaffoldTTL {
			kind = "bigint"
		}
		if !s.has(name) {
			add = append(add, ScaffoldColumn{Name: name, Type: kind})
		}
	}
	return add
}

func (s *Scaffold) removes() (names []string) {
	for _, name := range s.Columns() {
		if s.made(name) {
			names = append(names, name)
		}
	}
	return names
}
