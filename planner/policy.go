package planner

import (
	"lapse/schemas"
)

// PolicyFile is a policy file as it was written. Nothing in it has been compared with a database yet.
type PolicyFile struct {
	Name     string // as errors name it
	Policies []Policy
}

// Policy is one entry of the policy file. Texts that only PostgreSQL can read (durations, table names) are kept as they
// were written; Resolve reads them.
type Policy struct {
	Name     PolicyName
	Table    string
	Expire   Expire
	Every    string // a duration; "" when Daily is set
	Daily    *Daily
	Batch    int           // the largest batch
	State    schemas.State // "" where the file says nothing: a policy that is in force keeps its state, another begins observing
	Owner    string
	Basis    string
	Latitude string // a duration, or ""

	places places
}

// Expire says when a row is due: Column + After <= the cutoff.
type Expire struct {
	Column string
	After  string // a duration
	Zone   string // for columns without one; "" is UTC
}

// DefaultBatch is the largest batch of a policy that names none, and MaxBatch the largest that may be named.
const (
	DefaultBatch = 5000
	MaxBatch     = 50000
)

// DefaultEvery is how often a policy runs that does not say when.
const DefaultEvery = "1 hour"

// Place is where something stands in a policy file.
type Place struct{ Line, Column int }
