package functions

// The tests ask for the parts of a text.

// Restates is restates.
var Restates = restates

// Verb is what the batch's statement begins with.
func Verb(d *Definition) string { return d.verb() }

// DeletionFunctions are the texts of the deletion function and of the one that finds its rows.
func (d *Definition) DeletionFunctions() (remove, find string, err error) {
	return d.deletionFunctions()
}
