package expression

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// parsed is PostgreSQL's parse of a text.
type parsed struct {
	root    *node
	sql     string   // the canonical text, with marks in place of the columns' names
	columns []string // the columns of the temporary table that the text reads
	marks   []string // the name of each column in sql
}

// tempColumn is a column of the temporary table.
type tempColumn struct{ name, typed, collation string }

// errMoved says that a type's name came to mean another type meanwhile.
var errMoved = errors.New("a type of the table was changed meanwhile: apply again")

// parse has PostgreSQL parse a text over an empty table, and rolls everything back. types are the oids that the columns must have.
//
// The text becomes a constraint that is not valid: PostgreSQL checks no row and plans nothing. A function creates the constraint. It belongs
// to the table's owner. If the owner is a superuser or may not create temporary tables, the function belongs to a new role with almost no
// rights, which is rolled back as well. If this login may not give the function away, it keeps it; such a login is not a superuser.
func (r *reader) parse(ctx context.Context, columns []tempColumn, types []uint32, text string) (p parsed, err error) {
	tx, err := r.tx.Begin(ctx)
	if err != nil {
		return p, err
	}
	defer func() {
		// If the savepoint's rollback fails, that is an error of the surrounding transaction.
		if undone := tx.Rollback(context.WithoutCancel(ctx)); err == nil {
			err = undone
		}
	}()
	name := "lapse_" + strings.ToLower(rand.Text())
	table := "pg_temp." + name
	if err := r.makeRunner(ctx, tx, name); err != nil {
		return p, err
	}
	run := func(sql string) error {
		if _, err := tx.Exec(ctx, "select pg_temp."+name+"($1)", sql); err != nil {
			return err
		}
		return pin(ctx, tx)
	}
	if err := run(tableSQL(table, columns)); err != nil {
		return p, err
	}
	if err := sameTypes(ctx, tx, table, types); err != nil {
		return p, err
	}
	if r.want == Instant {
		text = "(" + text + ") is not null"
	}
	if err := run("alter table " + table + " add constraint lapse_read check (" + text + ") not valid"); err != nil {
		return p, err
	}
	return r.readBack(ctx, tx, run, table, columns)
}

// makeRunner creates a function that runs a statement with the rights of the table's owner, or of a role without rights. Only its creator can
// change it. EXECUTE is granted to public, because a role that may give a function to the owner need not have the owner's rights, nor
// EXECUTE by default. The function is rolled back, so no other session ever sees it.
func (r *reader) makeRunner(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, `create function pg_temp.`+name+`(statement text) returns void language plpgsql security definer
		set search_path = pg_catalog, pg_temp as 'begin execute statement; end';
		grant execute on function pg_temp.`+name+`(text) to public`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	given, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	owner := schemas.Identifier(r.owner)
	script := ""
	if r.lone { // pg_read_all_data gives USAGE on the schemas of the columns' types
		owner = name
		script = "create role " + name + " nologin; grant pg_read_all_data to " + name + "; grant temporary on database " +
			schemas.Identifier(r.database) + " to " + name + ";\n"
	}
	_, err = given.Exec(ctx, script+"alter function pg_temp."+name+"(text) owner to "+owner, pgx.QueryExecModeSimpleProtocol)
	if err == nil {
		return given.Commit(ctx)
	}
	if undone := given.Rollback(ctx); undone != nil || schemas.StateOf(err) != schemas.SQLStateInsufficientPrivilege {
		return errors.Join(err, undone)
	}
	return nil
}

func tableSQL(table string, columns []tempColumn) string {
	defined := make([]string, 0, len(columns))
	for _, c := range columns {
		column := schemas.Identifier(c.name) + " " + c.typed
		if c.collation != "" {
			column += " collate " + c.collation
		}
		defined = append(defined, column)
	}
	return "create temporary table " + table + " (" + strings.Join(defined, ", ") + ")"
}

// sameTypes checks that the temporary table has the checked types, because PostgreSQL has looked up their names a second time.
func sameTypes(ctx context.Context, tx pgx.Tx, table string, types []uint32) error {
	var same bool
	err := tx.QueryRow(ctx, `
		select coalesce(array_agg(a.atttypid order by a.attnum), '{}') = coalesce($2::oid[], '{}')
		  from pg_attribute a
		 where a.attrelid = $1::text::regclass and a.attnum > 0`, table, types).Scan(&same)
	if err != nil {
		return fmt.Errorf("compare types: %w", err)
	}
	if !same {
		return errMoved
	}
	return nil
}

// readBack gives the columns that the text reads unique names, and reads the constraint back.
func (r *reader) readBack(ctx context.Context, tx pgx.Tx, run func(sql string) error, table string, columns []tempColumn) (p parsed, err error) {
	var count int
	var tree string
	err = tx.QueryRow(ctx, `select count(*), min(k.conbin::text) from pg_constraint k where k.conrelid = $1::text::regclass`, table).Scan(&count, &tree)
	if err != nil {
		return p, fmt.Errorf("read the tree of an expression: %w", err)
	}
	if count != 1 {
		return p, fmt.Errorf("read the tree of an expression: it made %d constraints", count)
	}
	if p.root, err = readTree(tree); err != nil {
		return p, err
	}
	rename := ""
	for _, number := range p.root.columnNumbers() {
		if number < 1 || int(number) > len(columns) {
			continue // the whole row, or a system column: see usesOf
		}
		column, mark := columns[number-1].name, fmt.Sprintf("lapse_%s_%d", strings.ToLower(rand.Text()), number)
		rename += "alter table " + table + " rename column " + schemas.Identifier(column) + " to " + mark + ";\n"
		p.columns, p.marks = append(p.columns, column), append(p.marks, mark)
	}
	if err := run(rename); err != nil {
		return p, fmt.Errorf("mark columns: %w", err)
	}
	err = tx.QueryRow(ctx, `select pg_get_expr(k.conbin, k.conrelid) from pg_constraint k where k.conrelid = $1::text::regclass`, table).Scan(&p.sql)
	if err != nil {
		return p, fmt.Errorf("read an expression back: %w", err)
	}
	return p, nil
}
