package audit_test

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// zombie freezes the auditor in the middle of a large transaction, within what else goes on, until the other has taken
// over, and lets it go on.
func (o *torture) zombie(within func(func())) {
	zombie := o.active()
	other := o.auditors[1-slices.Index(o.auditors, zombie)]
	before := other.log.count(streaming)
	within(func() {
		o.flood()
		o.pause(0, 60*time.Millisecond)
		zombie.freeze(o.t)
	})
	o.await("the other auditor takes over", func() bool { return other.ended() || other.log.count(streaming) > before })
	o.pause(0, 2*time.Second)
	zombie.thaw(o.t)
	o.zombies[resumed]++
	o.judge(zombie)
}

// What becomes of a zombie. The last two must not.
const (
	resumed    = "resumed"
	idle       = "had nothing to send"
	caught     = "caught sending into a fenced partition"
	fencedEnds = "fenced, ended"
	goesOn     = "fenced, did not end"
	fencedBack = "fenced, took the slot again"
)

// judge waits for what a resumed zombie does. One that had nothing to send waits for the slot again, as it should.
func (o *torture) judge(zombie *suspect) {
	if !within(8*time.Second, func() bool { return zombie.ended() || zombie.fenced() }) {
		o.zombies[idle]++
		return
	}
	o.zombies[caught]++
	if within(10*time.Second, zombie.ended) {
		return
	}
	if o.zombies[goesOn]++; o.zombies[goesOn] == 1 {
		o.t.Logf("auditor %d was fenced and goes on:\n%s", zombie.number, zombie.log.tail())
	}
	// Left alone with the slot, does it take it?
	other := o.auditors[1-slices.Index(o.auditors, zombie)]
	other.kill(o.t)
	if within(15*time.Second, func() bool { return zombie.log.after(fencedWords, streaming) }) {
		o.zombies[fencedBack]++
	}
	o.replace(zombie)
	o.replace(other)
}

// flood commits a large transaction, and returns when it is committed.
func (o *torture) flood() {
	ctx := o.t.Context()
	conn, err := pgx.Connect(ctx, o.rig.settings.URL)
	o.must(err)
	defer func() { _ = conn.Close(ctx) }()
	w := &writer{conn: conn, next: o.nextFlood}
	ids, err := w.rows(ctx, 4000)
	o.must(err)
	kind := user(ids)
	if o.random.IntN(2) == 0 {
		kind = batch(ids, nil)
	}
	o.must(w.commit(ctx, o.want, kind))
	o.nextFlood = w.next
	o.floods++
}
