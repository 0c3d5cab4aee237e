package audit

import (
	"context"
	"fmt"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// publishEvents hands the events that are complete to the sink.
func (r *relay) publishEvents(ctx context.Context) error {
	for e := r.assembler.Next(); e != nil; e = r.assembler.Next() {
		if err := r.publish(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// publish hands an event to the sink, unless its partition has it already.
func (r *relay) publish(ctx context.Context, e *evidence.Event) error {
	r.warnOfNoRow(e)
	routed := r.router.Route(e)
	if err := r.commitRow(ctx, e, routed); err != nil {
		return err
	}
	position := e.Tx.Position(e.Ordinal)
	tails := r.tails[routed.Topic]
	for _, partition := range routed.Partitions {
		if position.Compare(tails[partition]) <= 0 {
			r.metrics.deduplicated.Inc()
			continue
		}
		r.at(step{before: "event"})
		mark, err := r.append(ctx, &schemas.Record{
			Topic: routed.Topic, Partition: partition, Key: routed.Key, Value: routed.Value, Headers: routed.Headers,
			Time: e.Tx.CommitTime,
		})
		if err != nil {
			return err
		}
		tails[partition], r.lastEvent, r.events = position, mark, evidence.ReachOf(position)
		r.metrics.byCause[e.Cause][e.Op].Inc()
	}
	return nil
}

// warnOfNoRow logs once for each relation that its events do not identify rows.
func (r *relay) warnOfNoRow(e *evidence.Event) {
	if !e.Full && !e.Nameless || r.noRow[e.TableOID] {
		return
	}
	r.noRow[e.TableOID] = true
	why, fix := e.NamesNoRow()
	r.log.Warn("a table's events do not say which row was deleted", "table", e.Table, "reason", why, "fix", fix)
}

// append hands a record to the sink, and waits while the sink's buffer is full. The stream delivers nothing meanwhile, so that the server keeps what
// this process cannot. But it reads ahead, to answer the server, and the bytes of the change at hand are not valid any more.
func (r *relay) append(ctx context.Context, rec *schemas.Record) (uint64, error) {
	for {
		mark, ok := r.sink.Append(*rec)
		if ok {
			r.lastMark = mark
			return mark, nil
		}
		if err := r.sink.Err(); err != nil {
			return 0, fmt.Errorf("publish: %w", err)
		}
		if err := r.wait(ctx); err != nil {
			return 0, err
		}
	}
}
