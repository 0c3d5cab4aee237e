package record

// OutdatedError says that another version of Lapse wrote a policy's functions. None of them is called, not even the look.
type OutdatedError struct{}

// Error says what to do, after the policy's name.
func (*OutdatedError) Error() string {
	return "its functions are those of another lapse, and are not run until you run `lapse apply` with its policy file, which writes them again"
}

// Outdated returns an *OutdatedError if this program would write other functions for the policy, as `lapse apply` of the same file does. It writes
// the text and compares it, unless Know was called.
func (p *InForce) Outdated() error {
	if p.outdated != nil {
		return p.outdated()
	}
	if p.Spec.Functions == p.Definition.Digest() {
		return nil
	}
	return &OutdatedError{}
}

// Know sets the answer of Outdated, which is the same as long as a version is in force.
func (p *InForce) Know(outdated func() error) { p.outdated = outdated }
