package schemas

import "strings"

// SessionSettings is what every session of ours starts with, as startup parameters: they override what the login and
// the database have set, and RESET ALL gives them back. Each is accepted from any login by PostgreSQL 14 to 18.
//
// Whatever could change what a statement of ours means or prints is here. What only bounds a session (timeouts, memory,
// default_transaction_read_only) is the operator's to set, and so is synchronous_commit: but a batch is on this server's disk
// before anybody sees it (lapse.leave).
func SessionSettings() map[string]string {
	return map[string]string{
		// Which function, operator, type or table a name means. A schema that others may write to never comes into it.
		"search_path": "pg_catalog, pg_temp",
		// A policy that would hide rows from us is an error, never a smaller result.
		"row_security": "off",
		// A batch must see what was committed while it waited for a lock.
		"default_transaction_isolation":  "read committed",
		"default_transaction_deferrable": "off",
		// The planner evaluates no CHECK of a user's, and compiles nothing for the sake of an inflated cost.
		"constraint_exclusion": "off",
		"jit":                  "off",
		// How values are read and written. The same row gives the same bytes, and dates mean UTC.
		"client_encoding":        "UTF8",
		"timezone":               "UTC",
		"timezone_abbreviations": "Default",
		"datestyle":              "ISO, YMD",
		"intervalstyle":          "postgres",
		"extra_float_digits":     "1",
		"bytea_output":           "hex",
		"lc_monetary":            "C",
		"quote_all_identifiers":  "off",
		// How a statement's text is read.
		"standard_conforming_strings": "on",
		"backslash_quote":             "safe_encoding",
		"transform_null_equals":       "off",
		"array_nulls":                 "on",
		"gin_fuzzy_search_limit":      "0",
		// What is an error, and what becomes of the session then.
		"check_function_bodies": "on",
		"plpgsql.extra_errors":  "none",
		"exit_on_error":         "off",
		"client_min_messages":   "warning",
		// We wait between two checks. What bounds a transaction that was forgotten is each session's own.
		"idle_session_timeout": "0",
	}
}

// PinSession writes settings into the startup parameters of a connection, over what its connection string says. PostgreSQL
// takes a name in any spelling, and of two spellings the one that comes last: none but ours stays.
func PinSession(parameters, settings map[string]string) {
	for name, value := range settings {
		for other := range parameters {
			if strings.EqualFold(other, name) {
				delete(parameters, other)
			}
		}
		parameters[name] = value
	}
}
