// Package doctor says what is wrong with a database and how to fix it: one list of checks (doctor.go), what they share (examination.go),
// and a file for each theme (server.go, activity.go, installation.go, privileges.go, tables.go, policies.go). It changes nothing and reads
// no user's table. To add a check, write a function and a line in the list.
package doctor
