package planner

import (
	"context"
	"errors"
	"fmt"

	"lapse/schemas"
)

// comparison is a file beside what is in force.
type comparison struct {
	d       *document
	file    *PolicyFile
	prune   bool
	inForce map[PolicyName]*InForce
	order   []PolicyName              // of inForce
	onTable map[uint32]PolicyName     // whose table it is
	written map[PolicyName]storedName // all that ever were in force
	inFile  map[PolicyName]bool
	changes []Change // of the file's policies
}

// storedName is a policy name that is or was in force. A name keeps its id for ever, so that its history is one.
type storedName struct {
	Name    PolicyName
	ID      PolicyID
	Version PolicyVersion // the newest
}

// Difference compares the policies of a file with what is in force, and says what Write would do about each: first what
// is dropped, then the file's policies in its order, then what is in force without being in the file. It changes
// nothing. Its error is FileErrors with all that is wrong in all policies, or a failed query.
//
// The state after a change is the file's where the file names one. Where it names none, a policy that is in force keeps
// its state, but goes back to observing if more rows may fall due than before; and a policy that is not in force begins
// observing. Armed always goes by way of arming, which lapse.advance_arming ends.
func Difference(ctx context.Context, db DB, file *PolicyFile, prune bool) ([]Change, error) {
	c := &comparison{d: &document{file: file.Name}, file: file, prune: prune}
	if err := c.load(ctx, db); err != nil {
		return nil, err
	}
	for _, p := range file.Policies {
		resolved, err := Resolve(ctx, db, file.Name, p)
		var complaints FileErrors
		if errors.As(err, &complaints) {
			c.d.errors = append(c.d.errors, complaints...)
			continue
		}
		if err != nil {
			return nil, err
		}
		c.policy(resolved)
	}
	if err := c.d.err(); err != nil {
		return nil, err
	}
	return c.result(), nil
}

func (c *comparison) load(ctx context.Context, db DB) error {
	inForce, err := LoadInForce(ctx, db)
	if hasCode(err, "42P01", "3F000") {
		return fmt.Errorf("the catalog is not installed: run `lapse init`: %w", err)
	}
	if err != nil {
		return err
	}
	written, err := collect[storedName](ctx, db, `select p.name, p.id, max(p.version) from lapse.policy p group by p.name, p.id`)
	if err != nil {
		return fmt.Errorf("load the policies on record: %w", err)
	}
	c.inForce, c.onTable = map[PolicyName]*InForce{}, map[uint32]PolicyName{}
	c.written, c.inFile = map[PolicyName]storedName{}, map[PolicyName]bool{}
	for _, w := range written {
		c.written[w.Name] = w
	}
	for _, p := range c.file.Policies {
		c.inFile[p.Name] = true
	}
	for i := range inForce {
		p := &inForce[i]
		c.inForce[p.Name], c.order = p, append(c.order, p.Name)
		if c.inFile[p.Name] || !c.prune {
			c.onTable[p.TableOID] = p.Name
		}
	}
	return nil
}

func (c *comparison) policy(r *Resolved) {
	name := r.Policy.Name
	if other, taken := c.onTable[r.TableOID]; taken && other != name {
		hint := "in this file"
		if !c.inFile[other] {
			hint = "that is in force and not in this file: --prune drops it"
		}
		c.d.complain(r.Policy.place("table"), "policy %s: %s has policy %s already, %s", name, r.Definition.Table, other, hint)
		return
	}
	c.onTable[r.TableOID] = name
	change := Change{Policy: name, Table: r.Definition.Table, ID: c.written[name].ID, Warnings: r.Warnings, Resolved: r}
	if p := c.inForce[name]; p != nil {
		c.compare(&change, p)
	} else {
		change.Kind, change.FromVersion = New, c.written[name].Version
		change.ToVersion, change.ToState = change.FromVersion+1, schemas.Observing
		if wanted := wantedState(&r.Policy); wanted != "" {
			change.ToState = wanted
		}
		change.Fields = fieldChanges(nil, r.spec.lines(r.Definition.Table))
	}
	c.changes = append(c.changes, change)
}

// compare fills in the change of a policy that is in force.
func (c *comparison) compare(change *Change, p *InForce) {
	r := change.Resolved
	change.FromVersion, change.ToVersion = p.Version, p.Version
	change.FromState, change.ToState = p.State, p.State
	change.Fields = fieldChanges(p.spec.lines(p.TableName), r.spec.lines(r.Definition.Table))
	wanted := wantedState(&r.Policy)
	switch {
	case len(change.Fields) > 0 || p.TableOID != r.TableOID || !sameKey(p.spec.Key, r.spec.Key):
		change.Kind, change.ToVersion = Changed, c.written[p.Name].Version+1
		if p.TableOID != r.TableOID && p.TableName == r.Definition.Table {
			change.Fields = append(change.Fields, FieldChange{Field: "table", From: p.TableName, To: "another table of that name"})
		}
		change.MoreFallDue = moreFallDue(p, r)
		switch {
		case wanted != "":
			change.ToState = wanted
		case change.MoreFallDue:
			change.ToState = schemas.Observing
		case p.State == schemas.Armed:
			change.ToState = schemas.Arming
		}
	case wanted != "" && wanted != p.State && !(wanted == schemas.Arming && p.State == schemas.Armed):
		change.Kind, change.ToState = Restated, wanted
	default:
		change.Kind = Unchanged
	}
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
			FromState: p.State, ToState: p.State,
		}
		if c.prune {
			change.Kind, change.ToState = Removed, schemas.Dropped
			dropped = append(dropped, change)
			continue
		}
		missing = append(missing, change)
	}
	return append(append(dropped, c.changes...), missing...)
}
