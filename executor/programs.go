package executor

import (
	"sync"

	"lapse/planner"
	"lapse/planner/functions"
	"lapse/schemas"
)

// programs are what the transactions of a policy version run. They follow from the version, and are built once, when they are first
// asked for. Safe for concurrent use.
type programs struct {
	batches, drops, looks func() (*program, error)
	// outdated returns an error if another lapse wrote the version's functions: nothing of it may run then.
	outdated func() error
}

func newPrograms(p *planner.InForce, roles schemas.Roles) programs {
	own := *p // not the list that it is of
	return programs{
		batches: sync.OnceValues(func() (*program, error) { return programOf(&own, roles) }),
		drops: sync.OnceValues(func() (*program, error) {
			return programWith(&own, roles, functions.DropFunction(own.ID, own.Version))
		}),
		looks:    sync.OnceValues(func() (*program, error) { return looksOf(&own, roles) }),
		outdated: sync.OnceValue(own.Outdated),
	}
}
