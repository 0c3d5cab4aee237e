// Command lapse is the one program of Lapse: it installs, applies policies, deletes what is due, audits and shows events.
//
// Only here are flags, the environment, signals, exit codes and the metrics registry. Each subcommand has a file.
//
//	main.go                      the process: arguments, environment, signals, exit code
//	root.go                      the commands and the flags they share; how a command gets its settings
//	exit.go, ask.go              which error is which exit code, and how it is shown; how a person is asked
//	session.go, admit.go         how a command logs in and which role it plays; which logins and sessions are refused
//	keyring.go, logins.go        the keys and logins of the settings
//	init.go, initslot.go         install: the steps are in internal/setup
//	apply.go, applytext.go       apply a policy file: the steps are in internal/setup; indexing.go tells of indexes
//	policyfiles.go               which files are one policy file
//	doctor.go                    what is wrong with server, installation, roles and tables: the checks are in internal/setup
//	uninstall.go                 the way back, printed or run
//	policy.go, policystate.go    the policies in force; pausing, arming and resuming them; policy*.go shows them
//	status.go, statustext.go     the state of policies, deletion and audit; what is read and its words are in internal/status
//	pause.go                     every deletion paused
//	plan.go, plantext.go         what is due
//	progress.go                  how far a command is that takes long
//	hold*.go, quarantine.go      rows that are kept, and rows that could not be deleted
//	import.go                    policies of what deletes rows elsewhere: the systems are in internal/importer
//	scaffold.go, hide.go         a due time for a table without one; due rows hidden
//	clock.go                     whether the server's clock is believed
//	history*.go                  whether log and database are one history
//	run.go, audit.go, serve.go   the executor, the auditor, both
//	events*.go, marker.go        what is in the topics; export.go writes it into files
//	auditto.go                   events in a file, without Kafka
//	envelope.go, table.go        a result as JSON, and as a table
//	version.go                   version and formats
//	kafka.go                     how to reach the brokers
//	parts.go                     what runs until stopped: the order of the end
//	web.go                       /healthz, /readyz, /metrics
//	page.go                      the status page at /
//
// A further command has a file of its own, named as the command. What it does in a database is in internal/setup, planner or audit.
//
// Results go to stdout, everything else to stderr. Exit codes: 0 done; 1 failed; 2 wrong usage or invalid input; 3 done,
// and it found something that needs a person.
//
// The end of `lapse serve`, after SIGINT, SIGTERM or an error that only a person can resolve:
//
//  1. the executor begins no new batch; the open one is committed or rolled back
//  2. the audit publishes what it has read and confirms what is acknowledged
//  3. the heartbeat and the HTTP server stop
//  4. the process ends, with 0 after a signal and with 1 after an error
//
// Each step has a bounded time of its own, and a second signal ends the process at once. Nothing is lost either way: what
// is not confirmed to the slot is read again by the next process.
package main
