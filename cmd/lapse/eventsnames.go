package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/internal/yamldoc"
	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/replication"
	"lapse/schemas"
)

// known holds the names of policies and tables in the catalog, the topics or the log. Without this check, an auditor who mistypes a name would
// read an empty answer as: nothing was deleted.
type known struct {
	policies, tables map[string]bool
	unasked          error // why the catalog was not read; nil if it was
}

func (k *known) add(policy string, tables ...string) {
	if k.policies == nil {
		k.policies, k.tables = map[string]bool{}, map[string]bool{}
	}
	k.policies[policy] = true
	for _, table := range tables {
		k.tables[table] = true
	}
}

// catalogPatience is how long the command waits for the catalog. A reader of the topics may have no login.
const catalogPatience = 5 * time.Second

// askCatalog reads the catalog's names. It completes a table name without a schema if only one table has that name.
func (c *consumer) askCatalog(ctx context.Context) {
	if c.policy == "" && c.table == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, catalogPatience)
	defer cancel()
	if c.known.unasked = c.readCatalog(ctx); c.known.unasked != nil || c.known.tables[c.table] {
		return
	}
	if same := c.known.named(c.table); len(same) == 1 {
		c.table = same[0]
	}
}

func (c *consumer) readCatalog(ctx context.Context) error {
	conn, _, err := c.openReader(ctx)
	if err != nil {
		return err
	}
	defer database.Close(conn)
	policies, err := record.Names(ctx, conn)
	if err != nil {
		return err
	}
	rows, err := conn.Query(ctx, `
		select p.table_name from lapse.policy p
		union select jsonb_array_elements_text(p.spec -> 'cascades') from lapse.policy p where jsonb_typeof(p.spec -> 'cascades') = 'array'
		union select format('%I.%I', t.schemaname, t.tablename) from pg_publication_tables t where t.pubname = any ($1) and t.schemaname <> 'lapse'`,
		replication.Publications())
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	c.known.add("", tables...)
	for _, policy := range policies {
		c.known.add(policy)
	}
	return nil
}

// readLogNames adds the log's names, among them those of published tables without deletions.
func (c *consumer) readLogNames(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	type table struct{ Table, Root, Former string }
	read := 0
	err := c.client.Backward(ctx, c.settings.Topics.Log, 0, -1, func(rec *schemas.Record, _ int64) (bool, error) {
		read++
		var r struct {
			table
			Claim            struct{ Policy string }
			Observed, Tables []table
		}
		if json.Unmarshal(rec.Value, &r) == nil { // a fence is not a log record
			c.known.add(r.Claim.Policy, r.Table, r.Root)
			for _, t := range slices.Concat(r.Observed, r.Tables) {
				c.known.add("", t.Table, t.Root, t.Former)
			}
		}
		return read < maxLogRead, nil
	})
	var missing *store.MissingError
	if errors.As(err, &missing) {
		return nil
	}
	return c.silence(err)
}

// met adds the names in a record's headers.
func (c *consumer) met(r *schemas.Record) {
	if c.policy != "" || c.table != "" {
		c.known.add(r.Header(evidence.HeaderPolicy), r.Header(evidence.HeaderTable), r.Header(evidence.HeaderRoot))
	}
}

// checkNames refuses an unknown policy or table.
func (c *consumer) checkNames(ctx context.Context) error {
	unknown := func() bool {
		return c.policy != "" && !c.known.policies[c.policy] || c.table != "" && !c.known.tables[c.table]
	}
	if !unknown() {
		return nil
	}
	c.known.add("", "")
	if c.known.unasked != nil {
		if err := c.readLogNames(ctx); err != nil || !unknown() {
			return err
		}
	}
	delete(c.known.policies, "")
	delete(c.known.tables, "")
	mistake := c.known.noTable(c.table)
	if c.policy != "" && !c.known.policies[c.policy] {
		mistake = unknownPolicy(c.policy, slices.Sorted(maps.Keys(c.known.policies)))
	}
	if c.known.unasked != nil {
		return wrongUsage("%w; the topics and the log were asked, the catalog could not be: %w", mistake, c.known.unasked)
	}
	return mistake
}

// named returns the tables with a name in any schema, quoted or not.
func (k *known) named(name string) (same []string) {
	for table := range k.tables {
		if bare := bareName(table); table != name && (bare == name || strings.Trim(bare, `"`) == strings.Trim(name, `"`)) {
			same = append(same, table)
		}
	}
	slices.Sort(same)
	return same
}

// bareName strips the schema from a table's name.
func bareName(table string) string {
	if strings.HasSuffix(table, `"`) {
		return table[strings.LastIndex(table, `."`)+1:]
	}
	return table[strings.LastIndexByte(table, '.')+1:]
}

// mostTables is the largest number of tables that an error names.
const mostTables = 10

func (k *known) noTable(name string) error {
	if same := k.named(name); len(same) > 0 {
		return wrongUsage("table %s was never published: name it with its schema: %s", name, strings.Join(same, ", "))
	}
	all := slices.Sorted(maps.Keys(k.tables))
	switch near := yamldoc.Nearest(name, all); {
	case near != "":
		return wrongUsage("table %s was never published: did you mean %s?", name, near)
	case len(all) == 0:
		return wrongUsage("table %s was never published: no table has a policy", name)
	case len(all) > mostTables:
		all = append(all[:mostTables], fmt.Sprintf("%d more", len(all)-mostTables))
	}
	return wrongUsage("table %s was never published: there are %s", name, strings.Join(all, ", "))
}
