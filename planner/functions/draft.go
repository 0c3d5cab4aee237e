package functions

import (
	"fmt"
	"strings"

	"lapse/schemas"
)

// DraftSurvey is the name of the survey function of a draft.
const DraftSurvey = "pg_temp.survey"

// DraftSurvey returns the script that makes the survey function of a draft on table.
func (d *Definition) DraftSurvey(table uint32, trusts bool) (string, error) {
	if err := d.checkNames(); err != nil {
		return "", err
	}
	var joined []string
	for _, j := range d.Joined() {
		joined = append(joined, fmt.Sprint(j.OID))
	}
	inspect, err := fill("draft.sql.tmpl", map[string]any{
		"Table": d.Table, "Root": table, "Name": schemas.Literal(d.Table), "Trusted": trusts, "Soft": d.Soft != nil, "Joined": strings.Join(joined, ", "), "Reads": false,
	})
	if err != nil {
		return "", err
	}
	survey, err := d.surveyText("pg_temp", DraftSurvey, "pg_temp.inspect()", "", d.findStatement(leafMark, "$1", "$2", "$3", "$4"))
	return inspect + survey + "grant execute on function " + DraftSurvey + SurveyArguments + " to public;\n", err
}

// DraftMatch returns the script that makes the function name, which compares a table's rows with the condition of a hold, or with its
// keys.
func DraftMatch(name, table string, oid uint32, where string, keys bool) (string, error) {
	inspect, err := fill("draft.sql.tmpl", map[string]any{
		"Table": table, "Root": oid, "Name": schemas.Literal(table), "Reads": true, "Trusted": false, "Soft": false, "Joined": "",
	})
	if err != nil {
		return "", err
	}
	match, err := fill("match.sql.tmpl", map[string]any{"Name": name, "Table": table, "Keys": keys, "Where": where})
	return inspect + match, err
}
