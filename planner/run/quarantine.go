package run

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/record"
)

// TriggerAdvice says what a person can do about a trigger's function that keeps rows from being deleted. slow: it raised no error, but took too
// long.
func TriggerAdvice(function string, slow bool) string {
	what := "raises an error for"
	if slow {
		what = "takes too long over"
	}
	return fmt.Sprintf("its function %s %s rows that are due: read it, fix it or what it asks for, then `lapse quarantine retry POLICY --all`", function, what)
}

// referringSQL reads a foreign key by the names in an error: schema and table of the referring side.
const referringSQL = `
	select format('%I.%I', fn.nspname, f.relname), format('%I.%I', tn.nspname, t.relname),
	       array(select format('%I', a.attname) from unnest(k.conkey) with ordinality w(attnum, n)
	              join pg_attribute a on a.attrelid = k.conrelid and a.attnum = w.attnum order by w.n),
	       array(select format('%I', a.attname) from unnest(k.confkey) with ordinality w(attnum, n)
	              join pg_attribute a on a.attrelid = k.confrelid and a.attnum = w.attnum order by w.n),
	       k.confrelid = $3 or exists (select from pg_partition_ancestors(k.confrelid) a where a.relid = $3)
	  from pg_constraint k
	  join pg_class f on f.oid = k.conrelid
	  join pg_namespace fn on fn.oid = f.relnamespace
	  join pg_class t on t.oid = k.confrelid
	  join pg_namespace tn on tn.oid = t.relnamespace
	 where k.contype = 'f' and k.conname = $2 and format('%I.%I', fn.nspname, f.relname) = $1`

// Referring returns a query for a person who may read both tables: it finds the rows that refer, by a foreign key, to rows that are due under the
// policy. relation and constraint are from PostgreSQL's error, relation as schema.table, quoted as in SQL. It returns "" if they name no foreign
// key. It reads only the catalog, and the query contains no values.
func Referring(ctx context.Context, q database.Querier, p *record.InForce, relation, constraint string) (string, error) {
	var from, to string
	var columns, referenced []string
	var ours bool
	err := q.QueryRow(ctx, referringSQL, relation, constraint, p.TableOID).Scan(&from, &to, &columns, &referenced, &ours)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read what foreign key %s of %s says: %w", constraint, relation, err)
	}
	where := make([]string, len(columns))
	for i := range columns {
		where[i] = fmt.Sprintf("r.%s = t.%s", columns[i], referenced[i])
	}
	if !ours {
		return fmt.Sprintf("select r.* from %s r join %s t on %s", from, to, strings.Join(where, " and ")), nil
	}
	c, bound := p.Definition.Condition(), p.Definition.Expire.Bound("now()")
	at := ""
	if !bound.IsZero() {
		at = fmt.Sprintf("(%s)::%s", bound.Value, bound.Type)
	}
	for _, condition := range []string{c.Narrow("now()", at), c.Exact("now()", at)} {
		if condition != "" {
			where = append(where, condition)
		}
	}
	return oneLine(fmt.Sprintf("select r.* from %s r, %s where %s", from, c.From(to), strings.Join(where, " and "))), nil
}

// oneLine writes SQL without the breaks and indents between its lines. A name or literal with a line break in it is left as it is.
func oneLine(sql string) string { return lineBreaks.ReplaceAllString(sql, " ") }

var lineBreaks = regexp.MustCompile(`\n +`)
