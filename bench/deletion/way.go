package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"lapse/planner/policyfile"
)

// way is one way to delete what is due.
type way struct {
	name    string
	workers int // of lapse; 0: a statement of the server's
	sql     func(of *table) string
}

const (
	giant      = "giant"
	floorBatch = policyfile.DefaultUnlimitedBatch // rows
)

func ways() []way {
	return []way{
		{name: giant, sql: func(of *table) string { return "delete from shop.sessions where " + of.due }},
		{name: "loop", sql: func(of *table) string { return loop(of.due, "perform pg_sleep(0.01)") }},
		{name: "no pause", sql: func(of *table) string { return loop(of.due, "null") }},
		{name: "floor", sql: floor},
		{name: "lapse 1", workers: 1},
		{name: "lapse 2", workers: 2},
	}
}

// loop is the one that everybody writes. A ctid names a row of one partition, so each partition has its own.
func loop(due, pause string) string {
	return fmt.Sprintf(`do $do$
declare
  leaf regclass;
  gone bigint;
begin
  for leaf in select 'shop.sessions'::regclass where not exists (select from pg_inherits where inhparent = 'shop.sessions'::regclass)
    union all select inhrelid::regclass from pg_inherits where inhparent = 'shop.sessions'::regclass loop
    loop
      execute format('delete from %%1$s where ctid = any (array(select ctid from %%1$s where %%2$s limit 10000))', leaf, $due$%s$due$);
      get diagnostics gone = row_count;
      commit;
      exit when gone = 0;
      %s;
    end loop;
  end loop;
end $do$`, due, pause)
}

// floor is the cheapest loop that keeps what Lapse promises of a batch: a row of a ledger is committed with it; its rows are a range of the
// index, which no later batch reads; its one DELETE has the whole condition; and a second pass finds what came below meanwhile. It checks
// nothing, and rows of one value go together, however many they are.
func floor(of *table) string {
	source, dated := "%s", of.due
	if _, inner, there := strings.Cut(of.due, "from shop.expiry where "); there {
		source, dated = "shop.expiry", strings.TrimSuffix(inner, ")")
	}
	return fmt.Sprintf(`do $do$
declare
  leaf regclass;
  past timestamptz;
  edge timestamptz;
begin
  set enable_seqscan = off;
  create table shop.ledger (leaf regclass, past timestamptz, upto timestamptz, at timestamptz default clock_timestamp());
  for leaf in select 'shop.sessions'::regclass where not exists (select from pg_inherits where inhparent = 'shop.sessions'::regclass)
    union all select inhrelid::regclass from pg_inherits where inhparent = 'shop.sessions'::regclass loop
    for pass in 1..2 loop
      past := '-infinity';
      while past < 'infinity' loop
        execute format($q$select at from %s where at > $1 and %s order by at offset %d limit 1$q$, leaf) into edge using past;
        edge := coalesce(edge, 'infinity');
        insert into shop.ledger values (leaf, past, edge);
        execute format($q$delete from only %%s where %s$q$, leaf) using past, edge;
        commit;
        past := edge;
      end loop;
    end loop;
  end loop;
end $do$`, source, dated, floorBatch-1, strings.Replace(of.due, dated, "at > $1 and at <= $2 and "+dated, 1))
}

func names(all []way) (names []string) {
	for i := range all {
		names = append(names, all[i].name)
	}
	return names
}

// database is what a way's copies are made of.
func (w *way) database() string {
	if w.workers == 0 {
		return filled
	}
	return installed
}

// run deletes, and returns how long the whole command took.
func (w *way) run(ctx context.Context, p *plan, s *server, of *table) (seconds float64, cpu time.Duration, err error) {
	if w.workers > 0 {
		spent, err := p.lapse().Run(ctx, s.settings(measured, w.workers), "run", "--now", "bench", "--json")
		return spent.Seconds, spent.CPU, err
	}
	begun := time.Now()
	err = s.Execute(ctx, measured, w.sql(of))
	return time.Since(begun).Seconds(), 0, err
}
