package main

import (
	"context"
	"time"
)

// way is one way to delete what is due.
type way struct {
	name       string
	processes  int // of lapse; 0: a statement of the server's
	workers    int
	statements []string
}

const giant = "giant"

// due is the condition of all ways but Lapse's, whose policy says the same.
const due = `at <= now() - interval '30 days'`

// loop is what the document of pg_ttl_index says that its worker does: 10,000 rows by their addresses, a pause of 10 ms,
// until a batch is not full, all in the one transaction of its function.
const loop = `do $$
declare
  gone bigint;
begin
  loop
    delete from shop.sessions where ctid = any (array(select ctid from shop.sessions where ` + due + ` limit 10000));
    get diagnostics gone = row_count;
    exit when gone < 10000;
    perform pg_sleep(0.01);
  end loop;
end $$`

func ways() []way {
	return []way{
		{name: giant, statements: []string{"delete from shop.sessions where " + due}},
		{name: "loop", statements: []string{loop}},
		{name: "loop, index", statements: []string{"set enable_seqscan = off", loop}},
		{name: "lapse", processes: 1, workers: 1},
		{name: "lapse 2 workers", processes: 1, workers: 2},
		{name: "lapse 4 executors", processes: 4, workers: 1},
	}
}

func names(all []way) (names []string) {
	for i := range all {
		names = append(names, all[i].name)
	}
	return names
}

// database is what a way's copies are made of.
func (w *way) database() string {
	if w.processes == 0 {
		return filled
	}
	return installed
}

// run deletes, and returns how long that took: of Lapse, from its first batch to its last, and to the end of the command.
func (w *way) run(ctx context.Context, p *plan, s *server) (float64, error) {
	if w.processes > 0 {
		return p.lapseRuns(ctx, s, w)
	}
	begun := time.Now()
	err := s.Execute(ctx, measured, w.statements...)
	return time.Since(begun).Seconds(), err
}
