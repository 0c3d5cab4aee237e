package evidence

// What tests of the package's outside need from its inside.
var (
	ParseClaim  = parseClaim
	ParseResult = parseResult
	AppendText  = appendText[string]
)
