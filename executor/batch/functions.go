package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

// Program is what a batch of one policy version runs: the policy's deletion function, the one that finds its rows, and those that all
// policies share, as this program makes them. A claim contains their digest, so the ledger shows which text deleted the rows.
//
// The catalog is compared with them whenever its rows are other ones than before: that is asked before a transaction, or with the COMMIT of the
// one that it follows, and each batch asks it before its COMMIT. A function without its condition, with another owner, or that runs with its
// caller's rights stops the policy: nothing is deleted in the system's name.
type Program struct {
	expected []schemas.Function
	names    []string // without schema, as the catalog query takes them
	regprocs string   // the same names, as functionVersions takes them
	digest   schemas.Digest
	may      func(name, grantee string) bool

	mu   sync.Mutex
	seen *versions // the catalog's rows that were last found equal
}

// versions identifies row versions of pg_proc: any change to a function makes another one.
type versions struct {
	at   []pgtype.TID // their places
	is   []string     // what functionVersions says of each
	text string       // and of all of them
}

// Catalog has the functions that all policies' programs share. They are read from the migrations once: each reading would
// stay in memory. Safe for concurrent use.
type Catalog struct {
	roles schemas.Roles
	read  func() (shared, error)
}

// shared are the functions that all batches run, and all looks.
type shared struct{ batches, looks []schemas.Function }

// NewCatalog returns the catalog of an installation with these roles.
func NewCatalog(roles schemas.Roles) *Catalog {
	return &Catalog{roles, sync.OnceValues(func() (s shared, err error) {
		s.batches, s.looks, err = schemas.RunFunctions(roles)
		return s, err
	})}
}

// Prepare reads the functions, so that the first program need not. Its error is that of the program too.
func (c *Catalog) Prepare() { _, _ = c.read() }

// auditors are the functions that the auditor's login may call too. They only read.
var auditors = []string{"lapse.publications_fault", "lapse.publications_trouble", "lapse.system_identifier", "lapse.timeline"}

// FunctionsToDelete builds the functions that batches of a policy version run.
func FunctionsToDelete(p *record.InForce, c *Catalog) (*Program, error) {
	return programWith(p, c, func(s *shared) []schemas.Function { return s.batches }, functions.DeleteFunction(p.ID, p.Version), functions.FindFunction(p.ID, p.Version))
}

// FunctionsToDrop builds the functions that drop a partition.
func FunctionsToDrop(p *record.InForce, c *Catalog) (*Program, error) {
	return programWith(p, c, func(s *shared) []schemas.Function { return s.batches }, functions.DropFunction(p.ID, p.Version))
}

// programWith builds a program of the policy's own functions with these names (the first is the one called) and those of the catalog's that they call.
func programWith(p *record.InForce, c *Catalog, called func(*shared) []schemas.Function, names ...string) (*Program, error) {
	roles := c.roles
	all, err := functions.Of(&p.Definition, roles)
	if err != nil {
		return nil, fmt.Errorf("build the functions of policy %s: %w", p.Name, err)
	}
	var own []schemas.Function
	for _, name := range names {
		own = append(own, all[slices.IndexFunc(all, func(f schemas.Function) bool { return f.Name == name })])
	}
	catalog, err := c.read()
	if err != nil {
		return nil, err
	}
	return newProgram(own, called(&catalog), func(name, grantee string) bool {
		switch slices.Index(names, name) {
		case 0:
			return grantee == roles.Owner || grantee == roles.Executor || grantee == own[0].Owner
		case -1:
			return grantee == roles.Owner || grantee == roles.Executor || strings.HasPrefix(grantee, roles.DeleterPrefix) ||
				grantee == roles.Auditor && slices.Contains(auditors, name)
		}
		return grantee == own[0].Owner
	}), nil
}

// newProgram builds a program of a policy's own functions and the shared ones that they call.
func newProgram(own, shared []schemas.Function, may func(name, grantee string) bool) *Program {
	f := &Program{expected: slices.Concat(own, shared), may: may, seen: &versions{text: "none yet"}}
	for i := range f.expected {
		f.names = append(f.names, strings.TrimPrefix(f.expected[i].Name, "lapse."))
	}
	f.regprocs = regprocs(f.names)
	f.digest = schemas.DigestOf(f.expected...)
	return f
}

// functionVersions says the versions of the rows at the places $1, and fails if one of the names $2, an array as text, has no function, or
// several. A search by name takes three times as long, since batches keep no plans. The places are out of the planner's sight, which
// estimates each that it sees: most of the statement's time.
const functionVersions = `concat(array_agg(concat(p.oid, ' ', p.xmin)), case when $2::text::regproc[] is null then 'no names' end)
	  from pg_proc p
	 where p.ctid = any ((select $1::tid[])::tid[]) and p.pronamespace = (select to_regnamespace('lapse'))`

// beforeCommit asks at the end of a transaction whether a cursor is left, and what functionVersions says now.
const beforeCommit = `select ` + heldCursors + `, ` + functionVersions

// unnamed reports whether functionVersions failed because of a name.
func unnamed(err error) bool {
	switch schemas.StateOf(err) {
	case schemas.SQLStateUndefinedFunction, schemas.SQLStateAmbiguousFunction, schemas.SQLStateInvalidSchemaName:
		return true
	}
	return false
}

// confirm reads the answer to beforeCommit, and refuses a batch that has other functions than it began with, or left a cursor.
func (v *versions) confirm(answer pgx.Row) error {
	found, held := "", false
	switch err := answer.Scan(&held, &found); {
	case unnamed(err):
		return ErrFunctionsChanged
	case err != nil:
		return err
	case found != v.text:
		return ErrFunctionsChanged
	case held:
		return ErrCursorLeft
	}
	return nil
}

// TamperedError says that a function is not what this program makes.
type TamperedError struct{ Function, What string }

func (e *TamperedError) Error() string {
	return fmt.Sprintf("function %s %s: somebody changed it, or another version of lapse made it: find out who, then run `lapse init` and `lapse apply`", e.Function, e.What)
}

// ErrFunctionsChanged says that a function was changed while a batch ran in it. The batch is rolled back.
var ErrFunctionsChanged = errors.New("a function of schema lapse was changed while a batch ran in it")

// heldCursors finds cursors that outlive their transaction. PostgreSQL evaluates their query at COMMIT, outside every function and with
// the rights of the session's login. No function of Lapse opens one.
const heldCursors = `exists (select from pg_cursor() c where c.is_holdable)`

// ErrCursorLeft says that code inside a batch left something to run at COMMIT. The batch is rolled back.
var ErrCursorLeft = errors.New("code inside a batch left a cursor that would be read at COMMIT, with this login's rights: find out who put it there, see docs/security.md")

// ErrNoFunction says that the policy's function does not exist: another version is in force, or is about to be.
var ErrNoFunction = errors.New("the policy's deletion function does not exist")

// compare reads the functions in a batch's transaction, compares them with what they must be, and returns their versions. Versions that were
// found equal are returned as they are.
func (f *Program) compare(ctx context.Context, conn *pgx.Conn, equal *versions) (*versions, error) {
	if equal != nil {
		return equal, nil
	}
	all, err := readFunctions(ctx, conn, f.names)
	if err != nil {
		return nil, err
	}
	return f.accept(all)
}

// Foresee compares the functions of programs that were never compared, in one reading for all of them, so that their first transactions only ask
// whether the rows are the same still. Where a function differs it remembers nothing: the transaction compares, and refuses.
func Foresee(ctx context.Context, conn *pgx.Conn, programs ...*Program) error {
	programs = slices.DeleteFunc(programs, func(f *Program) bool { return f.equal().at != nil })
	var names []string
	for _, f := range programs {
		names = append(names, f.names...)
	}
	if names == nil {
		return nil
	}
	all, err := readFunctions(ctx, conn, names)
	if err != nil {
		return err
	}
	for _, f := range programs {
		_, _ = f.accept(all)
	}
	return nil
}

// readFunctions reads the functions with these names, in the order of their places, which is that of functionVersions.
func readFunctions(ctx context.Context, conn *pgx.Conn, names []string) ([]schemas.FoundFunction, error) {
	rows, err := conn.Query(ctx, schemas.FunctionTexts, names)
	if err != nil {
		return nil, fmt.Errorf("read the functions: %w", err)
	}
	all, err := schemas.ReadFunctions(rows)
	if err != nil {
		return nil, fmt.Errorf("read the functions: %w", err)
	}
	slices.SortFunc(all, func(a, b schemas.FoundFunction) int { return comparePlaces(a.Place, b.Place) })
	return all, nil
}

// accept compares the program's functions among those that were read with what they must be, and remembers their versions as those that are equal.
func (f *Program) accept(all []schemas.FoundFunction) (*versions, error) {
	is, found := &versions{}, map[string]int{}
	for i := range all {
		if !slices.Contains(f.names, strings.TrimPrefix(all[i].Name, "lapse.")) {
			continue
		}
		found[all[i].Name]++
		if what := f.differs(&all[i]); what != "" {
			return nil, &TamperedError{all[i].Name, what}
		}
		is.at, is.is = append(is.at, all[i].Place), append(is.is, all[i].Version)
	}
	for i := range f.expected {
		switch name := f.expected[i].Name; {
		case found[name] == 0 && i == 0:
			return nil, ErrNoFunction
		case found[name] != 1:
			return nil, &TamperedError{name, fmt.Sprintf("exists %d times", found[name])}
		}
	}
	is.text = versionsText(is.is)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = is
	return is, nil
}

// comparePlaces orders places as a table has them.
func comparePlaces(a, b pgtype.TID) int {
	return cmp.Or(cmp.Compare(a.BlockNumber, b.BlockNumber), cmp.Compare(a.OffsetNumber, b.OffsetNumber))
}

// equal returns the versions that any worker last found equal.
func (f *Program) equal() *versions {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

// versionsText writes versions as PostgreSQL writes their array.
func versionsText(is []string) string { return `{"` + strings.Join(is, `","`) + `"}` }

// regprocs writes names of functions of schema lapse as an array of regproc.
func regprocs(names []string) string { return "{lapse." + strings.Join(names, ",lapse.") + "}" }

// together returns the versions with which all these programs were last found equal, and their functions as functionVersions takes them. It returns nil if
// one of them was never compared, or two differ about a function.
func together(programs []*Program) (*versions, string) {
	names, is := map[string]bool{}, map[pgtype.TID]string{}
	for _, f := range programs {
		equal := f.equal()
		if equal.at == nil {
			return nil, ""
		}
		for i, at := range equal.at {
			if other, known := is[at]; known && other != equal.is[i] {
				return nil, ""
			}
			is[at] = equal.is[i]
		}
		for _, name := range f.names {
			names[name] = true
		}
	}
	all := &versions{at: slices.SortedFunc(maps.Keys(is), comparePlaces)}
	for _, at := range all.at {
		all.is = append(all.is, is[at])
	}
	all.text = versionsText(all.is)
	return all, regprocs(slices.Collect(maps.Keys(names)))
}

// differs says how a function differs from the expected one, "" if it does not.
func (f *Program) differs(is *schemas.FoundFunction) string {
	at := slices.IndexFunc(f.expected, func(e schemas.Function) bool { return e.Name == is.Name })
	if what := f.expected[at].Differs(is); what != "" {
		return what
	}
	for _, grantee := range is.Grantees {
		if !f.may(is.Name, grantee) {
			return "may be called by " + grantee
		}
	}
	return ""
}
