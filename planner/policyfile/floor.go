package policyfile

// Floor is an entry of lapse.yaml's "floors": no row of these tables may go sooner.
type Floor struct {
	Table  string // a pattern of schema.table, with * and ?
	Least  string // a duration
	Reason string
	// TrustColumn allows a column of such a table to say when a row is deleted, even sooner than Least.
	TrustColumn bool
}

// Under applies the floors of lapse.yaml to all policies of the file.
func (f *File) Under(floors []Floor) {
	for i := range f.Policies {
		f.Policies[i].Floors = floors
	}
}
