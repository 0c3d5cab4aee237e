// Command lapse-demo shows the whole of Lapse on a bare machine, in under a minute.
//
// It starts a throw-away PostgreSQL and, where Java is there, a Kafka; without it a folder keeps the topics. It fills tables, and then does what a
// user of Lapse would do, with the same commands: init, apply, plan, serve, events, verify. While rows are deleted it lets an application, a forger
// and a superuser delete beside it, kills `lapse serve` without warning, and lets a breaker trip. At the end it counts: every due row must be in
// the system topic once, every other deletion in the user topic once. It exits 1 if one is not.
//
// It is the only program that carries servers of its own.
package main
