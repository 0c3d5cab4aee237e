package expression

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/yamldoc"
	"lapse/schemas"
)

// Wanted is the type that an expression must have.
type Wanted string

// The types that an expression can have.
const (
	Boolean Wanted = "boolean"
	Instant Wanted = "timestamp with time zone"
)

// instantOID is the type of Instant.
const instantOID = 1184

// Expression is PostgreSQL's reading of a text.
type Expression struct {
	SQL       string // for a query that names the policy's table or a leaf of it t: t."status" = 'closed'::text
	Bare      string // with bare column names, as PostgreSQL writes the predicate or the column of an index
	Columns   []Column
	Immutable bool // an index can hold it
	MayRaise  bool // it may raise an error for some row
	Warnings  []string
}

// DB can open a transaction: a connection, a pool, or a transaction, which opens a savepoint.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// bodyQuote encloses the bodies of the functions that contain expressions.
const bodyQuote = "$lapse$"

// longest is much longer than any text written by hand.
const longest = 20_000

// reader reads one text.
type reader struct {
	tx       pgx.Tx
	want     Wanted
	database string
	owner    string
	role     string // the role to read the text with if the owner's rights are not available
	barred   string // the schemas of column types that this role may not use
	lone     bool   // session and table are a superuser's, or the table's owner may not create temporary tables
	columns  []tableColumn
}

// Read has PostgreSQL read a text over the columns of a table. problem is a message for the text's author. The session's settings
// must be pinned. Read rolls everything back and drops the session's prepared statements.
func Read(ctx context.Context, db DB, table uint32, text string, want Wanted) (e *Expression, problem string, err error) {
	tokens, problem := scan(text)
	switch {
	case problem != "":
		return nil, problem, nil
	case len(text) > longest:
		return nil, fmt.Sprintf("it is longer than %d bytes", longest), nil
	case strings.Contains(text, bodyQuote):
		return nil, "it contains " + bodyQuote + ", which ends a function's body", nil
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("read an expression: %w", err)
	}
	r := &reader{tx: nameless{tx}, want: want}
	e, problem, err = r.read(ctx, table, tokens, text)
	err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
	// Should the owner's code run after all, it could leave a prepared statement under one of Lapse's names in the session.
	if err == nil {
		err = tx.Conn().DeallocateAll(ctx)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read an expression: %w", err)
	}
	return e, problem, nil
}

func (r *reader) read(ctx context.Context, table uint32, tokens []token, text string) (*Expression, string, error) {
	problem, err := r.prepare(ctx, table)
	if problem != "" || err != nil {
		return nil, problem, err
	}
	if subquery(tokens) {
		return nil, refused["SUBLINK"], nil // or the tables' names would look like functions
	}
	if problem, err = checkNames(ctx, r.tx, tokens); problem != "" || err != nil {
		return nil, problem, err
	}
	usable := readable(r.columns)
	var columns []tempColumn
	var types []uint32
	for _, c := range usable {
		columns, types = append(columns, tempColumn{c.Name, c.BaseTyped, c.Collation}), append(types, c.BaseOID)
	}
	written, err := r.parse(ctx, columns, types, text)
	if err != nil {
		return r.mistake(err, text)
	}
	j, err := r.judge(ctx, written.root, false)
	if err != nil || j.problem != "" {
		return nil, j.problem, err
	}
	return r.canonical(ctx, tokens, &written, j)
}

// becomeLogin sets the transaction's role to the login if the login may act as the table's owner and the session's role, the
// catalog's owner, may not. So showing a policy and applying it read its text with the same rights.
func (r *reader) becomeLogin(ctx context.Context, table uint32) error {
	var login bool
	err := r.tx.QueryRow(ctx, `
		select pg_has_role(session_user, c.relowner, 'member') and not pg_has_role(current_user, c.relowner, 'member')
		  from pg_class c
		 where c.oid = $1`, table).Scan(&login)
	if err == nil && login {
		_, err = r.tx.Exec(ctx, "set local role none")
	}
	if err != nil {
		return fmt.Errorf("become the table's owner: %w", err)
	}
	return nil
}

// prepare reads the table's owner and columns, and whether a temporary table can be created.
func (r *reader) prepare(ctx context.Context, table uint32) (problem string, err error) {
	if err := r.becomeLogin(ctx, table); err != nil {
		return "", err
	}
	var unable string
	err = r.tx.QueryRow(ctx, `
		select pg_get_userbyid(c.relowner), current_database(),
		       s.rolsuper and (o.rolsuper or not has_database_privilege(c.relowner, current_database(), 'temporary')),
		       case when s.rolsuper then ''
		            when not has_database_privilege(c.relowner, current_database(), 'temporary') then pg_get_userbyid(c.relowner)
		            when not has_database_privilege(current_database(), 'temporary') then current_user::text
		            else '' end,
		       current_user::text,
		       (select coalesce(string_agg(distinct quote_ident(n.nspname), ', '), '')
		          from pg_attribute a join pg_type y on y.oid = a.atttypid join pg_namespace n on n.oid = y.typnamespace
		         where a.attrelid = c.oid and not has_schema_privilege(n.oid, 'usage'))
		  from pg_class c
		  join pg_roles o on o.oid = c.relowner
		  join pg_roles s on s.rolname = current_user
		 where c.oid = $1`, table).Scan(&r.owner, &r.database, &r.lone, &unable, &r.role, &r.barred)
	if err != nil {
		return "", fmt.Errorf("find the table's owner: %w", err)
	}
	if unable != "" {
		return fmt.Sprintf("it is read over a temporary table, which role %s may not make: grant temporary on database %s to %s",
			unable, schemas.Identifier(r.database), schemas.Identifier(unable)), nil
	}
	r.columns, err = loadColumns(ctx, r.tx, table)
	return "", err
}

// judge checks the parsed expression and its type.
func (r *reader) judge(ctx context.Context, root *node, domains bool) (judgment, error) {
	for _, number := range root.columnNumbers() {
		if number < 1 {
			return judgment{problem: "it reads the whole row or a system column: name the columns that it is about"}, nil
		}
	}
	if r.want == Instant {
		if root.tag != "NULLTEST" || len(root.kids) != 1 {
			return judgment{problem: "it is not one expression"}, nil
		}
		if of := root.kids[0].typeOf(); of != instantOID {
			facts, err := loadTypes(ctx, r.tx, []uint32{of})
			return judgment{problem: fmt.Sprintf("it is of type %s, and must be a %s: for one without a zone write (…) at time zone 'UTC'", facts[of].Name, Instant)}, err
		}
	}
	return judge(ctx, r.tx, root, domains)
}

// canonical parses PostgreSQL's text once more, over the real columns, and makes the Expression.
func (r *reader) canonical(ctx context.Context, tokens []token, written *parsed, j judgment) (*Expression, string, error) {
	sql, problem := oneLine(r.strip(written.sql))
	if problem == "" {
		problem = fleeting(tokens, sql)
	}
	if problem != "" {
		return nil, problem, nil
	}
	e := &Expression{Immutable: j.immutable, MayRaise: j.mayRaise, Warnings: j.warnings}
	var columns []tempColumn
	var types []uint32
	var named, bare []string
	for i, name := range written.columns {
		c := r.columns[slices.IndexFunc(r.columns, func(c tableColumn) bool { return c.Name == name })]
		e.Columns = append(e.Columns, c.Column)
		columns, types = append(columns, tempColumn{written.marks[i], c.Typed, c.Collation}), append(types, c.OID)
		named = append(named, written.marks[i], "t."+schemas.Identifier(name))
		bare = append(bare, written.marks[i], c.Shown)
	}
	again, err := r.parse(ctx, columns, types, sql)
	if err != nil {
		_, problem, err = r.mistake(err, sql)
		if problem != "" {
			problem = "it does not mean the same over domains (" + problem + "): cast their columns to what they are over"
		}
		return nil, strings.NewReplacer(bare...).Replace(problem), err
	}
	if j, err = r.judge(ctx, again.root, true); err != nil || j.problem != "" {
		return nil, j.problem, err
	}
	if len(again.columns) != len(columns) {
		return nil, "", errors.New("PostgreSQL does not read the expression back as it wrote it")
	}
	e.SQL, e.Bare = strings.NewReplacer(named...).Replace(sql), strings.NewReplacer(bare...).Replace(sql)
	if strings.ContainsAny(e.SQL, "\r\n") {
		return nil, "a text or a name in it has a line break: write chr(10), or rename the column", nil
	}
	return e, "", nil
}

// strip removes what parse put around an instant.
func (r *reader) strip(sql string) string {
	if r.want == Instant {
		return strings.TrimSuffix(strings.TrimPrefix(sql, "("), " IS NOT NULL)")
	}
	return sql
}

// fleeting reports a literal of the text that is missing in the canonical text: PostgreSQL replaced it by a value of this moment.
func fleeting(written []token, sql string) string {
	canonical, problem := scan(sql)
	for _, t := range written {
		if t.kind != literal || !momentary(t.text) {
			continue
		}
		if !slices.ContainsFunc(canonical, func(c token) bool { return c.text == t.text }) {
			return t.text + " would be the moment of apply, forever: the policy's cutoff is the only clock"
		}
	}
	return problem
}

// momentary reports whether PostgreSQL may read a text as an instant that depends on the clock.
func momentary(text string) bool {
	for _, moment := range []string{"now", "today", "tomorrow", "yesterday"} {
		if strings.Contains(strings.ToLower(text), moment) {
			return true
		}
	}
	return false
}

// mistake turns PostgreSQL's error about a text into a problem. It returns other errors as errors.
func (r *reader) mistake(err error, text string) (*Expression, string, error) {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return nil, "", err
	}
	switch class := server.Code[:2]; {
	case server.Code == schemas.SQLStateInsufficientPrivilege && r.barred != "":
		return nil, fmt.Sprintf("it is read with the rights of %s, which may not use types of the table's columns: grant usage on schema %s to %s", r.role, r.barred, schemas.Identifier(r.role)), nil
	case server.Code == schemas.SQLStateUndefinedColumn:
		return nil, r.noColumn(server, text), nil
	case server.Code == schemas.SQLStateUndefinedTable:
		return nil, "it names a table: write columns without their table's name", nil
	case server.Code == schemas.SQLStateUndefinedFunction:
		return nil, server.Message + " (a name without a schema is looked for in pg_catalog alone)", nil
	case server.Code == "0A000" && holdsSubquery(text):
		return nil, refused["SUBLINK"], nil
	case class == "42" || class == "22" || class == "0A" || server.Code == schemas.SQLStateInvalidSchemaName:
		return nil, strings.ReplaceAll(server.Message, "argument of CHECK", "it"), nil
	}
	return nil, "", err
}

func holdsSubquery(text string) bool {
	tokens, _ := scan(text)
	return slices.ContainsFunc(tokens, func(t token) bool {
		return t.kind == word && slices.Contains([]string{"select", "values", "table"}, strings.ToLower(t.text))
	})
}

// written returns names as SQL needs them: quoted, unless they consist of lower-case letters, digits and underscores.
func written(names []string) []string {
	all := slices.Clone(names)
	for i, name := range all {
		if strings.ContainsFunc(name, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
			all[i] = schemas.Identifier(name)
		}
	}
	return all
}

// noColumn explains an unknown column, or suggests another. PostgreSQL's message, in the server's language, contains the column's name but
// no position: the column is the text's first unknown name that the message quotes.
func (r *reader) noColumn(server *pgconn.PgError, text string) string {
	tokens, _ := scan(text)
	valid := names(readable(r.columns))
	for _, t := range tokens {
		name, named := t.name()
		if !named || slices.Contains(valid, name) || !quotes(server.Message, name) {
			continue
		}
		for _, c := range r.columns {
			if c.Name == name {
				return c.Trouble
			}
		}
		return fmt.Sprintf("there is no column %s%s", yamldoc.Quote(name), yamldoc.Suggestion(name, written(valid), nil))
	}
	return server.Message
}

// quotes reports whether a message contains a name in any language's quotation marks.
func quotes(message, name string) bool {
	before, after, found := strings.Cut(message, name)
	return found && strings.LastIndexAny(before, "\"'`«»„“”‘’") == lastRune(before) && strings.IndexAny(after, "\"'`«»„“”‘’") == 0
}

// lastRune is the offset of a text's last character.
func lastRune(text string) int {
	_, size := utf8.DecodeLastRuneInString(text)
	return len(text) - size
}
