package main

import (
	"context"
	"fmt"
	"time"
)

// way is one way to delete what is due.
type way struct {
	name    string
	workers int // of lapse; 0: a statement of the server's
	sql     func(due string) string
}

const giant = "giant"

func ways() []way {
	return []way{
		{name: giant, sql: func(due string) string { return "delete from shop.sessions where " + due }},
		{name: "loop", sql: func(due string) string { return loop(due, "perform pg_sleep(0.01)") }},
		{name: "no pause", sql: func(due string) string { return loop(due, "null") }},
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
	err = s.Execute(ctx, measured, w.sql(of.due))
	return time.Since(begun).Seconds(), 0, err
}
