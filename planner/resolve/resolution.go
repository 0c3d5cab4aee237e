package resolve

import (
	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/index"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/planner/schedule"
)

// Resolved is a policy of the file that was compared with the database: everything that it names exists and is fit.
type Resolved struct {
	Policy     policyfile.Policy
	Definition functions.Definition // ID and Version are zero until Write
	Schedule   schedule.Schedule
	TableOID   uint32
	TableOwner string              // the role's name; its oid is the Definition's
	Leaves     []database.Relation // the table itself, or its partitions that hold rows, ascending by oid
	Cascades   []database.Relation // where foreign keys delete too, as the write-ahead log names it, ascending by oid
	Published  []database.Relation // what must be in a publication: the table, then the roots of what cascades reach, by name
	Index      string              // the index that serves, "" if not every leaf has one
	Build      []index.Step        // how apply first makes it, if the policy says index: create
	Warnings   []string
	Around     *index.Around // what a survey need not read again; nil where it reads more than this found

	Spec record.Spec
}

// Version is the version that Write writes.
func (r *Resolved) Version() *record.Version {
	return &record.Version{Table: r.TableOID, Definition: r.Definition, Spec: r.Spec}
}

// resolution collects what is wrong with one policy.
type resolution struct {
	tx pgx.Tx
	p  *policyfile.Policy
	r  *Resolved

	entry      *Entry // nil: not read
	fit        Fit
	quiet      Quiet
	referredTo bool // foreign keys may refer to the table
	problems   policyfile.Problems
	warnings   []string
	trusted    []record.TrustedCode
}

func (s *resolution) complain(key, problem string) {
	if problem != "" {
		s.problems = append(s.problems, policyfile.Problem{Key: key, Text: problem})
	}
}
