// Package tables is what a person does at a table beside its policies: give its rows a time to go (scaffold.go), hide those that are due
// (hide.go), and have rows tried again that could not be deleted (quarantine.go).
package tables
