package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner"
	"lapse/schemas"
)

// functions are what a batch of one policy version runs: the policy's deletion function and those that all policies
// share, as this program's builder makes them. A claim holds their digest, so that the mark says by what text rows were
// deleted.
//
// Each batch compares the catalog with them in its first round trip, and looks before COMMIT whether the catalog's rows are
// still the same: whoever strips the condition from a function, makes it run in the caller's session or lets somebody else
// own it stops the policy, and gets nothing out as the system's.
type functions struct {
	expected []schemas.Function
	names    []string // without schema, as the catalog query takes them
	digest   schemas.Digest
	seen     string // the versions of the catalog's rows that were found equal; "" for none yet
	may      func(name, grantee string) bool
}

// functionsOf builds what batches of a policy version run.
func functionsOf(p *planner.InForce, roles schemas.Roles) (*functions, error) {
	own, err := planner.Functions(&p.Definition, roles)
	if err != nil {
		return nil, fmt.Errorf("build the functions of policy %s: %w", p.Name, err)
	}
	shared, err := schemas.BatchFunctions(roles)
	if err != nil {
		return nil, err
	}
	f := &functions{expected: append(own[:1:1], shared...)}
	for i := range f.expected {
		f.names = append(f.names, strings.TrimPrefix(f.expected[i].Name, "lapse."))
	}
	f.digest = schemas.DigestOf(f.expected...)
	f.may = func(name, grantee string) bool {
		return grantee == roles.Owner || grantee == roles.Executor || grantee == own[0].Owner ||
			name != own[0].Name && strings.HasPrefix(grantee, roles.DeleterPrefix)
	}
	return f, nil
}

// functionVersions identifies the catalog's rows of functions $1: any change to one makes another row version.
const functionVersions = `
	select coalesce(string_agg(p.oid || ' ' || p.xmin || ' ' || p.ctid, ',' order by p.proname, p.oid), '')
	  from pg_proc p
	 where p.proname = any ($1::name[]) and p.pronamespace = (select n.oid from pg_namespace n where n.nspname = 'lapse')`

// functionTexts reads functions $1 as they are.
const functionTexts = `
	select 'lapse.' || p.proname, pg_get_userbyid(p.proowner)::text, l.lanname::text,
	       case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
	       p.prosecdef, p.proisstrict, coalesce(p.proconfig, '{}'), p.prosrc,
	       array(select coalesce(g.rolname::text, 'public')
	               from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
	               left join pg_roles g on g.oid = a.grantee)
	  from pg_proc p
	  join pg_language l on l.oid = p.prolang
	 where p.proname = any ($1::name[]) and p.pronamespace = (select n.oid from pg_namespace n where n.nspname = 'lapse')`

// tamperedError says that a function is not what this program makes.
type tamperedError struct{ Function, What string }

func (e *tamperedError) Error() string {
	return fmt.Sprintf("function %s %s: somebody changed it, or another version of lapse made it: find out who, then run `lapse init` and `lapse apply`", e.Function, e.What)
}

// errFunctionsChanged says that the functions were changed while a batch ran in them. It is rolled back.
var errFunctionsChanged = errors.New("a function of schema lapse was changed while a batch ran in it")

// heldCursors are cursors that outlive their transaction: what they read is evaluated at COMMIT, outside every function and
// with the rights of the session's login. No function of ours opens one.
const heldCursors = `exists (select from pg_cursors c where c.is_holdable)`

// errCursorLeft says that code inside a batch left something to run at COMMIT. The batch is rolled back.
var errCursorLeft = errors.New("code inside a batch left a cursor that would be read at COMMIT, with this login's rights: find out who put it there, see docs/security.md")

// errNoFunction says that the policy's function is gone: another version is in force, or is about to be.
var errNoFunction = errors.New("the policy's deletion function is gone")

// compare reads the functions in the transaction of a batch and holds them against what they must be. versions are those
// of the same transaction.
func (f *functions) compare(ctx context.Context, conn *pgx.Conn, versions string) error {
	if f.seen != "" && versions == f.seen {
		return nil
	}
	rows, err := conn.Query(ctx, functionTexts, f.names)
	if err != nil {
		return fmt.Errorf("read the functions: %w", err)
	}
	found := map[string]int{}
	var is schemas.Function
	var grantees []string
	var wrong error
	_, err = pgx.ForEachRow(rows, []any{
		&is.Name, &is.Owner, &is.Language, &is.Volatility, &is.Definer, &is.Strict, &is.Settings, &is.Body, &grantees,
	}, func() error {
		found[is.Name]++
		if what := f.differs(&is, grantees); what != "" && wrong == nil {
			wrong = &tamperedError{is.Name, what}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the functions: %w", err)
	}
	if wrong != nil {
		return wrong
	}
	for i := range f.expected {
		switch name := f.expected[i].Name; {
		case found[name] == 0 && i == 0:
			return errNoFunction
		case found[name] != 1:
			return &tamperedError{name, fmt.Sprintf("is there %d times", found[name])}
		}
	}
	f.seen = versions
	return nil
}

// differs says in what a function is not as expected, "" if in nothing.
func (f *functions) differs(is *schemas.Function, grantees []string) string {
	at := slices.IndexFunc(f.expected, func(e schemas.Function) bool { return e.Name == is.Name })
	want := &f.expected[at]
	settings := make([]string, len(is.Settings))
	for i, s := range is.Settings {
		name, value, _ := strings.Cut(s, "=")
		settings[i] = strings.ToLower(name) + "=" + value
	}
	slices.Sort(settings)
	switch {
	case is.Owner != want.Owner:
		return "is owned by " + is.Owner + ", not by " + want.Owner
	case is.Definer != want.Definer:
		return "does not run with the rights that it must"
	case is.Body != want.Body:
		return "has another text"
	case is.Language != want.Language, is.Volatility != want.Volatility, is.Strict != want.Strict:
		return "has another language or other properties"
	case !slices.Equal(settings, want.Settings):
		return "has other settings"
	}
	for _, grantee := range grantees {
		if !f.may(is.Name, grantee) {
			return "may be called by " + grantee
		}
	}
	return ""
}
