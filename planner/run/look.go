package run

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

// A look asks, before a run is opened, which leaves of a policy have a due row: one statement that changes nothing, whatever the
// number of partitions. Partitions that cannot have one by their bounds are not opened, a leaf that somebody has locked counts as
// one to try, and so does one in which more rows than functions.LookRows are past without being due.

// Quiet is a leaf in which nothing is due until something is written to it, as PostgreSQL's statistics have it. They are a hint: to name
// Mark in a look's quiet leaves it out, and nobody is to do that after Until, by the server's clock.
type Quiet struct {
	Leaf  uint32
	Mark  int64
	Until time.Time
}

// Look is what a look found.
type Look struct {
	Due []uint32 // the leaves with a due row, and those where it is not known
	// Unkept are leaves whose checks' findings are not kept, so that each look makes the checks again. See Acquaint.
	Unkept  []uint32
	Quiet   []Quiet
	Divided bool // how the table is divided is kept, or it is not partitioned
}

// LookStatement is the statement of a look under a policy version, and ReadLook reads its rows. versions is SQL that tells the row
// versions of the functions that it runs: where they are not those of $2, nothing runs, and there is one row without a leaf. $1 is the cutoff,
// null for the server's clock; quiet, SQL too, are the marks of leaves to leave out.
func LookStatement(id schemas.PolicyID, version schemas.PolicyVersion, versions, quiet string) string {
	// Not a left join on ok.same: that would run the function before it asks.
	return `with ok as materialized (select (` + versions + `) = $2 as same)
	select ok.same, null::oid, null::boolean, null::boolean, null::bigint, null::timestamptz from ok
	 union all
	select ok.same, d.leaf, d.due, d.kept, d.mark, d.until
	  from ok
	 cross join lateral ` + functions.DueFunction(id, version) + `(case when ok.same then $1::timestamptz end, ` + quiet + `) d
	 where ok.same`
}

// LookRow is a row of a look.
type LookRow struct {
	Same      bool
	Leaf      *uint32
	Due, Kept *bool
	Mark      *int64
	Until     *time.Time
}

// ReadLook reads a look's rows. same says that the functions were what they should be.
func ReadLook(rows pgx.Rows) (look Look, same bool, err error) {
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LookRow])
	look.Divided, same = true, true
	for _, r := range all {
		same = same && r.Same
		if r.Leaf == nil {
			look.Divided = look.Divided && r.Kept == nil
			continue
		}
		if r.Due == nil || *r.Due {
			look.Due = append(look.Due, *r.Leaf)
		}
		if !*r.Kept {
			look.Unkept = append(look.Unkept, *r.Leaf)
		}
		if r.Mark != nil && r.Until != nil {
			look.Quiet = append(look.Quiet, Quiet{*r.Leaf, *r.Mark, *r.Until})
		}
	}
	return look, same, err
}

// Unchecked reports whether leaves were left out because too many had to be checked. Look again after Acquaint.
func (l *Look) Unchecked() bool { return len(l.Unkept) > functions.MostChecked }

// Acquaint keeps what the checks of leaves find, and how the table is divided, where a look said that it is not kept. Durable when it
// returns, unless q is a transaction. A crash leaves what the next look says again.
func Acquaint(ctx context.Context, q database.Querier, p *record.InForce, look *Look) error {
	var column *string
	if !look.Divided {
		name := ""
		if p.Definition.Divides() {
			name = p.Definition.Expire.Order().Column
		}
		column = &name
	}
	leaves := look.Unkept
	for ; len(leaves) > 0 || column != nil; column = nil {
		some := append([]uint32{}, leaves[:min(len(leaves), functions.MostChecked)]...)
		leaves = leaves[len(some):]
		var nothing any
		if err := q.QueryRow(ctx, `select lapse.acquaint($1, $2, $3, $4)`, p.ID, p.Version, some, column).Scan(&nothing); err != nil {
			return fmt.Errorf("keep what is known of the table of policy %s: %w", p.Name, err)
		}
	}
	return nil
}

// Looked records that nothing was due. Durable when it returns.
func Looked(ctx context.Context, q database.Querier, p *record.InForce) error {
	var nothing any
	if err := q.QueryRow(ctx, `select lapse.looked($1, $2)`, p.ID, p.Version).Scan(&nothing); err != nil {
		return fmt.Errorf("record that nothing is due under policy %s: %w", p.Name, err)
	}
	return nil
}

// Passed says that a look found nothing due and how long it took: low-water marks that did not count any more count again.
func Passed(ctx context.Context, q database.Querier, p *record.InForce, took time.Duration) error {
	var nothing any
	if err := q.QueryRow(ctx, `select lapse.passed($1, $2, $3)`, p.ID, p.Version, took).Scan(&nothing); err != nil {
		return fmt.Errorf("let the low-water marks of policy %s count again: %w", p.Name, err)
	}
	return nil
}

// IgnoreMarks lets the policy's next look begin at the start of its table, whatever low-water marks say.
func IgnoreMarks(ctx context.Context, q database.Querier, p *record.InForce) error {
	var nothing any
	if err := q.QueryRow(ctx, `select lapse.ignore_marks($1)`, p.ID).Scan(&nothing); err != nil {
		return fmt.Errorf("ignore the low-water marks of policy %s: %w", p.Name, err)
	}
	return nil
}
