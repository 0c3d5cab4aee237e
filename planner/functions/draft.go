package functions

import (
	"fmt"
	"strings"

	"lapse/schemas"
)

// DraftSurvey is the name of the survey function of a draft.
const DraftSurvey = "pg_temp.survey"

// DraftSurvey returns the script that makes the survey function of a draft on table, in place of the one of planner/database/draft.sql, which checks the table.
func (d *Definition) DraftSurvey(table uint32, trusts bool) (string, error) {
	if err := d.checkNames(); err != nil {
		return "", err
	}
	var joined []string
	for _, j := range d.Joined() {
		joined = append(joined, fmt.Sprint(j.OID))
	}
	inspect := fmt.Sprintf("pg_temp.inspect(%d, %s, array[%s]::oid[], %t, %t, false)",
		table, schemas.Literal(d.Table), strings.Join(joined, ", "), d.Soft != nil, trusts)
	return d.surveyText("pg_temp", DraftSurvey, inspect, "", d.findStatement(leafMark, "$1", "$2", "$3", "$4"))
}

// DraftMatch returns the script that makes the function name, which compares a table's rows with the condition of a hold, or with its
// keys. It checks the table likewise.
func DraftMatch(name, table string, oid uint32, where string, keys bool) (string, error) {
	return fill("match.sql.tmpl", map[string]any{
		"Name": name, "Table": table, "Root": oid, "Literal": schemas.Literal(table), "Keys": keys, "Where": where,
	})
}
