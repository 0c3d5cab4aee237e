// Package child runs servers as children that cannot outlive this process: what pgserver and kafkaserver have in common.
//
// It promises:
//
//   - a child gets its death signal when this process ends, however it ends: return, panic, test timeout, kill -9. Linux
//     sends that signal when the *thread* that started the child ends, so each child has a goroutine locked to its thread
//     for as long as the child lives;
//   - a temporary folder that an ended process left behind is removed by the next one that makes a folder;
//   - a server that refuses root runs as an unprivileged account, and can still read its binaries below a private home.
//
// It refuses to know anything of PostgreSQL or Kafka. Linux only.
package child
