package planner

import "lapse/planner/policyfile"

// option is a value of a policy's key.
type option struct{ key, text string }

// unsupported are the values of a policy that this version reads and does not act on. Such a policy is refused: none runs
// with less than it asks for.
func unsupported(p *policyfile.Policy) []option {
	var all []option
	for _, o := range []struct {
		option
		asked bool
	}{
		{option{"moves", "moves: " + p.Moves}, p.Moves != ""},
	} {
		if o.asked {
			all = append(all, o.option)
		}
	}
	return all
}
