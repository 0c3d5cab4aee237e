// Command life measures what Lapse takes from a server that it shares with an application all day:
//
//	go build -o bin/lapse ./cmd/lapse
//	go run ./bench/life -lapse bin/lapse -pg 17 -time 10m
//
// The application inserts rows that fall due within a minute, updates a row by its key and reads two, at a fixed rate on many tables. It runs
// alone first, then beside `lapse serve`, which deletes by a policy for each table every minute, and audits into a folder. One table more has a
// backlog that gentle pace works on all the time. Autovacuum is on, with the server's own settings.
//
// What is printed is what pg_stat_statements says of both, the server's CPU time and log of both phases, and how large Lapse's own tables became,
// for each batch in the ledger; and what that makes in a day of this life.
//
//	main.go     what is measured, in which order
//	life.go     the server, its tables and the application
//	report.go   the table
package main
