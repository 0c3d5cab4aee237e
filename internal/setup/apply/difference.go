package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/site"
	"lapse/internal/yamldoc"
	"lapse/planner/change"
	"lapse/planner/database"
	"lapse/planner/policyfile"
	"lapse/replication"
	"lapse/schemas"
)

// Applier makes the policies of a database match a file: Difference compares, Apply writes.
type Applier struct {
	site.Session
	AuditRequired bool   // the tables of policies must be published
	Prune         bool   // policies that are not in the file are dropped
	Arm           bool   // arm versions that let more rows fall due
	Reason        string // for the record
	// Draft counts what falls due before anything is written; nil: no counts. No count goes further than CountAtMost.
	Draft       *database.Draft
	CountAtMost int64
	// Login opens a session of the applying login's own, in which indexes are made and dropped.
	Login func(ctx context.Context) (*pgx.Conn, error)
	// Indexing is called with the progress of an index; may be nil.
	Indexing func(IndexProgress)
	// Far is called with the policy that a step has reached, of how many; may be nil.
	Far func(step string, nth, of int)
	// Tell is called for each policy once its change is committed; may be nil.
	Tell func(c *Change)
}

// Change is what Apply does with one policy. It marshals to JSON as is.
type Change struct {
	change.Change
	Publish  []string  `json:"publish,omitempty"` // tables that are to be published
	Applied  bool      `json:"applied"`
	Grant    bool      `json:"grant,omitempty"`  // the deleter lacks a right, for instance on a new partition
	Grants   []string  `json:"grants,omitempty"` // the statements that give it what it lacks, as they will run
	Leave    []string  `json:"leave,omitempty"`  // tables that leave their publication: no policy needs them there
	NewlyDue *NewlyDue `json:"newly_due,omitempty"`
	// Build are the statements that make the policy's index, before its version is written; DropIndexes are indexes that Lapse made and that no
	// policy asks for any more.
	Build       []string `json:"build,omitempty"`
	DropIndexes []string `json:"drop_indexes,omitempty"`
	Left        []string `json:"-"` // the tables of Leave that are still published after Apply, and what to do; also in Warnings

	tables   []uint32 // all that must be published
	leaving  []replication.Member
	unneeded []MadeIndex
	failed   bool
}

// Writes reports whether Apply would change anything.
func (c *Change) Writes() bool {
	return c.Change.Writes() || len(c.Publish) > 0 || c.Grant || len(c.Leave) > 0 || len(c.Build) > 0 || len(c.DropIndexes) > 0
}

// Changes are what Apply does, in its order.
type Changes []Change

// Write reports whether Apply would change anything.
func (cs Changes) Write() bool {
	return slices.ContainsFunc(cs, func(c Change) bool { return c.Writes() })
}

// Unfit reports whether a policy in force cannot delete from its table, and is not paused.
func (cs Changes) Unfit() bool {
	return slices.ContainsFunc(cs, func(c Change) bool { return c.Unfit && c.ToState != schemas.Paused })
}

// HeldVersion reports whether a version waits for a person, and its policy is not paused.
func (cs Changes) HeldVersion() bool {
	return slices.ContainsFunc(cs, func(c Change) bool { return c.HeldVersion != 0 && c.ToState != schemas.Paused })
}

// refused refuses the file because of problems with a policy's table, unless the change can do without the table.
func (c *Change) refused(problems []error) yamldoc.Errors {
	if len(problems) == 0 {
		return nil
	}
	if c.FallBack(errors.Join(problems...).Error()) {
		c.Publish, c.Grant, c.Grants, c.tables = nil, false, nil, nil
		return nil
	}
	var all yamldoc.Errors
	for _, problem := range problems {
		one := c.Resolved.Policy.InFile(policyfile.Problems{{Key: "table", Text: problem.Error()}})
		one[0].Cause = problem
		all = append(all, one...)
	}
	return all
}

// Difference compares a file with what is in force and with what is published, and refuses what cannot be written. It changes nothing, and
// locks no user's table. Its error has everything that is wrong with the file and with the database, for all policies.
func (a *Applier) Difference(ctx context.Context, file *policyfile.File) (Changes, error) {
	changes, mistakes, err := a.Preview(ctx, file)
	if err != nil {
		return nil, err
	}
	if len(mistakes) > 0 {
		return nil, nothingApplied(mistakes)
	}
	if changes, err = a.leavers(ctx, changes); err != nil {
		return nil, err
	}
	if changes, err = a.unneededIndexes(ctx, changes); err != nil {
		return nil, err
	}
	if a.Draft != nil {
		defer a.Draft.Together()()
	}
	counting := a.far("counting")
	for i := range changes {
		counting(i+1, len(changes))
		mistakes = append(mistakes, a.count(ctx, &changes[i])...)
	}
	if len(mistakes) > 0 {
		return nil, nothingApplied(mistakes)
	}
	return changes, nil
}

// Preview says how a file differs from what is in force, and everything that keeps it from being applied, policy by policy in the order of
// the file. `lapse plan -f` and `lapse apply` both call it. Without a connection it works over Draft, in a database that need not be
// installed: then it does not know which login will apply, and does not check that login's rights. It returns the changes of the policies
// that could be read; one whose Resolved is set can be surveyed, refused or not.
func (a *Applier) Preview(ctx context.Context, file *policyfile.File) (changes Changes, mistakes yamldoc.Errors, err error) {
	look := func(db replication.Querier, differences []change.Change, err error) error {
		if err != nil && !errors.As(err, &mistakes) {
			return err
		}
		changes = make(Changes, len(differences))
		for i, d := range differences {
			changes[i].Change = d
		}
		found, err := a.check(ctx, db, changes)
		mistakes = append(mistakes, found...).Sorted(file.Names)
		return err
	}
	if a.Conn == nil {
		err = change.DraftDifference(ctx, a.Draft, file, Fit, a.far("comparing"), func(tx pgx.Tx, differences []change.Change, wrong error) error { return look(tx, differences, wrong) })
	} else {
		differences, wrong := change.Difference(ctx, a.Conn, file, a.Prune, Fit, a.far("comparing"))
		err = look(a.Conn, differences, wrong)
	}
	if err != nil && len(mistakes) > 0 {
		err = errors.Join(mistakes, err)
	}
	return changes, mistakes, err
}

// check looks for what keeps changes from being written, in addition to what change.Difference has found.
func (a *Applier) check(ctx context.Context, db replication.Querier, changes Changes) (mistakes yamldoc.Errors, err error) {
	members, err := replication.Members(ctx, db)
	if err != nil {
		return nil, err
	}
	updates := changes.updated()
	checks := make([]checked, len(changes))
	for i := range changes {
		c := &changes[i]
		var refused yamldoc.Errors
		if a.Arm {
			if err := c.Arm(); errors.As(err, &refused) {
				mistakes = append(mistakes, refused...)
				continue
			}
			c.sayUnarmed()
		}
		if c.Resolved == nil {
			continue
		}
		checks[i].Change = c
	}
	if err := a.checkPublished(ctx, db, members, updates, checks); err != nil {
		return nil, err
	}
	if err := a.checkDeleters(ctx, checks); err != nil {
		return nil, err
	}
	for i := range checks {
		if c := &checks[i]; c.Change != nil {
			if c.index, err = a.checkIndex(ctx, c.Change); err != nil {
				return nil, err
			}
		}
	}
	if err := a.tryDeleters(ctx, checks); err != nil {
		return nil, err
	}
	for _, c := range checks {
		if c.Change == nil {
			continue
		}
		mistakes = append(mistakes, c.refused(slices.Concat(c.published, c.deleter, c.index))...)
		if c.Resolved != nil {
			for _, step := range c.Resolved.Build {
				c.Build = append(c.Build, step.SQL)
			}
		}
	}
	return mistakes, nil
}

// far reports the progress of a step.
func (a *Applier) far(step string) change.Far {
	return func(nth, of int) {
		if a.Far != nil {
			a.Far(step, nth, of)
		}
	}
}

// checked is the result of checking a change.
type checked struct {
	*Change                   // nil: not checked
	published, deleter, index []error
	tries                     bool // try the deleter's rights
}

// sayUnarmed warns that --arm leaves a policy unarmed because its file does not ask for it.
func (c *Change) sayUnarmed() {
	if c.ToState != schemas.Observing || c.Kind == change.Missing {
		return
	}
	what := "it observes"
	if c.Kind == change.New {
		what = "it is new, and observes"
	}
	c.Warnings = append(c.Warnings, fmt.Sprintf("%s: --arm arms what its file lets delete. Look at `lapse plan %s`, then write state: armed in the file, or say yes with `lapse policy arm %[2]s`", what, c.Policy))
}

// nothingApplied says what happened to a file's other policies when one was refused.
func nothingApplied(mistakes yamldoc.Errors) error {
	return fmt.Errorf("%w\nnothing of the file was applied: fix this, or remove the policy from the file, and apply it again", mistakes)
}
