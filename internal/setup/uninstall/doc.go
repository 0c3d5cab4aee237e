// Package uninstall removes from a database what install and apply made (uninstall.go), or prints the statements that do it (sql.go). It
// refuses if a login may not do all of it (lacking.go), and if legal holds are in force (holds.go).
//
//	step          does                                    a crash after it leaves, and who repairs it
//	pause         turns the switch for all policies       an installation that deletes nothing; the next Uninstall goes on
//	indexes       drops those that Lapse made             as above; what stays in use is a warning
//	catalog       publications, schema and deleters, in   the slot, which the settings name; the next Uninstall drops it
//	              one transaction
//	slot          drops the slot                          nothing but roles, topics and keys
package uninstall
