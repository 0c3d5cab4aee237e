// Package doctor says what is wrong with a database and how to fix it (doctor.go): one list of checks, and a file for each theme (server.go,
// activity.go, installation.go, privileges.go, tables.go, policies.go). It changes nothing and reads no table of a
// user's. A check more is a function, and a line in the list.
package doctor
