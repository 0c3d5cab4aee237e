package importer

import (
	"context"
	"errors"
	"fmt"

	"lapse/planner/expiry"
)

// dynamoText reads the output of describe-time-to-live and update-time-to-live: an attribute with the due time in seconds since 1970.
func dynamoText(_ context.Context, _ *Server, body string) (items []Item, err error) {
	all, err := documents(body)
	if err != nil {
		return nil, err
	}
	for n, d := range all {
		ttl, where := inner(d, "TimeToLiveDescription"), d
		for _, name := range []string{"TimeToLiveSpecification", "Properties"} {
			if of := inner(where, name); ttl == nil && of != nil {
				if ttl = of; name == "Properties" {
					where, ttl = of, inner(of, "TimeToLiveSpecification")
				}
			}
		}
		if ttl == nil {
			continue
		}
		attribute, table := text(ttl, "AttributeName"), text(where, "TableName")
		i := elsewhere(fmt.Sprintf("Document %d", n+1), written(d), tableName("public", table), expiry.Entry{"column": attribute, "epoch": "s"})
		i.Notes = []string{"table and column have the names that they have there; the column is one of numbers"}
		i.lose("DynamoDB leaves items that expired more than five years ago, and Lapse deletes them")
		if status := text(ttl, "TimeToLiveStatus", "Enabled"); status == "DISABLED" || status == "false" {
			i.note("TTL is not enabled there")
		}
		switch {
		case attribute == "":
			i.Policy, i.Notes, i.Lost = nil, nil, []string{"it names no attribute: TTL is not enabled there"}
		case table == "":
			i.Policy, i.Notes, i.Lost = nil, nil, []string{`describe-time-to-live does not name the table: add "TableName": "…" to the document`}
		}
		items = append(items, i)
	}
	if len(items) == 0 {
		return nil, errors.New("there is no TimeToLiveDescription and no TimeToLiveSpecification in the JSON")
	}
	return items, nil
}
