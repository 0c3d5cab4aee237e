package guard

// All returns the product's guards, in the order in which they are asked. awaits is auditor's; nil without an auditor in the process.
func All(l Limits, awaits func() string) []Guard {
	l = l.withDefaults()
	return []Guard{
		primary{},
		writable{},
		installed{},
		halted{},
		clock{},
		accepted{},
		slot{},
		auditor{awaits},
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
