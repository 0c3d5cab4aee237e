package importer

import (
	"context"
	"strings"

	"lapse/planner/policyfile"
)

// partmanCatalog reads pg_partman's part_config.
func partmanCatalog(ctx context.Context, s *Server) ([]Item, error) {
	rows, err := s.rowsOf(ctx, "part_config", "select to_jsonb(t)::text from %s.part_config t order by parent_table")
	if err != nil {
		return nil, err
	}
	return partmanSets(ctx, s, rows)
}

// partmanText reads its rows as JSON.
func partmanText(ctx context.Context, s *Server, body string) ([]Item, error) {
	rows, err := documents(body)
	if err != nil {
		return nil, err
	}
	return partmanSets(ctx, s, rows)
}

func partmanSets(ctx context.Context, s *Server, rows []map[string]any) (items []Item, err error) {
	for _, row := range rows {
		i := Item{Origin: "Partition set " + text(row, "parent_table"), Text: "retention " + orElse(text(row, "retention"), "none") + ", control " + text(row, "control") +
			", partition_interval " + text(row, "partition_interval") + ", retention_keep_table " + text(row, "retention_keep_table")}
		if err := partmanSet(ctx, s, row, &i); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	return items, nil
}

// partmanSet makes the policy of a set. pg_partman drops a partition when its end is longer ago than retention. Lapse lets each row become due
// separately, and drops a partition when all of its rows are. The policy adds the partition's length, so no row goes sooner than with pg_partman.
func partmanSet(ctx context.Context, s *Server, row map[string]any, i *Item) error {
	switch {
	case text(row, "retention") == "":
		i.Apart = true
		i.note("it has no retention: its partitions stay")
		return nil
	case text(row, "retention_schema") != "":
		i.lose("pg_partman moves old partitions to schema %s and deletes nothing", text(row, "retention_schema"))
		return nil
	case text(row, "retention_keep_table") != "false":
		i.lose("retention_keep_table: pg_partman detaches old partitions and keeps them as tables; a policy would delete their rows")
		return nil
	case strings.Trim(text(row, "retention"), "0123456789") == "" && orElse(text(row, "epoch"), "none") == "none":
		i.lose("retention is a number of ids, and no time")
		return nil
	}
	wait, ok, err := s.readInterval(ctx, text(row, "retention"))
	if err != nil {
		return err
	}
	length, okay, err := s.readInterval(ctx, text(row, "partition_interval"))
	if err != nil {
		return err
	}
	if !ok || !okay {
		i.lose("retention and partition_interval are not both intervals")
		return nil
	}
	c, err := s.column(ctx, i, text(row, "parent_table"), strings.Trim(text(row, "control"), `"`))
	if err != nil || c == nil {
		return err
	}
	switch epoch := orElse(text(row, "epoch"), "none"); {
	case epoch == "none" && c.of.epoch == "", epoch == "seconds" && c.of.epoch != "":
	case epoch == "milliseconds" && c.of.epoch != "":
		c.of.epoch = "ms"
	default:
		i.lose("epoch: %s does not fit to column %s, which is of type %s", epoch, c.name, c.s.columns[c.name])
		return nil
	}
	c.of.unit = "" // a date means its midnight
	if i.before(c, wait.plus(length), policyName(lastName(c.table.Name), "retention")) {
		i.Policy.Action = policyfile.Action{Kind: policyfile.ActionDropPartition}
		i.lose("pg_partman drops a partition %s after its end, and a policy deletes each row by its own time; with the length of a partition (%s) added, "+
			"no row goes sooner than by pg_partman, and some go that much later", wait.interval(), length.interval())
	}
	return nil
}
