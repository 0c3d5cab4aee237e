package importer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// called returns the function that a statement calls, if it does nothing else: SELECT app.clean(), or CALL of a procedure. Without arguments.
func called(statement string) (name string, ok bool) {
	tokens, _ := scan(statement)
	c := &clause{text: statement, tokens: tokens}
	if !c.take("call") && !c.take("select", "*", "from") && !c.take("select") {
		return "", false
	}
	from := c.at
	for c.next().name() != "" {
		if !c.take(".") {
			break
		}
	}
	if c.at == from || c.at+2 != len(tokens) || !tokens[c.at].is("(") || !tokens[c.at+1].is(")") {
		return "", false
	}
	return statement[tokens[from].start:tokens[c.at-1].end], true
}

// function is what a call runs.
type function struct {
	Name, Language, Body, Owner string
	Definer                     bool
	Settings, Variables         []string // Variables are its OUT parameters, and the columns of RETURNS TABLE
}

// function finds the function of that name in the job's session. It returns nil if there is none.
func (r *reader) function(ctx context.Context, name string) (f *function, err error) {
	err = r.server.undone(ctx, func(tx pgx.Tx) error {
		if err := assume(ctx, tx, r.settings); err != nil {
			return err
		}
		var oid *uint32
		if err := r.server.row(ctx, tx, `select pg_catalog.to_regprocedure($1)::pg_catalog.oid`, name+"()").Scan(&oid); err != nil || oid == nil {
			return err
		}
		if err := assume(ctx, tx, pinned); err != nil {
			return err
		}
		found, err := collect[function](ctx, tx, `
			select p.oid::regprocedure::text, l.lanname::text, p.prosrc, pg_get_userbyid(p.proowner)::text, p.prosecdef, coalesce(p.proconfig, '{}'), coalesce(p.proargnames, '{}')
			  from pg_proc p
			  join pg_language l on l.oid = p.prolang
			 where p.oid = $1`, *oid)
		if len(found) == 1 {
			f = &found[0]
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read function %s: %w", name, err)
	}
	return f, nil
}

// plain are PL/pgSQL statements that neither decide whether others run nor change their meaning; quiet are those to leave out.
var (
	plain  = []string{"delete", "with", "truncate"}
	quiet  = []string{"return", "raise", "null", "get", "commit"}
	levels = []string{"debug", "log", "info", "notice", "warning"}
)

// statements returns the statements of a function's body: in SQL all, in PL/pgSQL those between BEGIN and END, if none of them decides about
// others. ok is false for any other body.
func (f *function) statements() (all []string, ok bool) {
	all, ok = statements(f.Body)
	if !ok || f.Language == "sql" {
		return all, ok && len(all) > 0
	}
	if len(all) == 0 || f.Language != "plpgsql" || strings.Contains(f.Body, "#") {
		return nil, false
	}
	begin, variables := -1, slices.Clone(f.Variables)
	for n, part := range all {
		tokens, _ := scan(part)
		at := slices.IndexFunc(tokens, func(t token) bool { return t.is("begin") })
		declares := tokens[:max(at, 0)]
		if at < 0 {
			declares = tokens
		}
		if slices.ContainsFunc(declares, func(t token) bool { return t.is(":=") || t.is("=") || t.is("default") || t.is("cursor") }) {
			return nil, false // a variable's initial value may call any function
		}
		for _, t := range declares[:min(len(declares), 2)] { // DECLARE and a name, or a name
			variables = append(variables, t.name())
		}
		if at >= 0 {
			begin, all[n] = n, strings.TrimSpace(part[tokens[at].end:])
			break
		}
	}
	last, _ := scan(all[len(all)-1])
	if begin < 0 || len(last) != 1 || !last[0].is("end") {
		return nil, false
	}
	var deletions []string
	for n, part := range all[begin : len(all)-1] {
		tokens, _ := scan(part)
		if len(tokens) == 0 {
			return nil, false
		}
		first, inTheMiddle := tokens[0].name(), begin+n < len(all)-2
		deletes := slices.ContainsFunc(tokens[1:], func(t token) bool { return t.is("delete") || t.is(":=") || t.is("(") && first != "raise" })
		switch {
		case slices.Contains(plain, first):
			if slices.ContainsFunc(tokens, func(t token) bool { return t.name() != "" && slices.Contains(variables, t.name()) }) {
				return nil, false // a name that is a column here is a variable there, or an error
			}
			deletions = append(deletions, part)
		case !slices.Contains(quiet, first), deletes, first == "return" && inTheMiddle, first == "raise" && (len(tokens) < 2 || !slices.Contains(levels, tokens[1].name())):
			return nil, false
		}
	}
	return deletions, len(deletions) > 0
}

// reader makes a reader with the function's settings and, for a SECURITY DEFINER function, its owner.
func (f *function) reader(r *reader) *reader {
	inside := *r
	if f.Definer {
		inside.Role = f.Owner
	}
	for _, s := range f.Settings {
		name, value, _ := strings.Cut(s, "=")
		inside.set(name, value)
	}
	return &inside
}

// call reads a statement that only calls a function: it returns an item for each of the function's statements.
func (r *reader) call(ctx context.Context, statement string) (items []Item, is bool, err error) {
	name, is := called(statement)
	if !is {
		return nil, false, nil
	}
	f, err := r.function(ctx, name)
	if err != nil || f == nil {
		return nil, false, err
	}
	parts, ok := f.statements()
	if !ok {
		i := Item{Text: statement}
		i.lose("the code of %s is not read: it is more than statements one after the other. Write the policy of what it deletes", f.Name)
		return []Item{i}, true, nil
	}
	inside := f.reader(r)
	for _, part := range parts {
		i, err := inside.statement(ctx, part)
		if err != nil {
			return nil, true, err
		}
		if i != nil {
			i.Text = statement + "\n-- runs, as " + f.Name + " is now:\n" + i.Text
			items = append(items, *i)
		}
	}
	return unlessSet(items), true, nil
}
