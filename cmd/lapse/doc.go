// Command lapse is the one program of Lapse: it installs, applies policies, deletes what is due, audits and shows events.
//
// Flags, the environment, signals, exit codes and the metrics registry are used only here. Each subcommand has a file.
//
//	main.go                      the process: arguments, environment, signals, exit code
//	root.go                      the commands and the flags they share; how a command gets its settings
//	exit.go, ask.go              which error gives which exit code, and how it is shown; questions to the user
//	session.go, admit.go         how a command logs in and which role it uses; which logins and sessions it refuses
//	keyring.go, logins.go        the keys and logins of the settings
//	init.go, initslot.go         install: the steps are in internal/setup
//	apply.go, applytext.go       apply a policy file: the steps are in internal/setup; indexing.go tells of indexes
//	policyfiles.go               which files are one policy file
//	doctor.go                    what is wrong with server, installation, roles and tables: the checks are in internal/setup
//	uninstall.go                 uninstalling, printed or executed
//	policy.go, policystate.go    the policies in force; pausing, arming and resuming them; policy*.go shows them
//	status.go, statustext.go     the state of policies, deletion and audit; internal/status reads and words it
//	pause.go                     pausing all deletion
//	plan.go, plantext.go         what is due
//	progress.go                  the progress of long commands
//	hold*.go, quarantine.go      rows that are kept, and rows that could not be deleted
//	import.go                    policies from other systems that delete rows: the systems are in internal/importer
//	scaffold.go, hide.go         a due time for a table without one; hiding due rows
//	clock.go                     whether the server's clock is accepted
//	history*.go                  whether log and database share one history
//	run.go, audit.go, serve.go   the executor, the auditor, both
//	events*.go, marker.go        what is in the topics; export.go writes it into files with package audit/export
//	auditto.go                   events in a file, without Kafka
//	envelope.go, table.go        a result as JSON, and as a table
//	verify*.go, prove*.go        an export, a log, a report or a receipt verified: audit/export, tree and verify compare, these files ask and print
//	report*.go                   a report: audit/report counts, audit/report/page writes
//	version.go                   version and formats
//	kafka.go                     how to reach the brokers
//	parts.go                     the parts that run until stopped, and the order in which they stop
//	web.go                       /healthz, /readyz, /metrics
//	page.go                      the status page at /
//
// A new command gets its own file, named after it. Its work in a database belongs in internal/setup, planner or audit.
//
// Results go to stdout, everything else to stderr. Exit codes: 0 success; 1 failure; 2 wrong usage or invalid input; 3 success, but it found
// something that needs a person.
//
// `lapse serve` stops after SIGINT, SIGTERM or an error that only a person can resolve:
//
//  1. the executor starts no new batch; it commits or rolls back the open one
//  2. the auditor publishes what it has read and confirms what is acknowledged
//  3. the heartbeat and the HTTP server stop
//  4. the process ends, with 0 after a signal and with 1 after an error
//
// Each step has a time limit, and a second signal ends the process at once. Nothing is lost either way: the next process reads again what
// was not confirmed to the slot.
package main
