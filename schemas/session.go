package schemas

import "strings"

// SessionSettings are the settings of every session of ours, as startup parameters: these override what the login and the database have
// set, and RESET ALL returns to them. PostgreSQL 14 to 18 accept each of them from any login.
//
// They are all the settings that could change what a statement of ours means or prints. Settings that only bound a session (timeouts,
// memory, default_transaction_read_only) stay the operator's, and so does synchronous_commit: but lapse.leave makes sure that a batch is on
// this server's disk before others see it.
func SessionSettings() map[string]string {
	return map[string]string{
		// Which function, operator, type or table a name means: never one of a schema that others may write to.
		"search_path": "pg_catalog, pg_temp",
		// A row security policy that would hide rows from us is an error, never a smaller result.
		"row_security": "off",
		// A batch must see what was committed while it waited for a lock.
		"default_transaction_isolation":  "read committed",
		"default_transaction_deferrable": "off",
		// The planner evaluates no CHECK constraint of a user, and does not compile queries because of an inflated cost estimate.
		"constraint_exclusion": "off",
		"jit":                  "off",
		// How values are read and written: the same row always gives the same bytes, and dates are in UTC.
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
		// What is an error, and whether it ends the session.
		"check_function_bodies": "on",
		"plpgsql.extra_errors":  "none",
		"exit_on_error":         "off",
		"client_min_messages":   "warning",
		// Sessions are idle between two checks. A forgotten transaction is bounded by each session's own settings.
		"idle_session_timeout": "0",
	}
}

// PinSession writes settings into the startup parameters of a connection, over those of its connection string. PostgreSQL accepts a name
// in any case and uses the last of two spellings, so all other spellings are removed.
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
