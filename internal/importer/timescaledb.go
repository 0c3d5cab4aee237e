package importer

import (
	"context"
	"strings"

	"lapse/planner/expiry"
	"lapse/planner/policyfile"
)

// timescaleCatalog reads TimescaleDB's jobs that drop chunks, each with its hypertable's time column.
func timescaleCatalog(ctx context.Context, s *Server) ([]Item, error) {
	rows, err := s.rowsOf(ctx, "jobs", `select (to_jsonb(j) || coalesce(to_jsonb(d), '{}'))::text from %[1]s.jobs j
		left join %[1]s.dimensions d on (d.hypertable_schema, d.hypertable_name, d.dimension_number) = (j.hypertable_schema, j.hypertable_name, 1)
		where '%[1]s' ~ 'timescaledb_information' order by j.job_id`)
	if err != nil {
		return nil, err
	}
	return timescaleJobs(rows), nil
}

// timescaleText reads such jobs as JSON.
func timescaleText(_ context.Context, _ *Server, body string) ([]Item, error) {
	rows, err := documents(body)
	if err != nil {
		return nil, err
	}
	return timescaleJobs(rows), nil
}

func timescaleJobs(rows []map[string]any) (items []Item) {
	for _, row := range rows {
		if !strings.Contains(text(row, "proc_name"), "retention") {
			continue
		}
		table := tableName(orElse(text(row, "hypertable_schema"), "public"), text(row, "hypertable_name"))
		config := inner(row, "config")
		i := Item{Origin: "Job " + text(row, "job_id") + ", hypertable " + table, Text: written(config)}
		wait, ok := spelled(text(config, "drop_after"))
		length, okay := spelled(text(row, "time_interval"))
		switch column := text(row, "column_name"); {
		case text(row, "proc_name") != "policy_retention":
			i.lose("%s is a job of somebody's own, which is not read", text(row, "proc_name"))
		case !ok:
			i.lose("drop_after is no interval: a number is one of the hypertable's own time")
		case column == "" || !okay:
			i.lose("the JSON does not say column_name and time_interval, which timescaledb_information.dimensions has: give the rows of both together")
		default:
			i.Policy = &policyfile.Policy{
				Name: policyName(lastName(table), "retention"), Table: table, Every: policyfile.DefaultEvery,
				Expire: expiry.Entry{"column": column, "after": atMost(wait).plus(atMost(length)).inDays().interval().String()},
				Action: policyfile.Action{Kind: policyfile.ActionDropPartition},
			}
			if every := text(row, "schedule_interval"); every != "" {
				i.every(every)
			}
			i.lose("a policy is on a table or a declaratively partitioned table, and not on a hypertable: it is for the table that the rows go to. TimescaleDB drops a chunk "+
				"%s after its end; with the length of a chunk (%s) added no row goes sooner", wait.interval(), length.interval())
		}
		items = append(items, i)
	}
	return items
}

// atMost converts a period's months to the largest number of days that they can have.
func atMost(p period) period {
	if p.months == 0 {
		return p
	}
	return period{0, p.days + longest(p.months), p.us}
}
