package guard

// Standby is the reason of primary.
const Standby Reason = "standby"

// primary refuses a standby, which cannot delete.
type primary struct{}

func (primary) Ask(q *Question) Answer {
	if !q.Facts.standby {
		return Answer{}
	}
	return refuse(Standby, "this server is a standby", "point database: in lapse.yaml at the primary")
}
