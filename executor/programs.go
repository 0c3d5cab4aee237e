package executor

import (
	"sync"

	"lapse/executor/batch"
	"lapse/planner/record"
	"lapse/schemas"
)

// programs are what the transactions of a policy version run. They follow from the version, and are built once, when they are first
// asked for. Safe for concurrent use.
type programs struct {
	batches, drops, looks func() (*batch.Program, error)
	// outdated returns an error if another lapse wrote the version's functions: nothing of it may run then.
	outdated func() error
}

func newPrograms(p *record.InForce, roles schemas.Roles) programs {
	own := *p // not the list that it is of
	return programs{
		batches: sync.OnceValues(func() (*batch.Program, error) { return batch.FunctionsToDelete(&own, roles) }),
		drops: sync.OnceValues(func() (*batch.Program, error) {
			return batch.FunctionsToDrop(&own, roles)
		}),
		looks:    sync.OnceValues(func() (*batch.Program, error) { return batch.FunctionsToFind(&own, roles) }),
		outdated: sync.OnceValue(own.Outdated),
	}
}
