// Package pgserver runs a throw-away PostgreSQL server: for tests, for the demonstration, for benchmarks.
//
//	          Start                     Stop(Smart, Fast, Immediate)
//	(nothing) ─────▶ running ◀──────────────────────────────────▶ stopped ──▶ Close: gone
//	                    ▲        Start again: same files, same port    ▲
//	                    └──────────────── Kill: as kill -9 of all ─────┘
//
// It promises:
//
//   - the server is gone when this process is gone, however it ends: an immediate shutdown follows by itself;
//   - Kill leaves what a crash of every server process at one moment leaves: no process of the data directory lives on,
//     nothing more is written, and Start recovers from the write-ahead log;
//   - data, settings, port and log stay over Stop, Kill and Start. Close ends that: a folder that this package made goes
//     with the server, a folder named in Options stays;
//   - as root, the server runs as an unprivileged account, because PostgreSQL refuses root.
//
// A history can go every way that it does in production. Snapshot copies the files of a server: Restore puts them in their old place, Clone
// starts another server from them, Recovering makes either a recovery to a point in time. A Standby streams and is promoted.
// Freeze holds all processes for a while.
//
// It refuses to be safe: it trusts everybody on the loopback address, and does not wait for the disk (fsync=off), which
// survives kill -9 of the server but not a power cut. Never for data that anybody wants.
//
//	what fails                             what the caller sees
//	the binaries are not there             ErrNotInstalled, with the command that fetches them
//	the server ends while it starts        an error with the last lines of its log
//	the port is taken meanwhile            another port, if it was not chosen by the caller and this is the first start
//	a clean stop takes too long            the context's error; the server is still running
package pgserver
