package executor

import (
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/hold"
	"lapse/schemas"
)

// ddlRace is what a transaction of the owner's does while a batch waits for it: first makes the batch wait. Held is what belongs to session 7.
type ddlRace struct {
	tables []string
	hold   hold.Request
	first  string
	then   string
	held   string // SQL: how many held rows there are
	left   string // the sessions that are due and left after the next run
	stops  bool   // the next run says what to do
}

// below are notes of sessions, and marks that do not refer to anything.
var below = []string{
	"create table notes (id bigint primary key, s bigint references sessions on delete cascade)", "create index on notes (s)", "insert into notes select id, id from sessions",
	"create table marks (id bigint primary key, n bigint, word text)", "create index on marks (n)", "insert into marks select id, id, case id when 7 then 'x' else 'y' end from sessions",
}

const due10 = "1 2 3 4 5 6 7 8 9 10"

var ddlRaces = map[string]ddlRace{
	"columns change places": {
		tables: []string{"alter table sessions add e text default 'e'", "update sessions set note = 'x' where id = 7"},
		hold:   byWhere("public.sessions", "note is not distinct from 'x'"), first: "lock table sessions in access exclusive mode",
		then: "alter table sessions rename note to q; alter table sessions rename e to note; alter table sessions rename q to e",
		held: "select count(*) from sessions where e = 'x'", left: due10, stops: true,
	},
	"a child's columns change places": {
		tables: append(below, "alter table marks add e text default 'e', add foreign key (n) references sessions on delete cascade"),
		hold:   byWhere("public.marks", "word = 'x'"), first: "lock table sessions in access exclusive mode",
		then: "alter table marks rename word to q; alter table marks rename e to word; alter table marks rename q to e",
		held: "select count(*) from marks where e = 'x'", left: due10, stops: true,
	},
	"a foreign key is added below a child": {
		tables: below, hold: byWhere("public.marks", "word = 'x'"), first: "update sessions set note = 'u' where id = 5",
		then: "alter table marks add foreign key (n) references notes on delete cascade",
		held: "select count(*) from marks where word = 'x'", left: due10, stops: true,
	},
	"a second foreign key is added below a child": {
		tables: append(below, "alter table marks add o bigint references notes on delete cascade"), hold: byWhere("public.marks", "word = 'x'"), first: "lock table sessions in share mode",
		then: "alter table marks add foreign key (n) references notes on delete cascade",
		held: "select count(*) from marks where word = 'x'", left: "7",
	},
	"a foreign key that cascades takes another's place": {
		tables: append(below, "alter table marks add constraint k foreign key (n) references notes on delete no action deferrable initially deferred"),
		hold:   byWhere("public.marks", "word = 'x'"), first: "update sessions set note = 'u' where id = 5",
		then: "alter table marks drop constraint k, add constraint k foreign key (n) references notes on delete cascade",
		held: "select count(*) from marks where word = 'x'", left: due10, stops: true,
	},
	"a held table is attached below a child": {
		tables: append(below, "create table parts (id bigint, n bigint references notes on delete cascade, word text) partition by list (word)", "create index on parts (n)"),
		hold:   byWhere("public.marks", "word = 'x'"), first: "update sessions set note = 'u' where id = 5",
		then: "alter table parts attach partition marks default", held: "select count(*) from marks where word = 'x'", left: due10, stops: true,
	},
	"it becomes a partition of a held table": {
		tables: []string{"create table p (id bigint, at timestamptz, note text) partition by list (note)"},
		hold:   byWhere("public.p", "id = 7"), first: "lock table sessions in share mode",
		then: "alter table p attach partition sessions default",
		held: "select count(*) from sessions where id = 7", left: "7",
	},
	"a child with on delete set null gets a cascade": {
		tables: []string{"create table marks (id bigint primary key, n bigint, word text, constraint k foreign key (n) references sessions on delete set null)", "create index on marks (n)", "insert into marks select id, id, 'y' from sessions"},
		hold:   byWhere("public.marks", "word = 'x'"), first: "lock table sessions in access exclusive mode",
		then: "alter table marks drop constraint k, add constraint k foreign key (n) references sessions on delete cascade; update marks set word = 'x' where id = 7",
		held: "select count(*) from marks where word = 'x'", left: due10, stops: true,
	},
	"a row comes to refer by set null to one that is going": {
		tables: []string{"create table marks (id bigint primary key, n bigint references sessions on delete set null)", "create index on marks (n)", "insert into marks select id, case when id <> 7 then id end from sessions"},
		hold:   hold.Request{Table: "public.marks", Columns: []string{"n"}, Keys: [][]string{{"7"}}}, first: "update sessions set note = 'u' where id = 5; update marks set n = 7 where id = 7",
		then: "select 1", held: "select count(*) from marks where n = 7", left: "7",
	},
}

// What the owner does to tables while a batch waits is seen before anything goes that nobody asked about.
func TestABatchHeedsAHoldThroughDDLThatItWaitedFor(t *testing.T) {
	t.Parallel()
	for what, c := range ddlRaces {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) { c.run(t, db) })
		})
	}
}

func (c *ddlRace) run(t *testing.T, db *pgtest.DB) {
	sessions(t, db, 10, 5)
	owned(t, db, "update sessions set note = ''")
	owned(t, db, c.tables...)
	arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
	placeHold(t, holdSession(t, db), c.hold)
	w := open(t, db, "p")
	w.a.Limits.Lock = 250 * time.Millisecond
	app := db.Connect(t)
	if _, err := app.Exec(t.Context(), "begin; set local role "+appRole+"; "+c.first); err != nil {
		t.Fatal(err)
	}
	batch := make(chan error, 1)
	go func() {
		_, err := w.batch(t, 10)
		batch <- err
	}()
	eventually(t, "the batch waits, or is over", func() bool {
		return len(batch) > 0 || one[bool](t, db, "select exists (select from pg_stat_activity where application_name like 'lapse: p %' and wait_event_type = 'Lock')")
	})
	if _, err := app.Exec(t.Context(), c.then+"; commit"); err != nil {
		t.Fatal(err)
	}
	t.Logf("the batch ends with %v", <-batch)
	db.Exec(t, expireLeases)
	_, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"p"})
	if (err != nil) != c.stops {
		t.Errorf("the next run: %v", err)
	}
	if got := one[int](t, db, c.held); got != 1 {
		t.Errorf("%d held rows are left, want 1", got)
	}
	if got := ids(t, db, "sessions where id <= 10"); got != c.left {
		t.Errorf("of the due rows %s are left, want %s", got, c.left)
	}
}
