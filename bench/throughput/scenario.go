package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// scenario is a database of some shape.
type scenario struct {
	name      string // as -scenarios has it
	title     string
	workloads []workload
	where     where
	// setup makes shop.sessions and what is around it, as the superuser. Each text is a transaction.
	setup []string
	// due is a function from a number of rows to the statement that makes as many due.
	due func(rows int) string
	// database holds settings of the database.
	database []string
	// limit is when a run is cut off: long enough for the slower side's first batches.
	limit time.Duration
}

// where says which servers a scenario runs on.
type where int

const (
	onFetched  where = iota // each of -pg
	onPackaged              // the distribution's own, which has JIT
	onNewest                // the newest of the fetched, with a Kafka: these measure the audit
)

// workload is what is to be deleted from it.
type workload struct {
	due   int // rows; 0: a look with nothing due
	batch int // the largest
	// singly has the audit's deletes be the application's, each in a transaction of its own. Otherwise it has a hundred in each of its
	// own, and a third of the rows is the policy's.
	singly bool
}

const (
	foreignKeys = 8000
	partitions  = 7000
)

func scenarios() []scenario {
	all := []workload{{due: 0, batch: 5000}, {due: 300, batch: 1}, {due: 500_000, batch: 5000}}
	return []scenario{
		{name: "plain", title: "plain table", setup: plain(), due: dueInOne, workloads: all, limit: 10 * time.Second},
		{
			name: "keys", title: fmt.Sprintf("%d foreign keys elsewhere", foreignKeys),
			setup: append(plain(), keysElsewhere(foreignKeys)...), due: dueInOne, workloads: all, limit: 5 * time.Second,
		},
		{
			name: "partitions", title: fmt.Sprintf("%d partitions", partitions),
			setup: partitioned(partitions), due: dueInFour, workloads: all, limit: 20 * time.Second,
		},
		{
			name: "jit-off", title: "packaged server, jit off", where: onPackaged,
			setup: plain(), due: dueInOne, workloads: all, limit: 10 * time.Second, database: []string{"jit = off"},
		},
		{
			name: "jit", title: "packaged server, jit on", where: onPackaged,
			setup: plain(), due: dueInOne, workloads: all, limit: 5 * time.Second, database: []string{"jit = on"},
		},
		{
			name: "audit", title: "audit, from the slot to Kafka", where: onNewest,
			setup: plain(), due: dueInOne, limit: 5 * time.Minute,
			workloads: []workload{{due: 300_000, batch: 5000}, {due: 300_000, batch: 5000, singly: true}},
		},
	}
}

func (w workload) title() string {
	if w.due == 0 {
		return "nothing due"
	}
	if w.singly {
		return fmt.Sprintf("%d deletes, each in a transaction of its own", w.due)
	}
	return fmt.Sprintf("%d due, batches of up to %d", w.due, w.batch)
}

// plain is a table with 100,000 rows that are not due.
func plain() []string {
	return []string{`
		create schema shop authorization app;
		set role app;
		create table shop.sessions (id bigint primary key, at timestamptz not null, note varchar(200));
		create index on shop.sessions (at, id);
		insert into shop.sessions
		select 10000000 + g, now() - interval '20 days', repeat('x', 100) from generate_series(1, 100000) g;
		reset role`}
}

func dueInOne(rows int) string {
	return fmt.Sprintf(`
		insert into shop.sessions
		select g, now() - interval '40 days' - (%d - g) * interval '1 second', repeat('x', 100)
		  from generate_series(1, %[1]d) g`, rows)
}

// keysElsewhere are that many foreign keys between other tables, a hundred to a table.
func keysElsewhere(keys int) []string {
	const each = 100
	var parents, columns strings.Builder
	for i := range each {
		fmt.Fprintf(&parents, "create table elsewhere.parent_%d (id int primary key);\n", i)
		fmt.Fprintf(&columns, ", c%d int references elsewhere.parent_%d", i, i)
	}
	statements := []string{"create schema elsewhere", parents.String()}
	for i := range keys / each {
		statements = append(statements, fmt.Sprintf("create table elsewhere.child_%d (id int primary key%s)", i, columns.String()))
	}
	return statements
}

// partitioned is a table with that many partitions, none of them by the column that the policy counts from, and one row
// that is not due in each.
func partitioned(leaves int) []string {
	statements := []string{`
		create schema shop authorization app;
		set role app;
		create table shop.sessions (tenant int not null, id bigint not null, at timestamptz not null, note varchar(200),
			primary key (tenant, id)) partition by list (tenant);
		create index on shop.sessions (at, tenant, id);
		reset role`}
	const each = 500
	for first := 1; first <= leaves; first += each {
		statements = append(statements, fmt.Sprintf(`
			set role app;
			do $$ begin
				for tenant in %d..%d loop
					execute format('create table shop.sessions_%%s partition of shop.sessions for values in (%%s)', tenant, tenant);
				end loop;
			end $$;
			reset role`, first, min(first+each-1, leaves)))
	}
	return append(statements, fmt.Sprintf(`
		insert into shop.sessions
		select g, 10000000 + g, now() - interval '20 days', repeat('x', 100) from generate_series(1, %d) g`, leaves))
}

// dueInFour puts the rows into the first four partitions.
func dueInFour(rows int) string {
	return fmt.Sprintf(`
		insert into shop.sessions
		select 1 + g %% 4, g, now() - interval '40 days' - (%d - g) * interval '1 second', repeat('x', 100)
		  from generate_series(1, %[1]d) g`, rows)
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// chosen returns a function that lists the scenarios named, or all, for one kind of server.
func chosen(only string) (func(on where) []scenario, error) {
	var names []string
	if only != "" {
		names = strings.Split(only, ",")
	}
	for _, name := range names {
		if !slices.Contains(scenarioNames(), name) {
			return nil, fmt.Errorf("-scenarios %s: there is no %q, there are %s", only, name, strings.Join(scenarioNames(), ", "))
		}
	}
	return func(on where) []scenario {
		return slices.DeleteFunc(scenarios(), func(s scenario) bool {
			return s.where != on || names != nil && !slices.Contains(names, s.name)
		})
	}, nil
}
