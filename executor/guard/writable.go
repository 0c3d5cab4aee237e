package guard

// ReadOnly is the reason of writable.
const ReadOnly Reason = "read_only"

// writable refuses a primary whose sessions begin read only.
type writable struct{}

func (writable) Ask(q *Question) Answer {
	if !q.Facts.readOnly {
		return Answer{}
	}
	return refuse(ReadOnly, "default_transaction_read_only is on for this login, database or server",
		"find out who set it and why, then reset it: `lapse doctor` prints how")
}
