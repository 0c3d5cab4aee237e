package guard

// All returns the product's guards, in the order in which they are asked.
func All(l Limits) []Guard {
	l = l.withDefaults()
	return []Guard{
		primary{},
		writable{},
		installed{},
		halted{},
		clock{},
		accepted{},
		slot{},
		auditor{},
		heartbeat{},
		publications{},
		confirmed{},
		headroom{},
		replicas{l},
		waiters{},
		connections{},
		snapshots{l},
		vacuum{},
		window{},
		breaker{},
	}
}
