package policyfile

// Floor is an entry of lapse.yaml's "floors": no row of these tables may go sooner.
type Floor struct {
	Table  string // a pattern of schema.table, with * and ?
	Least  string // a duration
	Reason string
	// TrustColumn says that a column of such a table may itself say when a row is deleted, sooner than Least too.
	TrustColumn bool
}

// Under puts all policies of the file under the floors of lapse.yaml.
func (f *File) Under(floors []Floor) {
	for i := range f.Policies {
		f.Policies[i].Floors = floors
	}
}
