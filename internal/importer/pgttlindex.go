package importer

import (
	"context"
	"strconv"

	"lapse/planner/policyfile"
)

// ttlIndexCatalog reads pg_ttl_index's table of its own.
func ttlIndexCatalog(ctx context.Context, s *Server) ([]Item, error) {
	rows, err := s.rowsOf(ctx, "ttl_index_table", "select to_jsonb(t)::text from %s.ttl_index_table t order by 1")
	if err != nil {
		return nil, err
	}
	return ttlIndexes(ctx, s, rows)
}

// ttlIndexText reads its rows as JSON.
func ttlIndexText(ctx context.Context, s *Server, body string) ([]Item, error) {
	rows, err := documents(body)
	if err != nil {
		return nil, err
	}
	return ttlIndexes(ctx, s, rows)
}

// ttlIndexes makes an item of each row. The extension's worker deletes rows with column < now() - seconds, once a minute.
func ttlIndexes(ctx context.Context, s *Server, rows []map[string]any) (items []Item, err error) {
	for _, row := range rows {
		schema, table := text(row, "schema_name"), text(row, "table_name")
		if schema == "" {
			schema = "public"
		}
		i := Item{Origin: "TTL index of " + tableName(schema, table), Text: written(row)}
		c, err := s.column(ctx, &i, tableName(schema, table), text(row, "column_name"))
		if err != nil {
			return nil, err
		}
		n, wrong := strconv.ParseInt(text(row, "expire_after_seconds"), 10, 64)
		wait, ok := seconds(n)
		switch {
		case c == nil:
		case wrong != nil || !ok:
			i.lose("expire_after_seconds is no number of seconds")
		case i.before(c, wait, policyName(table, "ttl")):
			i.Policy.Every = "1 minute"
			if size, err := strconv.Atoi(text(row, "batch_size")); err == nil && size > 0 {
				i.Policy.Batch = min(size, policyfile.MaxBatch)
			}
			if soft := text(row, "soft_delete_column"); soft != "" {
				i.Policy.Action = policyfile.Action{Kind: policyfile.ActionSoft, Column: soft}
			}
			if text(row, "active") == "false" {
				i.note("it is not active there")
			}
		}
		items = append(items, i)
	}
	return items, nil
}
