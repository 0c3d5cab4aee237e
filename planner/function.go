package planner

import (
	"embed"
	"fmt"
	"strings"
	"text/template"

	"lapse/schemas"
)

//go:embed delete.sql.tmpl survey.sql.tmpl
var functionTexts embed.FS

// bodyQuote encloses the functions' bodies.
const bodyQuote = "$lapse$"

var functionTemplates = template.Must(template.New("").Option("missingkey=error").
	Funcs(template.FuncMap{"inner": func(sql any) string { return inner(fmt.Sprint(sql)) }}).ParseFS(functionTexts, "*.tmpl"))

// DeleteFunction names the deletion function of a policy version, with its schema.
func DeleteFunction(id PolicyID, version PolicyVersion) string {
	return fmt.Sprintf("lapse.delete_%d_%d", id, version)
}

// SurveyFunction names the counting function of a policy version, with its schema.
func SurveyFunction(id PolicyID, version PolicyVersion) string {
	return fmt.Sprintf("lapse.survey_%d_%d", id, version)
}

// DeleteArguments are the types of a deletion function's arguments, as GRANT and ALTER FUNCTION name them.
const DeleteArguments = "text, oid, xid8, timestamptz, uuid, uuid, timestamptz, bigint, oid, oid[], bytea, bigint, bigint, text, int"

// SurveyArguments are the types of a survey function's arguments.
const SurveyArguments = "timestamptz"

// FunctionsSQL returns the script that makes a policy version's two functions, gives them to the deleter and lets the
// executor call them. It runs in the transaction that makes the version, as a role that may become the deleter: nobody
// else can call the functions at any moment.
func FunctionsSQL(d *Definition, roles schemas.Roles) (string, error) {
	remove, err := d.deleteFunction()
	if err != nil {
		return "", err
	}
	survey, err := d.surveyFunction()
	if err != nil {
		return "", err
	}
	var sql strings.Builder
	sql.WriteString(remove)
	sql.WriteString(survey)
	for _, signature := range []string{
		DeleteFunction(d.ID, d.Version) + "(" + DeleteArguments + ")",
		SurveyFunction(d.ID, d.Version) + "(" + SurveyArguments + ")",
	} {
		fmt.Fprintf(&sql, "revoke all on function %s from public;\n", signature)
		fmt.Fprintf(&sql, "grant execute on function %s to %s;\n", signature, identifier(roles.Executor))
		fmt.Fprintf(&sql, "alter function %s owner to %s;\n", signature, identifier(roles.Deleter))
	}
	return sql.String(), nil
}

// deleteFunction is the text of the deletion function. It refuses to write one whose DELETE does not restate the
// expiry.
func (d *Definition) deleteFunction() (string, error) {
	due := d.due("$1", "$2")
	order, _ := d.orderColumns()
	text, err := fill("delete.sql.tmpl", map[string]any{
		"Name": DeleteFunction(d.ID, d.Version), "ID": d.ID, "Version": d.Version, "Policy": literal(string(d.Name)),
		"Table": d.Table, "TableName": literal(d.Table), "Batch": d.Batch,
		"BoundType": d.ColumnType, "Bound": d.bound("claim_cutoff"), "Due": due,
		"PickSelect": statement(strings.ReplaceAll(inner(d.pickSelect(leafMark, "$1", "$2")), leafMark, "' || leaf || '")),
		"PickAfter":  statement(d.pickAfter("$4")), "PickTail": statement(d.pickTail("$3")), "LastPlace": d.lastPlace(),
		"Names": order, "Columns": d.columns(),
	})
	if err != nil {
		return "", err
	}
	_, deletion, found := strings.Cut(text, "delete from only")
	if !found || !strings.Contains(deletion, inner(due)) {
		return "", fmt.Errorf("policy %s: the deletion does not restate when a row is due", d.Name)
	}
	return text, nil
}

func (d *Definition) surveyFunction() (string, error) {
	return fill("survey.sql.tmpl", map[string]any{
		"Name": SurveyFunction(d.ID, d.Version), "Policy": d.Name, "Table": d.Table,
		"BoundType": d.ColumnType, "Bound": d.bound("at_cutoff"), "Due": d.due("at_cutoff", "bound"),
		"Column": d.column(), "Instant": d.instant(),
	})
}

func fill(name string, facts map[string]any) (string, error) {
	for _, fact := range facts {
		if _, long := fact.(statement); long {
			continue
		}
		text := fmt.Sprint(fact)
		if strings.Contains(text, bodyQuote) || strings.ContainsAny(text, "\r\n") {
			return "", fmt.Errorf("write %s: a name contains a line break or %s, which ends a function's body: rename it", name, bodyQuote)
		}
	}
	var sql strings.Builder
	if err := functionTemplates.ExecuteTemplate(&sql, name, facts); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return sql.String(), nil
}

// statement is SQL of several lines. The names in it are checked where they stand alone.
type statement string

// leafMark stands for the leaf while the pick is written; no name contains it.
const leafMark = "\x00"

// inner writes SQL for a place inside a quoted statement text.
func inner(sql string) string { return strings.ReplaceAll(sql, "'", "''") }
