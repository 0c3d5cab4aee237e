package guard

import "fmt"

// VacuumBehind is the reason of vacuum.
const VacuumBehind Reason = "vacuum_behind"

const (
	// deadFloor is how many dead rows are harmless in any table.
	deadFloor = 100_000
	// deadFactor is how many times the number of dead rows that starts autovacuum a table may have.
	deadFactor = 5
)

// vacuum slows down while the dead rows of the policy's table outrun autovacuum.
type vacuum struct{}

func (vacuum) Ask(q *Question) Answer {
	t := q.Table
	if t == nil || q.Policy == nil || q.unlimited() || t.Dead <= deadFloor || float64(t.Dead) <= deadFactor*t.Trigger {
		return Answer{}
	}
	return slow(3, VacuumBehind, fmt.Sprintf("%s has %d dead rows and %d live ones: autovacuum does not keep up", q.Policy.TableName, t.Dead, t.Live),
		"run VACUUM on it, and see why autovacuum is late: a long transaction, its cost limit, or it is off")
}
