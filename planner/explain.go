package planner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// PickStatement is the statement by which a batch finds its rows on one leaf, with literals for what the deletion
// function has parameters for. leaf is SQL; cutoff and bound are texts of instants.
func (d *Definition) PickStatement(leaf, cutoff, bound string) string {
	return d.pickSelect(leaf, literal(cutoff)+"::timestamptz", literal(bound)+"::"+string(d.ColumnType)) + "\n" +
		d.pickTail(strconv.Itoa(d.Batch))
}

// explain finds out how the rows would be found: from PostgreSQL's plan where the session may have one, and otherwise
// from the indexes that there are.
func (s *surveyor) explain(ctx context.Context, tx pgx.Tx) error {
	v, d := &s.survey, s.definition
	leaves, err := collect[Relation](ctx, tx, `
		select c.oid, l.name
		  from (`+leavesSQL+`) l(oid, plain, name)
		  join pg_class c on c.oid = l.oid
		 order by c.relpages desc, c.oid`, s.table)
	if err != nil {
		return fmt.Errorf("list the leaves of %s: %w", v.Table, err)
	}
	v.Order = []string{d.Column}
	for _, k := range d.Key {
		if k.Name != d.Column {
			v.Order = append(v.Order, k.Name)
		}
	}
	v.Shards = slices.Clone(leaves)
	slices.SortFunc(v.Shards, func(a, b Relation) int { return int(int64(a.OID) - int64(b.OID)) })
	if len(leaves) == 0 {
		v.Method, v.ExplainNote = Sequential, "there is no partition yet"
		return nil
	}
	var cutoff, bound string
	if err := tx.QueryRow(ctx, `select $1::timestamptz::text, (`+d.bound("$1::timestamptz")+`)::text`, v.At).Scan(&cutoff, &bound); err != nil {
		return fmt.Errorf("count back from the cutoff: %w", err)
	}
	v.Statement = d.PickStatement(leaves[0].Name, cutoff, bound)
	err = attempt(ctx, tx, func(q Querier) error { return s.readPlan(ctx, q) })
	if !hasCode(err, "42501") {
		return err
	}
	v.ExplainNote = "this session may not read " + leaves[0].Name + ": EXPLAIN needs its owner's rights"
	v.Index, _, err = findIndex(ctx, tx, d, leaves)
	v.Method = Sequential
	if v.Index != "" {
		v.Method = IndexOrder
	}
	return err
}

// plan is what of EXPLAIN's JSON says how rows are found.
type plan struct {
	Node  string `json:"Node Type"`
	Index string `json:"Index Name"`
	Plans []plan `json:"Plans"`
}

func (s *surveyor) readPlan(ctx context.Context, q Querier) error {
	v := &s.survey
	lines, err := collect[struct{ Line string }](ctx, q, `explain `+v.Statement)
	if err != nil {
		return err
	}
	for _, l := range lines {
		v.Explain += l.Line + "\n"
	}
	var text []byte
	if err := q.QueryRow(ctx, `explain (format json) `+v.Statement).Scan(&text); err != nil {
		return err
	}
	var whole []struct {
		Plan plan `json:"Plan"`
	}
	if err := json.Unmarshal(text, &whole); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	v.Method = Sequential
	for _, w := range whole {
		v.Method, v.Index = w.Plan.method(false)
	}
	return nil
}

// method follows a plan down to where rows are read.
func (p *plan) method(sorted bool) (Method, string) {
	sorted = sorted || p.Node == "Sort" || p.Node == "Incremental Sort"
	if p.Index != "" {
		if sorted {
			return IndexSort, p.Index
		}
		return IndexOrder, p.Index
	}
	if len(p.Plans) == 0 {
		return Sequential, ""
	}
	return p.Plans[0].method(sorted)
}
