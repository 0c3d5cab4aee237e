package executor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"lapse/planner/record"
	"lapse/schemas"
)

// ResistingError says that rows of a policy could not be deleted. All other due rows were.
type ResistingError struct {
	Policy    schemas.PolicyName
	Rows      int64      // in quarantine
	Obstacles []Obstacle // what blocks them: the most frequent first, mostObstacles at most
	Shards    int        // shards that were put aside
	RetryAt   time.Time  // when the first shard is tried again
	Cause     error      // why one of the shards was put aside
}

func (e *ResistingError) Error() string {
	var parts []string
	switch e.Shards {
	case 0:
	case 1:
		parts = append(parts, fmt.Sprintf("1 of its shards was put aside and is tried again after %s: %v", e.RetryAt.UTC().Format(time.RFC3339), e.Cause))
	default:
		parts = append(parts, fmt.Sprintf("%d of its shards were put aside and are tried again after %s: %v", e.Shards, e.RetryAt.UTC().Format(time.RFC3339), e.Cause))
	}
	if e.Rows > 0 {
		parts = append(parts, e.rows())
	}
	return fmt.Sprintf("policy %s: %s", e.Policy, strings.Join(parts, "; "))
}

// rows says what blocks the rows in quarantine, with the number of rows each obstacle blocks.
func (e *ResistingError) rows() string {
	q := record.Quarantine{Rows: e.Rows}
	var why []string
	rest := e.Rows
	for i := range e.Obstacles {
		o := &e.Obstacles[i]
		rest -= o.Rows
		text := o.err().Error()
		if len(e.Obstacles) > 1 {
			text = fmt.Sprintf("%d by %s", o.Rows, text)
		}
		why = append(why, text)
	}
	if rest > 0 {
		why = append(why, fmt.Sprintf("%d by something else", rest))
	}
	return fmt.Sprintf("%s, which could not be deleted: %s: see `lapse quarantine list %s`", &q, strings.Join(why, "; "), e.Policy)
}

// obstaclesOf returns the obstacles in the error of a run.
func obstaclesOf(resists error) []Obstacle {
	var e *ResistingError
	if errors.As(resists, &e) {
		return e.Obstacles
	}
	return nil
}

// Unwrap returns the errors that blocked rows.
func (e *ResistingError) Unwrap() []error {
	var all []error
	if e.Cause != nil {
		all = append(all, e.Cause)
	}
	for i := range e.Obstacles {
		all = append(all, e.Obstacles[i].err())
	}
	return all
}
