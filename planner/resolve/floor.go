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

// floorsOn are the floors about a table and the tables in which its cascades delete. Names are as the catalog quotes them.
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

// unquoted removes the quotes from a name, and joins schema and table by a dot.
func unquoted(name string) string {
	const doubled = "\x00" // in no name
	return strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(name, `""`, doubled), `"`, ""), doubled, `"`)
}

// readFloors lets PostgreSQL read the floors' durations. Those that it cannot read are problems.
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

// BelowFloor says how the version in force violates today's floors, because a floor was raised or is new. Such a version can be neither armed
// nor resumed until it is changed.
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

// holdTo writes floors into a version that is made of the one in force, so that no more falls due. If the version is below today's floors, it
// keeps the floors on record: a change that pauses or lengthens a policy is not refused.
func (e *Entry) holdTo(v *record.Version) {
	floors := floorsOn(e.floors, v.Definition.Table, v.Spec.Cascades)
	if len(functions.FloorProblems(floors, v.Definition.Table, v.Definition.Expire)) == 0 {
		v.Spec.Floor, v.Definition.Floors = floors, floors
	}
}
