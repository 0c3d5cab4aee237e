package resolve

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/index"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/schemas"
)

// Resolve compares a policy with the database. It changes nothing. Its error is policyfile.Problems, every one with the fix, or a
// failed query.
func Resolve(ctx context.Context, db database.DB, p policyfile.Policy, fit Fit) (*Resolved, error) {
	return (*Entry)(nil).Resolve(ctx, db, p, fit, nil)
}

// Resolve is Resolve of a policy whose texts were read into e; nil if they were not.
func (e *Entry) Resolve(ctx context.Context, db database.DB, p policyfile.Policy, fit Fit, quiet Quiet) (*Resolved, error) {
	r := &Resolved{Policy: p}
	s := &resolution{p: &p, r: r, entry: e, fit: fit, quiet: quiet}
	err := database.Pinned(ctx, db, func(tx pgx.Tx) error {
		s.tx = tx
		return s.resolve(ctx)
	})
	switch schemas.StateOf(err) {
	case schemas.SQLStateInvalidSchemaName, schemas.SQLStateUndefinedFunction:
		return nil, fmt.Errorf("compare policy %s with the database: the catalog is not installed, run `lapse init`: %w", p.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("compare policy %s with the database: %w", p.Name, err)
	}
	if len(s.problems) > 0 {
		return nil, s.problems
	}
	return r, nil
}

// findTable complains about a table that cannot have a policy.
func (s *resolution) findTable(ctx context.Context) (t database.Table, fit bool, err error) {
	t, problem, err := database.FindTable(ctx, s.tx, s.p.Table)
	s.complain("table", problem)
	return t, err == nil && problem == "", err
}

func (s *resolution) resolve(ctx context.Context) error {
	r, p := s.r, s.p
	if p.Expire == nil { // of a policy that could not be read: see policyfile.File.Mistaken
		if p.Table == "" {
			return nil
		}
		_, _, err := s.findTable(ctx)
		return err
	}
	r.Definition = functions.Definition{Name: p.Name, Batch: p.Batch, SearchPath: p.Triggers.SearchPath, Action: p.Action.Kind}
	e := s.entry
	if e == nil {
		var err error
		if e, err = readEntryIn(ctx, s.tx, p); err != nil {
			return err
		}
	}
	s.problems = append(s.problems, e.Problems...)
	r.Definition.Expire, r.Schedule, r.Policy.Latitude = e.expire, e.when, e.policy.Latitude
	if p.Table == "" { // as above
		return nil
	}
	t, fit, err := s.findTable(ctx)
	if err != nil || !fit {
		return err
	}
	r.TableOID, r.TableOwner, r.Definition.Table, r.Definition.TableOwner, s.referredTo = t.OID, t.Owner, t.Name, t.OwnerOID, t.ReferredTo()
	for _, step := range []func(context.Context, *database.Table) error{
		s.columns, s.soft, s.where, s.meanings, s.relations, s.action, s.evidence, s.moves,
	} {
		if err := step(ctx, &t); err != nil {
			return err
		}
	}
	s.floors(e)
	if len(s.problems) > 0 {
		return nil
	}
	if err := s.indexes(ctx); err != nil {
		return err
	}
	r.Warnings = append(append(r.Warnings, s.warnings...), Unitless(p)...)
	r.Spec = s.specification(e)
	key, problem, err := checkArithmetic(ctx, s.tx, r.Version())
	s.complain(key, problem)
	return err
}

// indexes warns of missing indexes, and of what else slows the application.
func (s *resolution) indexes(ctx context.Context) (err error) {
	r := s.r
	prefix := index.AdvisedPrefix
	if s.p.Index == CreateIndex {
		prefix = index.MadePrefix
	}
	found, err := index.Find(ctx, s.tx, &r.Definition, r.Leaves, prefix)
	if err != nil {
		return err
	}
	r.Index, r.Warnings = found.Name, found.Warnings
	if r.Definition.Where != nil {
		r.Definition.Where.Indexed = found.ByWhere
	}
	if ttl, is := r.Definition.Expire.(*expiry.TTL); is {
		ttl.Sparse = found.Sparse
	}
	if found.None != nil && s.p.Index == CreateIndex {
		r.Build, r.Warnings = found.None.Steps, found.Warnings[:len(found.Warnings)-1]
	}
	pace, err := database.WarnOfPace(ctx, s.tx, s.p.Limits.Pace == policyfile.PaceUnlimited, r.Definition.Table, r.Leaves, r.Definition.Soft != nil)
	if err != nil {
		return err
	}
	r.Warnings = append(r.Warnings, pace...)
	if r.Definition.Soft != nil {
		return nil // a soft action deletes nothing, by cascade or otherwise
	}
	var children, blocking []string
	if s.referredTo {
		if children, err = index.Unindexed(ctx, s.tx, r.TableOID, r.Leaves, r.Cascades); err != nil {
			return err
		}
		if blocking, err = database.FindBlocking(ctx, s.tx, r.TableOID, r.Leaves, r.Cascades); err != nil {
			return err
		}
	}
	r.Warnings = append(append(r.Warnings, children...), blocking...)
	r.Around = &index.Around{Cascades: r.Cascades, Warnings: slices.Concat(pace, children, blocking)}
	if prefix == index.AdvisedPrefix && len(r.Leaves) == 1 { // a plan names indexes for the largest leaf
		r.Around.Indexes = &found
	}
	for _, j := range r.Definition.Joined() {
		if !slices.ContainsFunc(r.Cascades, func(c database.Relation) bool { return c.OID == j.OID }) {
			r.Warnings = append(r.Warnings, fmt.Sprintf("rows of %s stay when their rows of %s go: a foreign key from it with on delete cascade takes them along",
				j.Name, r.Definition.Table))
		}
	}
	return nil
}

// columns finds the columns that the expiry reads.
func (s *resolution) columns(ctx context.Context, t *database.Table) error {
	problems, err := s.r.Definition.Expire.Resolve(ctx, s.tx, expiry.Table{OID: t.OID, Name: t.Name})
	for _, problem := range problems {
		s.complain("expire."+problem.Key, problem.Text)
	}
	return err
}

// relations finds the leaves, the key, and what prevents deleting from them.
func (s *resolution) relations(ctx context.Context, t *database.Table) error {
	r := s.r
	leaves, problems, err := database.FindLeaves(ctx, s.tx, t)
	if err != nil {
		return err
	}
	r.Leaves = leaves
	key, more, err := findKey(ctx, s.tx, t, leaves, s.fit)
	if err != nil {
		return err
	}
	r.Definition.Key = key
	if err := s.sliceColumns(ctx, t); err != nil {
		return err
	}
	intruders, err := s.code(ctx, t)
	if err != nil {
		return err
	}
	oids := []uint32{t.OID}
	for _, l := range leaves {
		oids = append(oids, l.OID)
	}
	r.Published = []database.Relation{{OID: t.OID, Name: t.Name}}
	var loops []string
	if r.Definition.Soft == nil && s.referredTo {
		if loops, err = s.cascades(ctx, t, oids); err != nil {
			return err
		}
	}
	for _, group := range [][]string{problems, more, loops} {
		for _, problem := range group {
			s.complain("table", problem)
		}
	}
	for _, problem := range intruders {
		s.complain("triggers", problem)
	}
	return nil
}

// cascades finds where deletions delete through foreign keys, and which of these must not be.
func (s *resolution) cascades(ctx context.Context, t *database.Table, relations []uint32) (loops []string, err error) {
	r := s.r
	if r.Cascades, err = database.CascadeLeaves(ctx, s.tx, relations); err != nil || len(r.Cascades) == 0 {
		return nil, err
	}
	roots, err := database.CascadeRoots(ctx, s.tx, relations)
	if err != nil {
		return nil, err
	}
	r.Published = append(r.Published, roots...)
	return database.FindLoops(ctx, s.tx, t, r.Leaves, r.Cascades)
}

// floors finds the floors that the policy must respect.
func (s *resolution) floors(e *Entry) {
	d := &s.r.Definition
	d.Floors = floorsOn(e.floors, d.Table, database.Names(s.r.Published[1:]))
	for _, problem := range functions.FloorProblems(d.Floors, d.Table, d.Expire) {
		s.complain("expire", problem)
	}
}

// specification is the spec that lapse.policy keeps.
func (s *resolution) specification(e *Entry) record.Spec {
	d := &s.r.Definition
	text := record.Spec{Trusted: s.trusted, Key: d.Key, Cascades: database.Names(s.r.Published[1:]), TableOwner: d.TableOwner, Floor: d.Floors}
	e.fill(&text, d)
	return text
}

// CreateIndex is the word with which a policy lets apply make its index.
const CreateIndex = "create"
