package report

// What the tests hold against the schema.
var (
	Titles  = titles
	Reasons = reasons
)
