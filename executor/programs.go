package executor

import (
	"sync"

	"lapse/executor/batch"
	"lapse/planner/record"
)

// programs are the functions that the transactions of a policy version run. They depend only on the version, and are built once, on first
// use. Safe for concurrent use.
type programs struct {
	batches, drops, looks func() (*batch.Program, error)
	// outdated returns an error if another version of lapse wrote the version's functions: none of them may run then.
	outdated func() error
}

func newPrograms(p *record.InForce, c *batch.Catalog) programs {
	own := *p // a copy, so that the whole list is not kept alive
	return programs{
		batches: sync.OnceValues(func() (*batch.Program, error) { return batch.FunctionsToDelete(&own, c) }),
		drops: sync.OnceValues(func() (*batch.Program, error) {
			return batch.FunctionsToDrop(&own, c)
		}),
		looks:    sync.OnceValues(func() (*batch.Program, error) { return batch.FunctionsToFind(&own, c) }),
		outdated: sync.OnceValue(own.Outdated),
	}
}
