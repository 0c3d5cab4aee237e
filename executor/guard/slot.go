package guard

import "fmt"

// The reasons of slot.
const (
	NoSlot      Reason = "slot_missing"
	ForeignSlot Reason = "slot_of_another_database"
	LostSlot    Reason = "slot_lost"
)

// slot refuses if the slot that keeps the evidence is missing, belongs to another database, or loses its log.
type slot struct{}

func (slot) Ask(q *Question) Answer {
	f := q.Facts
	name := fmt.Sprintf("replication slot %q ", f.slot)
	switch {
	case !f.required:
		return Answer{}
	case !f.exists:
		return refuse(NoSlot, name+"does not exist", "run `lapse init --new-slot`; the evidence gets a gap for what was deleted meanwhile")
	case !f.local:
		return refuse(ForeignSlot, name+"belongs to another database", "give each database a slot of its own: slot: in lapse.yaml")
	case f.status == "lost" || f.status == "unreserved" || f.confirmed == 0:
		return refuse(LostSlot, name+"is losing or has lost its log (wal_status "+f.status+")",
			"see that `lapse audit` runs and raise max_slot_wal_keep_size; `lapse init --new-slot` replaces a lost slot, and the evidence gets a gap")
	}
	return Answer{}
}
