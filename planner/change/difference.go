package change

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"lapse/internal/yamldoc"
	"lapse/planner/database"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/planner/resolve"
	"lapse/schemas"
)

// comparison compares a file with what is in force.
type comparison struct {
	wrong   yamldoc.Errors
	file    *policyfile.File
	prune   bool
	fit     resolve.Fit
	far     Far
	inForce map[schemas.PolicyName]*record.InForce
	order   []schemas.PolicyName         // of inForce
	onTable map[tableUse]*record.Version // the version that uses the table
	former  *formerVersions
	found   *foundFunctions
	quiet   resolve.Quiet
	inFile  map[schemas.PolicyName]bool
	changes []Change // of the file's policies
}

// Far is called when a policy is begun: the nth of so many. It may be nil.
type Far func(nth, of int)

// Difference compares the policies of a file with what is in force, and says what Write would do with each: first the dropped ones, then the
// file's policies in its order, then policies in force that the file does not have. It changes nothing. Its error is yamldoc.Errors with
// everything that is wrong in all policies, including the file's own problems, or a failed query. With yamldoc.Errors it also returns the
// changes of the policies without an error: the caller can check them further, but must write nothing.
//
// It compares an entry with the record first. If no more falls due than before, problems of the table are only warnings: a table that became
// unfit must not keep a person from pausing, lengthening or dropping its policy, nor from changing the others. The table of an entry that
// pauses its policy is not checked.
//
// arming.go says which version and which state a change leads to.
func Difference(ctx context.Context, db database.DB, file *policyfile.File, prune bool, fit resolve.Fit, far Far) ([]Change, error) {
	c := newComparison(file, prune, fit, far)
	if err := c.load(ctx, db); err != nil {
		return nil, err
	}
	return c.compare(ctx, db)
}

// newComparison compares a file with nothing in force.
func newComparison(file *policyfile.File, prune bool, fit resolve.Fit, far Far) *comparison {
	return &comparison{
		wrong: slices.Clone(file.Problems), file: file, prune: prune, fit: fit, far: far, former: &formerVersions{},
		inForce: map[schemas.PolicyName]*record.InForce{}, onTable: map[tableUse]*record.Version{}, inFile: map[schemas.PolicyName]bool{},
	}
}

func (c *comparison) compare(ctx context.Context, db database.DB) (_ []Change, err error) {
	if c.quiet, err = resolve.FindQuiet(ctx, db, c.file.Policies); err != nil {
		return nil, err
	}
	for i, p := range c.file.Policies {
		if c.far != nil {
			c.far(i+1, len(c.file.Policies))
		}
		if err := c.policy(ctx, db, p); err != nil {
			return nil, err
		}
	}
	for _, p := range c.file.Mistaken {
		var problems policyfile.Problems
		if _, err := resolve.Resolve(ctx, db, p, c.fit); errors.As(err, &problems) {
			c.wrong = append(c.wrong, p.InFile(problems)...)
		} else if err != nil {
			return nil, err
		}
	}
	if len(c.wrong) > 0 {
		return c.result(), c.wrong.Sorted(c.file.Names)
	}
	return c.result(), nil
}

func (c *comparison) load(ctx context.Context, db database.DB) error {
	inForce, err := record.LoadInForce(ctx, db)
	switch schemas.StateOf(err) {
	case schemas.SQLStateUndefinedTable, schemas.SQLStateInvalidSchemaName:
		return fmt.Errorf("the catalog is not installed: run `lapse init`: %w", err)
	}
	if err != nil {
		return err
	}
	if c.former, err = loadFormerVersions(ctx, db); err != nil {
		return err
	}
	if c.found, err = findFunctions(ctx, db); err != nil {
		return err
	}
	for _, p := range c.file.Policies {
		c.inFile[p.Name] = true
	}
	for i := range inForce {
		p := &inForce[i]
		c.inForce[p.Name], c.order = p, append(c.order, p.Name)
		if c.inFile[p.Name] || !c.prune {
			c.onTable[useOf(p.Current())] = p.Current()
		}
	}
	return nil
}

// policy compares one entry of the file.
func (c *comparison) policy(ctx context.Context, db database.DB, p policyfile.Policy) error {
	kept, entry, err := c.kept(ctx, db, p)
	if err != nil {
		return err
	}
	if kept != nil && kept.ToState == schemas.Paused {
		c.changes = append(c.changes, *kept)
		return nil
	}
	resolved, err := entry.Resolve(ctx, db, p, c.fit, c.quiet)
	var problems policyfile.Problems
	switch {
	case errors.As(err, &problems) && kept != nil && kept.Careful():
		kept.unfit(p.InFile(problems))
		c.changes = append(c.changes, *kept)
	case errors.As(err, &problems):
		c.wrong = append(c.wrong, p.InFile(problems)...)
	case err != nil:
		return err
	default:
		c.resolved(resolved, kept)
	}
	return nil
}

// kept is the change of a policy in force judged by the record alone; nil if the record does not suffice. It also returns the entry if it
// was read.
func (c *comparison) kept(ctx context.Context, db database.DB, p policyfile.Policy) (*Change, *resolve.Entry, error) {
	before := c.inForce[p.Name]
	if before == nil {
		return nil, nil, nil
	}
	e, err := resolve.ReadEntry(ctx, db, p)
	if err != nil || len(e.Problems) > 0 {
		return nil, e, err // the problems are reported with the table's
	}
	next := e.OnRecord(before.Current())
	if waiting := before.Waiting(); next == nil && waiting != nil {
		next = e.OnRecord(waiting.Current())
	}
	if next == nil {
		return nil, e, nil
	}
	if _, problem, err := resolve.CheckArithmetic(ctx, db, next); err != nil || problem != "" {
		return nil, e, err
	}
	change := c.change(&p, next)
	change.careful = true
	return &change, e, nil
}

// resolved records the change of a policy whose table is fit.
func (c *comparison) resolved(r *resolve.Resolved, kept *Change) {
	if key, problem := c.shares(r.Version()); problem != "" {
		c.wrong = append(c.wrong, r.Policy.InFile(policyfile.Problems{{Key: key, Text: problem}})...)
		return
	}
	maps.DeleteFunc(c.onTable, func(_ tableUse, v *record.Version) bool { return v.Definition.Name == r.Policy.Name })
	c.onTable[useOf(r.Version())] = r.Version()
	change := c.change(&r.Policy, r.Version())
	change.Resolved, change.Warnings = r, append(r.Warnings, movesBegin(&change)...)
	if kept != nil {
		change.careful = change.Kind == kept.Kind && slices.Equal(change.Fields, kept.Fields) && !change.MoreFallDue
		if kept.Careful() {
			change.fallback = kept
		}
	}
	for i := range change.Fields {
		if f := &change.Fields[i]; f.Field == record.TableOwnerField {
			f.To = schemas.Identifier(r.TableOwner)
		}
	}
	c.changes = append(c.changes, change)
}

// change is the change of a policy of the file whose next version is next.
func (c *comparison) change(policy *policyfile.Policy, next *record.Version) Change {
	known, p := c.former.newestID[policy.Name], c.inForce[policy.Name]
	table := next.Definition.Table
	next.Entry = policy.Source()
	change := Change{Kind: New, Policy: policy.Name, Table: table, ID: known.ID, FromVersion: known.InForce, newest: known.Version, Next: next}
	if p == nil {
		change.Fields = record.FieldChanges(nil, next.Spec.Lines(table))
	} else {
		change.before, change.FromVersion, change.FromState, change.fromHeld, change.former = p, p.Version, p.State, p.HeldVersion, p.Current()
		c.compareVersions(&change)
	}
	c.former.decide(&change, policy.State)
	return change
}

// compareVersions compares what the file says with the version in force, and with the one that is held back.
func (c *comparison) compareVersions(change *Change) {
	p, next := change.before, change.Next
	fields, differs := c.differences(p.Current(), next)
	change.Fields = fields
	if !differs {
		change.isVersion = p.Version
		return
	}
	if waiting := p.Waiting(); waiting != nil {
		if _, differs := c.differences(waiting.Current(), next); !differs {
			change.isVersion = waiting.Version
		}
	}
	if next.Covers(p.Current()) {
		goesOn := next.ForRowsOf(p.Current())
		if _, differs := c.differences(p.Current(), goesOn); differs {
			change.goesOn = goesOn
		}
	}
}

// differences are the fields in which a version differs from one on record, was. differs can be true without any field.
func (c *comparison) differences(was, is *record.Version) (fields []record.FieldChange, differs bool) {
	table := is.Definition.Table
	fields = record.FieldChanges(was.Spec.Lines(was.Definition.Table), is.Spec.Lines(table))
	switch {
	case was.Table != is.Table && was.Definition.Table == table:
		fields = append(fields, record.FieldChange{Field: "table", From: table, To: "another table of that name"})
	case len(fields) > 0 || was.Table != is.Table || !slices.Equal(was.Spec.Key, is.Spec.Key):
		return fields, true
	case was.Spec.Functions != is.Spec.Functions:
		fields = append(fields, record.FieldChange{Field: "functions", From: "as another lapse wrote them", To: "as this one writes them"})
	case !c.found.are(&was.Definition):
		fields = append(fields, record.FieldChange{Field: "functions", From: "gone, or changed by somebody", To: "as this lapse writes them"})
	}
	return fields, len(fields) > 0
}

func (c *comparison) result() []Change {
	var dropped, missing []Change
	for _, name := range c.order {
		p := c.inForce[name]
		if c.inFile[name] {
			continue
		}
		change := Change{
			Kind: Missing, Policy: name, Table: p.TableName, ID: p.ID, FromVersion: p.Version, ToVersion: p.Version,
			FromState: p.State, ToState: p.State, fromHeld: p.HeldVersion, HeldVersion: p.HeldVersion, former: p.Current(),
		}
		if c.prune {
			change.Kind, change.ToState, change.HeldVersion = Removed, schemas.Dropped, 0
			dropped = append(dropped, change)
			continue
		}
		missing = append(missing, change)
	}
	return append(append(dropped, c.changes...), missing...)
}
