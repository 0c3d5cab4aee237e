package resolve

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/record"
)

// floorsOn are the floors about a table and what its rows take along. Names are as the catalog quotes them.
func floorsOn(floors []functions.Floor, table string, cascades []string) []functions.Floor {
	var on []functions.Floor
	for _, f := range floors {
		for _, name := range append([]string{table}, cascades...) {
			if matches(f.Table, unquoted(name)) {
				f.Of = name
				on = append(on, f)
			}
		}
	}
	return on
}

// matches reports whether a name fits a pattern in which * stands for any characters, and ? for one.
func matches(pattern, name string) bool {
	text := regexp.QuoteMeta(pattern)
	text = strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(text)
	fits, err := regexp.MatchString(`(?s)^`+text+`$`, name)
	return fits || err != nil // no pattern is an error; if one were, the floor would hold
}

// unquoted is a quoted name as in the catalog, schema and table with a dot between them.
func unquoted(name string) string {
	const doubled = "\x00" // in no name
	return strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(name, `""`, doubled), `"`, ""), doubled, `"`)
}

// readFloors lets PostgreSQL read the floors' durations. What it cannot read is a problem.
func readFloors(ctx context.Context, tx pgx.Tx, written []policyfile.Floor) (floors []functions.Floor, problems []string, err error) {
	for _, w := range written {
		least, problem, err := expiry.ReadInterval(ctx, tx, w.Least)
		if err != nil {
			return nil, nil, err
		}
		if problem != "" {
			problems = append(problems, fmt.Sprintf("the floor of %s in lapse.yaml: %s", w.Table, problem))
		}
		floors = append(floors, functions.Floor{Table: w.Table, Least: least, Reason: w.Reason, TrustColumn: w.TrustColumn})
	}
	return floors, problems, nil
}

// BelowFloor says in what the version in force is below floors as they are today: they were raised, or are new. It is to be
// changed, and neither armed nor resumed meanwhile.
func BelowFloor(ctx context.Context, db database.DB, p *record.InForce, written []policyfile.Floor) (problems []string, err error) {
	err = database.Pinned(ctx, db, func(tx pgx.Tx) error {
		floors, unreadable, err := readFloors(ctx, tx, written)
		problems = append(unreadable, functions.FloorProblems(floorsOn(floors, p.TableName, p.Spec.Cascades), p.TableName, p.Definition.Expire)...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("hold policy %s to the floors: %w", p.Name, err)
	}
	return problems, nil
}

// holdTo writes the floors about a version into it that is made of the one in force, so that no more falls due. It keeps the
// floors on record where it is below those of today: what pauses or lengthens a policy is not refused.
func (e *Entry) holdTo(v *record.Version) {
	floors := floorsOn(e.floors, v.Definition.Table, v.Spec.Cascades)
	if len(functions.FloorProblems(floors, v.Definition.Table, v.Definition.Expire)) == 0 {
		v.Spec.Floor, v.Definition.Floors = floors, floors
	}
}
