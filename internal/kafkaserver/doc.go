// Package kafkaserver runs a throw-away Apache Kafka broker: for tests, for the demonstration, for benchmarks.
//
//	          Start                     Stop (controlled shutdown)
//	(nothing) ─────▶ running ◀──────────────────────────────────▶ stopped ──▶ Close: gone
//	                    ▲        Start again: same files, same port    ▲
//	                    └──────────────── Kill: kill -9 ───────────────┘
//
// A Server is one node that is broker and controller (KRaft), without replication: what it acknowledges is on this machine
// alone, and in the page cache, which survives kill -9 of the broker but not a power cut. A Cluster is several that
// replicate to one another. Freeze and Thaw hold a broker for a while instead of ending it. A broker with Options.Login has
// a second port where clients must log in, as a user of AddUser.
//
// It promises:
//
//   - the broker is gone when this process is gone, however it ends;
//
//   - when Start returns, the broker answers metadata requests, and coordinates groups and transactions after a moment;
//
//   - topics, records, producer states, settings and ports stay over Stop, Kill and Start. Close ends that: a folder that
//     this package made goes with the broker, a folder named in Options stays;
//
//   - topics are made by CreateTopic and not by a client's mistake.
//
//     what fails                             what the caller sees
//     jars or java are not there             ErrNotInstalled, with the command that fetches them
//     the broker ends while it starts        an error with the last lines of its log
//     a port is taken meanwhile              another port, if it was not chosen by the caller and this is the first start
//     a controlled shutdown takes too long   the context's error; the broker is still running
package kafkaserver
