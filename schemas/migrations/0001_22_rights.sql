-- PostgreSQL lets every role call a new function. Who may call these is in schemas/rights.go and schemas/function.go.

revoke all on all functions in schema lapse from public;
