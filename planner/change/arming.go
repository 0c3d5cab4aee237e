package change

import (
	"lapse/planner/record"
	"lapse/schemas"
)

// A version under which more may be due than was accepted (see accepted.go) is not armed by its file: it is held back until a person accepts
// it. Meanwhile the version in force continues if the other one would delete everything that it deletes; otherwise nothing is deleted. Other
// changes in the file, such as limits and schedule, take effect at once.

// says is the state that a file's entry asks for.
type says uint

const (
	saysNothing says = 1 << iota
	saysObserving
	saysPaused
	saysArmed
)

// standing is the present state of an entry's policy.
type standing uint

const (
	isAbsent  standing = 1 << iota // it is not in force
	isIdle                         // observing or paused
	isWaiting                      // the same, and its version in force is held back
	isHalted                       // paused, and its version in force is the last that was armed
	isLive                         // armed or arming
	anyhow    = isAbsent | isIdle | isWaiting | isHalted | isLive
)

// compared says how the entry's version compares with what was accepted.
type compared uint

const (
	isSame   compared = 1 << iota // it is the live version
	isNoMore                      // certainly no more rows are due
	isWider                       // more may be due, among them all that the version in force deletes
	isOther                       // more may be due, and perhaps not all that the version in force deletes
	isMore   = isWider | isOther
	every    = isSame | isNoMore | isMore
)

// outcome is what happens to the policy. The entry's version comes into force, unless goesOn.
type outcome struct {
	goesOn bool          // the version in force stays in force
	state  schemas.State // "": as it was
	held   bool          // the entry's version waits for a person
}

// rules decide what happens to a policy: the first rule that fits. A policy is armed by way of arming, which lapse.advance_arming ends.
var rules = []struct {
	says     says
	standing standing
	next     compared
	then     outcome
}{
	{saysObserving, anyhow, every, outcome{state: schemas.Observing}},
	{saysPaused, anyhow, every, outcome{state: schemas.Paused}},
	{saysNothing, isAbsent, every, outcome{state: schemas.Observing}},
	{saysNothing, isIdle, every, outcome{}},
	{saysNothing, isWaiting, isSame | isNoMore, outcome{}},
	{saysNothing, isWaiting, isMore, outcome{held: true}},
	{saysNothing, isHalted, isWider, outcome{goesOn: true, held: true}},
	{saysNothing, isHalted, every, outcome{}},
	// From here on the entry says armed, or says nothing about a live policy.
	{saysNothing | saysArmed, isLive, isSame, outcome{}},
	{saysNothing | saysArmed, anyhow, isSame | isNoMore, outcome{state: schemas.Arming}},
	{saysNothing | saysArmed, isLive, isWider, outcome{goesOn: true, held: true}},
	{saysNothing | saysArmed, isHalted, isWider, outcome{goesOn: true, held: true, state: schemas.Arming}},
	{saysNothing | saysArmed, anyhow, isMore, outcome{held: true, state: schemas.Observing}},
}

// becomes finds the outcome in rules.
func becomes(s says, p standing, next compared) outcome {
	for i := range rules {
		if r := &rules[i]; r.says&s != 0 && r.standing&p != 0 && r.next&next != 0 {
			return r.then
		}
	}
	panic("planner: no rule says what becomes of a policy") // a test tries all combinations
}

// saysOf converts a file's state.
func saysOf(wanted schemas.State) says {
	switch wanted {
	case schemas.Observing:
		return saysObserving
	case schemas.Paused:
		return saysPaused
	case schemas.Armed:
		return saysArmed
	}
	return saysNothing
}

// standing returns the present state of p; p may be nil.
func (f *formerVersions) standing(p *record.InForce) standing {
	switch {
	case p == nil:
		return isAbsent
	case record.Live(p.State):
		return isLive
	case p.HeldVersion == p.Version:
		return isWaiting
	}
	if last := f.armed[p.ID]; p.State == schemas.Paused && last != nil && last.Definition.Version == p.Version {
		return isHalted
	}
	return isIdle
}

// compare compares the change's version with what was accepted. beyond names the accepted version that it exceeds.
func (f *formerVersions) compare(c *Change) (is compared, beyond string) {
	p := c.before
	beyond = f.beyond(p, c.ID, c.Next)
	switch {
	case p != nil && c.isVersion == p.Version && record.Live(p.State):
		return isSame, ""
	case beyond == "":
		return isNoMore, ""
	case p != nil && c.Next.Covers(p.Current()):
		return isWider, beyond
	}
	return isOther, beyond
}

// decide decides what happens to the change's policy; wanted is the state that the file asks for, or "".
func (f *formerVersions) decide(c *Change, wanted schemas.State) {
	next, beyond := f.compare(c)
	then := becomes(saysOf(wanted), f.standing(c.before), next)
	c.follow(then)
	if p := c.before; p != nil && c.isVersion != p.Version {
		c.MoreFallDue = record.MoreFallDue(p.Current(), c.Next)
	}
	if then.held {
		c.HeldAgainst = beyond
	}
}

// follow carries out an outcome: it enters which versions are to be written, which is in force, and which is held back. If two versions are
// written, the one that is held back has the higher number.
func (c *Change) follow(o outcome) {
	p, newest, number := c.before, c.newest, c.isVersion
	c.writes, c.ToState, c.HeldVersion = nil, o.state, 0
	if o.state == "" {
		c.ToState = p.State
	}
	write := func(v *record.Version) schemas.PolicyVersion {
		newest++
		v.Definition.Version = newest
		c.writes = append(c.writes, v)
		return newest
	}
	if o.goesOn {
		c.ToVersion = p.Version
		if c.goesOn != nil {
			c.ToVersion, number = write(c.goesOn), 0
			if c.ToState == schemas.Armed {
				c.ToState = schemas.Arming
			}
		}
	}
	if number == 0 {
		number = write(c.Next)
	}
	if !o.goesOn {
		c.ToVersion = number
	}
	c.Next.Spec.HeldAgainst = 0
	if o.held {
		c.HeldVersion = number
		c.Next.Spec.HeldAgainst = c.heldAgainst(o)
	}
	switch {
	case p == nil:
		c.Kind = New
	case len(c.writes) > 0:
		c.Kind = Changed
	case c.ToVersion != p.Version || c.ToState != p.State || c.HeldVersion != p.HeldVersion:
		c.Kind = Restated
	default:
		c.Kind = Unchanged
	}
}

// heldAgainst is the accepted version that the change's version is held back against, 0 for none.
func (c *Change) heldAgainst(o outcome) schemas.PolicyVersion {
	switch p := c.before; {
	case p == nil:
		return 0
	case o.goesOn:
		return c.ToVersion
	case p.HeldVersion == p.Version:
		return p.Spec.HeldAgainst
	default:
		return p.Version
	}
}
