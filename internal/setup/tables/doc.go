// Package tables is what a person can do with a table apart from its policies: give its rows a due time (scaffold.go), hide due rows
// (hide.go), and retry rows that could not be deleted (quarantine.go).
package tables
