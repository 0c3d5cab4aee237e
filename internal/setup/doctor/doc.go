// Package doctor says what is wrong with a database and how to fix it: one list of checks (doctor.go), what they all know
// (examination.go), and a file for each theme (server.go, activity.go, installation.go, privileges.go, tables.go, policies.go). It changes
// nothing and reads no table of a user's. A check more is a function, and a line in the list.
package doctor
