// Command lapse is the one program of Lapse: it installs, applies policies, deletes what is due, audits and shows events.
//
// Only here are flags, the environment, signals, exit codes and the metrics registry. Each subcommand has a file.
//
//	main.go          the process: arguments, environment, signals, exit code
//	root.go          the commands and the flags they share; how a command gets its settings
//	exit.go          which error is which exit code, and how it is shown
//	database.go      how a command logs in and which role it plays
//	init.go, apply.go, policy.go, plan.go, run.go, audit.go, serve.go, events.go, version.go
//	                 the subcommands
//	slot.go          how the slot is made, and when it is not
//	publish.go       how tables join a publication, politely
//	kafka.go         how to reach the brokers
//	parts.go         what runs until stopped: the order of the end
//	web.go           /healthz, /readyz, /metrics
//	heartbeat.go     the auditor's sign of life, over a connection of its own
//
// Results go to stdout, everything else to stderr. Exit codes: 0 done; 1 failed; 2 wrong usage or invalid input; 3 done,
// and it found something that needs a person.
//
// The end of `lapse serve`, after SIGINT, SIGTERM or an error that only a person can settle:
//
//  1. the executor begins no new batch; the open one is committed or rolled back
//  2. the audit publishes what it has read and confirms what is acknowledged
//  3. the heartbeat and the HTTP server stop
//  4. the process ends, with 0 after a signal and with 1 after an error
//
// Each step has a bounded time of its own, and a second signal ends the process at once. Nothing is lost either way: what
// is not confirmed to the slot is read again by the next process.
package main
