package importer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/expression"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// reader reads the statements of one job.
type reader struct {
	server *Server
	settings
}

// reasons say why statements that begin with these words have no policy.
var reasons = map[string]string{
	"truncate": "TRUNCATE empties the table whatever its rows' age: a policy deletes what is due",
	"drop":     "DROP removes a table, or a partition, by its name: a policy with action: drop_partition drops partitions when every row in them is due",
	"alter":    "ALTER changes a table, or detaches a partition: a policy with action: drop_partition drops partitions when every row in them is due",
	"call":     "CALL runs a procedure that is not there, or has arguments, and is not read: write the policy of what it deletes",
	"do":       "DO runs a block of code, which is not read: write the policy of what it deletes",
	"execute":  "EXECUTE runs what was prepared elsewhere",
	"update":   "UPDATE sets columns: where it marks rows as deleted, write a policy with action: { soft: { column: … } }",
	"merge":    "MERGE compares with another table",
}

// apart are the beginnings of statements that delete nothing.
var apart = []string{"vacuum", "analyze", "analyse", "reindex", "refresh", "cluster", "notify", "checkpoint", "create", "insert", "copy", "grant", "comment", "listen"}

// around are statements around a deletion that do not affect it.
var around = []string{"begin", "start", "commit", "end"}

// harmless are the settings that do not change which rows a statement deletes.
var harmless = []string{"statement_timeout", "lock_timeout", "work_mem", "maintenance_work_mem", "synchronous_commit", "application_name", "idle_in_transaction_session_timeout", "client_min_messages"}

// statement reads a statement. It returns nil for one that has nothing to do with a deletion.
func (r *reader) statement(ctx context.Context, text string) (i *Item, err error) {
	i = &Item{Text: text}
	tokens, _ := scan(text)
	first := ""
	if len(tokens) > 0 {
		first = tokens[0].name()
	}
	i.sets = slices.ContainsFunc(tokens, func(t token) bool { return t.name() == "set_config" })
	deletes := slices.ContainsFunc(tokens, func(t token) bool { return t.is("delete") || t.is("truncate") || t.is("drop") })
	switch {
	case slices.Contains(around, first) && len(tokens) < 6:
		return nil, nil
	case first == "set" && setsHarmless(tokens):
		return nil, nil
	case first == "set" || first == "reset" || first == "rollback":
		i.sets = true
		i.lose("%s changes what the job's other statements mean, or undoes them", strings.ToUpper(first))
		return i, nil
	case slices.Contains(apart, first) && !deletes:
		i.Apart = true
		i.note("%s deletes nothing, and stays where it is", strings.ToUpper(first))
		return i, nil
	case reasons[first] != "":
		i.lose("%s", reasons[first])
		return i, nil
	case strings.Contains(text, "\x00"):
		i.lose("there is a zero byte in it")
		return i, nil
	}
	if len(r.odd) > 0 {
		i.lose("the job's session has another %s than PostgreSQL's own, under which the statement may mean something else", strings.Join(r.odd, " and "))
		return i, nil
	}
	normal, problem, err := r.server.body(ctx, text, r.settings)
	if err != nil || problem != "" {
		i.lose("%s", problem)
		return i, err
	}
	d, problem := readDeletion(normal)
	if problem == "" {
		problem = fleeting(tokens, normal)
	}
	if problem != "" {
		i.lose("%s", problem)
		return i, nil
	}
	return i, r.policy(ctx, i, &d)
}

// setsHarmless reports whether SET sets a setting that does not matter.
func setsHarmless(tokens []token) bool {
	at := 1
	if len(tokens) > 1 && (tokens[1].is("local") || tokens[1].is("session")) {
		at++
	}
	return len(tokens) > at && slices.Contains(harmless, tokens[at].name())
}

// fleeting finds a literal that PostgreSQL read as the time of the import: each run of the job would read another time.
func fleeting(written []token, normal string) string {
	for _, t := range written {
		text, _ := t.value()
		for _, moment := range []string{"now", "today", "tomorrow", "yesterday"} {
			if t.kind == literal && strings.Contains(strings.ToLower(text), moment) && !strings.Contains(normal, t.text) {
				return t.text + " means another time at each run, and PostgreSQL reads it as the time of this import: write now() or current_date"
			}
		}
	}
	return ""
}

// policy makes a policy of a deletion.
func (r *reader) policy(ctx context.Context, i *Item, d *deletion) error {
	t, fit, err := r.table(ctx, i, d)
	if err != nil || !fit {
		return err
	}
	s := &surroundings{zone: r.Zone}
	if s.columns, err = r.server.columns(ctx, t.OID); err != nil {
		return err
	}
	when, rest, problem := s.when(d.conditions)
	if when == nil && problem == "" {
		if when, rest, err = r.computed(ctx, s, t.OID, d.conditions); err != nil {
			return err
		}
	}
	if when == nil {
		i.lose("%s", orElse(problem, unread(d.conditions)))
		return nil
	}
	where, problem, err := r.where(ctx, t.OID, rest)
	if err != nil || problem != "" {
		i.lose("%s", problem)
		return err
	}
	p := &policyfile.Policy{Table: t.Name, Expire: when.entry()}
	p.Where = where
	if d.limit != "" {
		if p.Limits.MaxRows, err = strconv.ParseInt(d.limit, 10, 64); err != nil || p.MaxRows < 1 || p.MaxRows > policyfile.MaxRowsPerRun {
			i.lose("LIMIT %s is no number of rows that a run can delete", d.limit)
			return nil
		}
		i.note("LIMIT %s is max_rows_per_run. Where it was there to delete in batches, leave it out: Lapse cuts batches by itself", d.limit)
	}
	if r.assumedZone && (when.clocks || zoneName(r.Zone) != utc) {
		i.note("the job's time zone is taken for %s, the server's by log_timezone", zoneName(r.Zone))
	}
	i.Policy, i.Notes, i.Lost = p, append(i.Notes, when.notes...), append(i.Lost, when.lost...)
	return nil
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// table finds the table and adds what its columns imply to the conditions. It refuses a table whose row security decides which rows the job
// sees.
func (r *reader) table(ctx context.Context, i *Item, d *deletion) (t database.Table, fit bool, err error) {
	err = r.server.undone(ctx, func(tx pgx.Tx) error {
		var problem string
		if t, problem, err = database.FindTable(ctx, tx, d.table); err != nil {
			return err
		}
		if problem == "" && d.only && t.Kind == "p" {
			problem = fmt.Sprintf("ONLY %s has no rows: its partitions have them", t.Name)
		}
		if problem != "" {
			i.lose("%s", problem)
			return nil
		}
		var unique, empty, hidden bool
		err := r.server.row(ctx, tx, `
			select exists (select from pg_index x join pg_attribute a on a.attrelid = x.indrelid and a.attnum = x.indkey[0]
			                where x.indrelid = c.oid and x.indisunique and x.indnkeyatts = 1 and x.indpred is null and x.indisvalid and a.attname = $2),
			       exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = $2
			                 and (not a.attnotnull or exists (select from pg_constraint k where k.conrelid = c.oid and k.contype = 'n' and not k.convalidated))),
			       c.relrowsecurity and not coalesce((select o.rolsuper or o.rolbypassrls or o.oid = c.relowner and not c.relforcerowsecurity
			                                            from pg_roles o where o.rolname = $3), false)
			  from pg_class c
			 where c.oid = $1`, t.OID, d.key, r.Role).Scan(&unique, &empty, &hidden)
		switch {
		case err != nil:
			return fmt.Errorf("look for the keys of %s: %w", t.Name, err)
		case hidden:
			i.lose("row security of %s decides which rows the job sees, and a policy sees all", t.Name)
			return nil
		case d.key != "" && !unique:
			i.note("the job finds its rows by %s, which no index makes unique: it also deletes rows that share its value with one that is due. The policy deletes those that are due", d.key)
		}
		if empty { // a row without a value equals no other row
			d.conditions = append(d.conditions, condition{"t", "(t." + schemas.Identifier(d.key) + " IS NOT NULL)"})
		}
		fit = true
		return nil
	})
	return t, fit, err
}

// columns returns the types of a table's columns.
func (s *Server) columns(ctx context.Context, table uint32) (map[string]string, error) {
	rows, err := collect[struct{ Name, Type string }](ctx, s.conn, `
		select a.attname::text, format_type(a.atttypid, -1)
		  from pg_attribute a
		 where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped`, table)
	if err != nil {
		return nil, fmt.Errorf("read the table's columns: %w", err)
	}
	types := map[string]string{}
	for _, r := range rows {
		types[r.Name] = r.Type
	}
	return types, nil
}

// when finds the only condition that gives the time at which a row goes. The conditions that it implies are dropped.
func (s *surroundings) when(conditions []condition) (when *due, rest []condition, problem string) {
	var present []condition
	for _, c := range conditions {
		n := parse(c)
		if n != nil && n.kind == aPresent && n.kids[0].kind == aColumn {
			present = append(present, c)
			continue
		}
		var d *due
		if n != nil {
			if read, ok := s.due(n); ok {
				d = read
			}
		}
		switch {
		case d == nil:
			rest = append(rest, c)
		case when != nil:
			return nil, nil, "two of its conditions compare with now, and a policy has one time: " + c.text
		default:
			when = d
		}
	}
	for _, c := range present {
		if when == nil || parse(c).kids[0].text != when.of.column {
			rest = append(rest, c)
		}
	}
	return when, rest, ""
}

// unread says why no condition gives a time.
func unread(conditions []condition) string {
	for _, c := range conditions {
		if asksForNow(c) {
			return "import does not know this way to compare with now: " + c.text
		}
	}
	if len(conditions) == 0 {
		return "it deletes all rows, whatever their age"
	}
	return "none of its conditions compares a column with now"
}

func asksForNow(c condition) bool {
	tokens, _ := scan(c.text)
	return slices.ContainsFunc(tokens, func(t token) bool {
		return t.kind == word && (slices.Contains(clocks, t.name()) || t.is("current_date") || t.is("localtimestamp") || t.is("age"))
	})
}

// computed is when for a time that is not a column, such as coalesce(closed_at, created_at).
func (r *reader) computed(ctx context.Context, s *surroundings, table uint32, conditions []condition) (when *due, rest []condition, err error) {
	for at, c := range conditions {
		n := parse(c)
		if n == nil || n.kind != anOperand || turned[n.text] == "" {
			continue
		}
		row, other, op := n.kids[0], n.kids[1], n.text
		if asksForNow(condition{text: row.in(c)}) {
			row, other, op = other, row, turned[op]
		}
		now, ok := s.value(other)
		if !ok || now.moment == nil || !now.moment.isNow() {
			continue
		}
		for _, local := range []bool{false, true} {
			m := moment{raw: bare(condition{c.alias, row.in(c)}), local: local}
			d, ok := s.before(m, op, *now.moment)
			if !ok {
				continue
			}
			// The time itself must not depend on the session's settings, because the job's may differ.
			e, problem, err := expression.Read(ctx, r.server.conn, table, m.instant(), expression.Instant)
			if err == nil && problem == "" && e.Immutable {
				e, problem, err = expression.Read(ctx, r.server.conn, table, d.of.instant(), expression.Instant)
			} else if problem == "" {
				problem = settingsMatter
			}
			if err != nil {
				return nil, nil, err
			}
			if problem == "" {
				d.of = moment{raw: e.Bare}
				return d, slices.Concat(conditions[:at], conditions[at+1:]), nil
			}
		}
	}
	return nil, nil, nil
}

// settingsMatter explains the problem with functions that PostgreSQL calls stable.
const settingsMatter = "what it means depends on the session's time zone or DateStyle"

// in is a node's SQL.
func (n *node) in(c condition) string {
	return c.text[n.tokens[0].start:n.tokens[len(n.tokens)-1].end]
}

// bare removes a condition's alias: logs.status becomes status. Reading it again refuses what only looks like a column.
func bare(c condition) string {
	tokens, _ := scan(c.text)
	var text strings.Builder
	at := 0
	for i := 0; i+2 < len(tokens); i++ {
		column := tokens[i].name() == c.alias && tokens[i+1].is(".") && tokens[i+2].name() != "" && (i == 0 || !slices.ContainsFunc([]string{".", "::", "collate"}, tokens[i-1].is))
		if column && (i+3 == len(tokens) || !tokens[i+3].is("(")) {
			text.WriteString(c.text[at:tokens[i].start])
			at = tokens[i+2].start
		}
	}
	return text.String() + c.text[at:]
}

// where has the other conditions read as apply reads them.
func (r *reader) where(ctx context.Context, table uint32, conditions []condition) (where, problem string, err error) {
	if len(conditions) == 0 {
		return "", "", nil
	}
	var parts []string
	for _, c := range conditions {
		part := bare(c)
		e, problem, err := expression.Read(ctx, r.server.conn, table, part, expression.Boolean)
		if err != nil {
			return "", "", fmt.Errorf("read a condition: %w", err)
		}
		if problem == "" && !e.Immutable {
			problem = settingsMatter
		}
		if problem != "" {
			return "", fmt.Sprintf("this condition cannot be a policy's: %s: %s", c.text, problem), nil
		}
		parts = append(parts, part)
	}
	e, problem, err := expression.Read(ctx, r.server.conn, table, strings.Join(parts, " and "), expression.Boolean)
	if err != nil || problem != "" {
		return "", problem, err
	}
	return e.Bare, "", nil
}
