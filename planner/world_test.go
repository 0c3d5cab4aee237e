package planner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/fixture/catalog"
	"lapse/internal/pgtest"
	"lapse/internal/setup/apply"
	"lapse/planner/change"
	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/planner/survey"
	"lapse/schemas"
)

var update = flag.Bool("update", false, "write the golden files")

var testRoles = schemas.RolesFor(schemas.DefaultRolePrefix)

// defaultSpeed is the rows a second that a survey expects of a policy that has deleted nothing yet.
const defaultSpeed = 50_000

// script runs several statements.
func script(ctx context.Context, tx pgx.Tx, sql string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// world is one test's database: an application's schema "shop", owned by a role of its own, and the catalog.
type world struct {
	t     testing.TB
	db    *pgtest.DB
	app   string    // the application's role
	admin *pgx.Conn // superuser
	owner *pgx.Conn // the application's role, in schema shop
	exec  *pgx.Conn // the executor's login
}

func newWorld(t testing.TB, db *pgtest.DB, ddl ...string) *world {
	t.Helper()
	w := &world{t: t, db: db, app: db.NewRole(t, "app")}
	w.admin, w.exec = db.Connect(t), db.ConnectAs(t, testRoles.Executor)
	// What a test computes it computes in UTC: where days have 23 and 25 hours, "30 days ago" is another instant in some weeks.
	db.Exec(t, fmt.Sprintf("create schema shop authorization %s", w.app), fmt.Sprintf("alter role %s set timezone = 'UTC'", w.app))
	must(t, runSQL(w.admin, "set timezone = 'UTC'"))
	w.owner = db.ConnectAs(t, w.app)
	w.do("set search_path = shop")
	for _, sql := range ddl {
		w.do(sql)
	}
	return w
}

// do runs SQL as the application.
func (w *world) do(sql string, args ...any) {
	w.t.Helper()
	must(w.t, runSQL(w.owner, sql, args...))
}

func runSQL(conn *pgx.Conn, sql string, args ...any) error {
	_, err := conn.Exec(context.Background(), sql, args...)
	return err
}

var must = fixture.Must

// script runs several statements as the superuser.
func (w *world) script(sql string) error {
	_, err := w.admin.PgConn().Exec(context.Background(), sql).ReadAll()
	return err
}

// value reads one value as the application.
func value[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	return valueOn[T](w.t, w.owner, sql, args...)
}

func valueOn[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	return fixture.One[T](t, conn, sql, args...)
}

// policyText is a policy file of one entry. more are further lines.
func policyText(table, column, after string, more ...string) string {
	return fixture.Policies(fixture.Policy("p", table, column, after), strings.Join(append(more, ""), "\n"))
}

// difference compares a policy file with the database, as a superuser.
func (w *world) difference(file string, prune bool) ([]change.Change, error) {
	w.t.Helper()
	f, err := policyfile.Parse("policies.yaml", []byte(file))
	must(w.t, err)
	return change.Difference(w.t.Context(), w.admin, f, prune, apply.Fit, nil)
}

// apply does what cmd does.
func (w *world) apply(file string) []change.Change {
	w.t.Helper()
	changes, err := w.difference(file, false)
	must(w.t, err)
	for i := range changes {
		must(w.t, w.write(&changes[i]))
	}
	return changes
}

func (w *world) write(c *change.Change) error {
	return pgx.BeginFunc(w.t.Context(), w.admin, func(tx pgx.Tx) error { return writeIn(w.t.Context(), tx, c) })
}

// writeIn sees to the deleter, as cmd does, and writes the change.
func writeIn(ctx context.Context, tx pgx.Tx, c *change.Change) error {
	if err := catalog.EnsureDeleter(ctx, tx, c.Resolved, testRoles); err != nil {
		return err
	}
	_, _, err := change.Write(ctx, tx, c, testRoles, "test")
	return err
}

// deleter is the role that owns the functions for the application's tables.
func (w *world) deleter() string {
	w.t.Helper()
	return testRoles.Deleter(valueOn[uint32](w.t, w.admin, `select oid from pg_roles where rolname = $1`, w.app))
}

// armed applies a policy file and arms what it says is armed.
func (w *world) armed(file string) record.InForce {
	w.t.Helper()
	w.apply(file)
	for _, p := range w.inForce() {
		if p.State == schemas.Arming {
			w.arm(p.ID)
		}
	}
	all := w.inForce()
	if len(all) == 0 {
		w.t.Fatal("nothing is in force")
	}
	return all[0]
}

func (w *world) arm(id schemas.PolicyID) {
	w.t.Helper()
	for range 2 {
		_ = valueOn[string](w.t, w.exec, `select lapse.advance_arming($1)`, id)
	}
}

// inForce loads the policies as the executor.
func (w *world) inForce() []record.InForce {
	w.t.Helper()
	all, err := record.LoadInForce(w.t.Context(), w.exec)
	must(w.t, err)
	return all
}

// named is the policy of that name.
func (w *world) named(name schemas.PolicyName) record.InForce {
	w.t.Helper()
	for _, p := range w.inForce() {
		if p.Name == name {
			return p
		}
	}
	w.t.Fatalf("policy %s is not in force", name)
	return record.InForce{}
}

// open opens a run as the executor.
func (w *world) open(p *record.InForce) record.Run {
	w.t.Helper()
	r, err := run.Open(w.t.Context(), w.exec, p, time.Now, run.Options{})
	must(w.t, err)
	return r
}

// batch is one call of a deletion function with all that it claims: tests change it to see it refused.
type batch struct {
	Policy    record.InForce
	Run       record.Run
	Claim     schemas.Claim
	Shard     int64
	Term      int64
	Holder    string
	Limit     int
	Shape     string // "" for the usual one
	StepOver  bool
	Portions  int
	Pause     *float64
	MAC       []byte
	Isolation pgx.TxIsoLevel
}

type result struct {
	Picked, Deleted      int64
	Finished, LeftBehind bool
	PassOver             bool
	ByRelation           map[string]int64
}

// lease takes the run's first unfinished shard and returns a batch for it.
func (w *world) lease(p record.InForce, r record.Run) *batch {
	w.t.Helper()
	b := w.leaseAny(p, r)
	if b == nil {
		w.t.Fatal("the run has no unfinished shard")
	}
	return b
}

func (w *world) leaseAny(p record.InForce, r record.Run) *batch {
	w.t.Helper()
	b := &batch{Policy: p, Run: r, Holder: "test", Limit: p.Batch, MAC: make([]byte, 32), Isolation: pgx.ReadCommitted}
	var target uint32
	err := w.exec.QueryRow(w.t.Context(), `select shard, term, leaf, case when in_heap then 'heap' else '' end from lapse.lease($1, $2)`, r.ID, b.Holder).Scan(&b.Shard, &b.Term, &target, &b.Shape)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	must(w.t, err)
	cascades := []uint32{}
	if p.Definition.Soft == nil {
		cascades, err = database.Cascades(w.t.Context(), w.exec, target)
		must(w.t, err)
	}
	b.Claim = schemas.Claim{
		PolicyID: p.ID, Policy: p.Name, PolicyVersion: p.Version, Run: r.ID, Cutoff: r.Cutoff,
		HoldVersion: p.HoldVersion, Target: target, Cascades: cascades,
	}
	return b
}

// call makes one batch in a transaction of its own. change may alter it once its transaction has begun.
func (w *world) call(b *batch, change func(*batch)) (result, error) {
	w.t.Helper()
	var got result
	err := pgx.BeginTxFunc(w.t.Context(), w.exec, pgx.TxOptions{IsoLevel: b.Isolation}, func(tx pgx.Tx) error {
		var err error
		got, err = w.callIn(tx, b, change)
		return err
	})
	return got, err
}

func (w *world) callIn(tx pgx.Tx, b *batch, change func(*batch)) (result, error) {
	c := b.Claim
	c.Batch = uuid.New()
	err := tx.QueryRow(w.t.Context(), `
		select pg_current_xact_id()::text::bigint, now(), (select oid from pg_database where datname = current_database()),
		       (select max(number) from lapse.history), lapse.timeline()`).
		Scan(&c.XID, &c.StartedAt, &c.DatabaseOID, &c.History, &c.Timeline)
	if err != nil {
		return result{}, err
	}
	altered := *b
	altered.Claim = c
	if change != nil {
		change(&altered)
	}
	return w.callDelete(tx, &altered)
}

// callDelete calls a batch's deletion function as the executor does.
func (w *world) callDelete(q database.Querier, b *batch) (got result, err error) {
	sql, args := b.statement()
	err = q.QueryRow(w.t.Context(), sql, args...).
		Scan(&got.Picked, &got.Deleted, &got.Finished, &got.LeftBehind, &got.ByRelation, &got.PassOver)
	return got, err
}

// statement is the call with its arguments.
func (b *batch) statement() (sql string, args []any) {
	c := &b.Claim
	sql = `select picked, deleted, finished, left_behind, by_relation, pass_over from ` + functions.DeleteFunction(b.Policy.ID, b.Policy.Version) + `(
		row($1::text, $2::oid, $3::int, $4::int, $5::text::xid8, $6::timestamptz, $7::uuid, $8::int, $9::text, $10::int, $11::uuid, $12::timestamptz,
		    $13::bigint, $14::oid, $15::oid[], $16::bytea)::lapse.claim, $17::bytea, row($18::bigint, $19::bigint, $20::text, $21::int, nullif($22, ''), $23, false, nullif($24::int, 0), $25::float8)::lapse.work)`
	return sql, []any{
		"1", c.DatabaseOID, c.History, c.Timeline, fmt.Sprint(c.XID), c.StartedAt, c.Batch, c.PolicyID, c.Policy, c.PolicyVersion, c.Run, c.Cutoff, c.HoldVersion,
		c.Target, c.Cascades, c.Functions[:], b.MAC, b.Shard, b.Term, b.Holder, b.Limit, b.Shape, b.StepOver, b.Portions, b.Pause,
	}
}

// deleteAll works off a run, with batches of limit rows, and returns what was picked and deleted.
func (w *world) deleteAll(p record.InForce, r record.Run, limit int) (total result) {
	w.t.Helper()
	for b := w.leaseAny(p, r); b != nil; b = w.leaseAny(p, r) {
		b.Limit = limit
		for !total.Finished {
			got, err := w.call(b, nil)
			must(w.t, err)
			total.Picked, total.Deleted, total.Finished = total.Picked+got.Picked, total.Deleted+got.Deleted, got.Finished
		}
		total.Finished = false
	}
	return total
}

func wantState(t testing.TB, err error, state string) {
	t.Helper()
	if got := schemas.StateOf(err); got != state {
		t.Errorf("got %v (SQLSTATE %q), want SQLSTATE %s", err, got, state)
	}
}

// surveyInForce counts all.
func surveyInForce(ctx context.Context, conn *pgx.Conn, p *record.InForce, at time.Time) (*survey.Survey, error) {
	over, err := pgx.ConnectConfig(ctx, conn.Config())
	if err != nil {
		return nil, err
	}
	defer database.Close(over)
	return survey.Ask{At: at, Over: over}.InForce(ctx, conn, p)
}
