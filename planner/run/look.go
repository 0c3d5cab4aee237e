package run

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/record"
)

// A look asks, before a run is opened, which leaves of a policy have a due row: one statement that changes nothing, whatever the number of
// partitions. It does not open partitions that cannot have one by their bounds. A leaf that is locked counts as one to try, and so does a leaf
// with more than functions.LookRows candidates that are not due, and one without valid checks: that is not read.

// Quiet is a leaf in which nothing is due until something is written to it, by PostgreSQL's statistics. These are only a hint: a look with Mark
// among its quiet leaves skips the leaf, and must not use Mark after Until, by the server's clock.
type Quiet struct {
	Leaf  uint32
	Mark  int64
	Until time.Time
}

// Look is what a look found.
type Look struct {
	Due []uint32 // the leaves with a due row, and those for which it is not known
	// Unkept are leaves without valid results of checks, which were not read: look again after Acquaint.
	Unkept  []uint32
	Quiet   []Quiet
	Divided bool // the division of the table is stored, or it is not partitioned
}

// LookStatement is the statement of looks under policies, one after the other: PostgreSQL and the driver prepare each statement. ReadLooks reads its
// rows. $1 is the cutoff, null for the server's clock, and the parameter after it the marks of leaves that the first policy's look skips, and so on.
// The driver has a new text described before the session is cleaned: no name in it is looked up by search_path, that of a type neither.
func LookStatement(policies ...*record.InForce) string {
	looks := make([]string, len(policies))
	for i, p := range policies {
		looks[i] = fmt.Sprintf("select %d, d.leaf, d.due, d.kept, d.mark, d.until from %s($1::timestamp with time zone, $%d::bigint[]) d", i, functions.DueFunction(p.ID, p.Version), i+2)
	}
	return strings.Join(looks, " union all ")
}

// LookRow is a row of looks.
type LookRow struct {
	Look      int
	Leaf      *uint32
	Due, Kept *bool
	Mark      *int64
	Until     *time.Time
}

// ReadLooks reads the rows of as many looks.
func ReadLooks(rows pgx.Rows, looks int) ([]Look, error) {
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LookRow])
	found := make([]Look, looks)
	for i := range found {
		found[i].Divided = true
	}
	for _, r := range all {
		look := &found[r.Look]
		if r.Leaf == nil {
			look.Divided = false
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
	return found, err
}

// FoundNothing reports whether nothing is due in any leaf, and nothing about the table has to be recorded.
func (l *Look) FoundNothing() bool { return len(l.Due) == 0 && len(l.Unkept) == 0 && l.Divided }

// mostChecked is how many leaves one statement checks at most.
const mostChecked = 50

// Acquaint makes the checks of leaves and stores their results, and how the table is divided, if a look reported them missing. Durable when it returns,
// unless q is a transaction. After a crash the next look reports them again.
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
		some := append([]uint32{}, leaves[:min(len(leaves), mostChecked)]...)
		leaves = leaves[len(some):]
		var nothing any
		if err := q.QueryRow(ctx, `select lapse.acquaint($1, $2, $3, $4)`, p.ID, p.Version, some, column).Scan(&nothing); err != nil {
			return fmt.Errorf("keep what is known of the table of policy %s: %w", p.Name, err)
		}
	}
	return nil
}

// Looked records that nothing was due under policies. Durable when it returns.
func Looked(ctx context.Context, q database.Querier, policies ...*record.InForce) error {
	if err := forEach(ctx, q, policies, `lapse.looked(p.id, p.version)`); err != nil {
		return fmt.Errorf("record that nothing is due: %w", err)
	}
	return nil
}

// Passed records that looks found nothing due, and how long they took together: low-water marks that were no longer valid become valid again.
func Passed(ctx context.Context, q database.Querier, took time.Duration, policies ...*record.InForce) error {
	if err := forEach(ctx, q, policies, `lapse.passed(p.id, p.version, $3)`, took); err != nil {
		return fmt.Errorf("let low-water marks count again: %w", err)
	}
	return nil
}

// forEach calls a function for each of some policies in one statement, in the order of their numbers: two executors that write the same rows wait
// for each other and do not deadlock.
func forEach(ctx context.Context, q database.Querier, policies []*record.InForce, call string, more ...any) error {
	ids, versions := make([]int32, len(policies)), make([]int32, len(policies))
	for i, p := range policies {
		ids[i], versions[i] = int32(p.ID), int32(p.Version)
	}
	rows, err := q.Query(ctx, `select `+call+` from (select * from unnest($1::int[], $2::int[]) u(id, version) order by u.id) p`, append([]any{ids, versions}, more...)...)
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// IgnoreMarks makes the policy's next look start at the beginning of its table, ignoring low-water marks.
func IgnoreMarks(ctx context.Context, q database.Querier, p *record.InForce) error {
	var nothing any
	if err := q.QueryRow(ctx, `select lapse.ignore_marks($1)`, p.ID).Scan(&nothing); err != nil {
		return fmt.Errorf("ignore the low-water marks of policy %s: %w", p.Name, err)
	}
	return nil
}
