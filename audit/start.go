package audit

import (
	"context"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/audit/rows"
	"lapse/schemas"
)

// writeStart writes the beginning of a log, as far as it is missing, and the markers of this start, and waits until they are acknowledged.
// No event may be in a topic whose log has no beginning, and none above a gap or a fork before all partitions and the log have its marker.
//
//	crash before the origin is acknowledged    the log is empty and so is everything else: the next start begins it
//	crash before the route is acknowledged     the log ends with its origin: the next start writes the route
//	crash between two records of a marker      the next start plans the same one, and finds in each partition whether it is there
//	crash before the marker's record is        the same
//	acknowledged in the log
//
// The route that follows comes after the markers: see follow.
func (r *relay) writeStart(ctx context.Context, s *history.StartingPoint, c *Config) error {
	now := r.now().UTC().Truncate(time.Millisecond)
	if s.Begun == "" {
		r.enqueue(r.writer.Write(&evidence.OriginContent{
			Slot: r.route.Source.Slot, Consistent: r.reach.LSN, Keys: fingerprints(c.Keys), At: now,
			HashKey: r.route.HashKey, PublicKey: r.route.PublicKey, RowsKeys: r.route.RowsKeys,
		}, evidence.LogPosition{Reach: r.reach}, false))
	}
	// The route has the origin's position, even if a crash came between them and a marker has advanced the start: the next start plans that
	// marker again only if the log's end is still below it.
	switch s.Begun {
	case "":
		r.enqueue(r.writer.Write(&evidence.RouteContent{Route: r.route, At: now}, evidence.LogPosition{Reach: r.reach, Seq: 1}, false))
	case evidence.KindOrigin:
		r.enqueue(r.writer.Write(&evidence.RouteContent{Route: r.route, At: now}, evidence.LogPosition{Reach: s.Origin, Seq: 1}, false))
	}
	for i := range s.Markers {
		m := &s.Markers[i]
		reached := evidence.Reach{History: m.At.History, Timeline: m.At.Timeline, LSN: m.From.LSN}
		if m.Op == evidence.Gap {
			reached = m.To
		}
		if err := r.publishMarker(ctx, m); err != nil {
			return err
		}
		content := &evidence.MarkerContent{Marker: m, Ancestry: r.ancestry}
		r.enqueue(r.writer.Write(content, evidence.LogPosition{Reach: reached}, false))
	}
	if err := r.logAll(ctx); err != nil {
		return err
	}
	return r.follow(ctx, r.reach)
}

func fingerprints(keys []schemas.Key) (all []string) {
	for _, key := range keys {
		all = append(all, schemas.Fingerprint(key))
	}
	return all
}

// logAll waits until every queued record is in the log.
func (r *relay) logAll(ctx context.Context) error {
	for {
		if err := r.flush(); err != nil {
			return err
		}
		if r.queue.empty() {
			return nil
		}
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
}

// follow puts the next route into force, for transactions that commit at or above a position, if nothing of them is in the topics or the
// log. Otherwise the route in force finishes those first. The route's record comes after all records of what the former one routed, and
// nothing is routed by the new one before the log has the record.
//
//	crash before the record is acknowledged    it is in the log or not, and nothing was routed by it
//	crash after that                           the next start finds it in force
//
// If the key named log changes, the record is the last that the former key links and signs, and contains a note that both keys have signed.
func (r *relay) follow(ctx context.Context, from evidence.Reach) error {
	if r.next == nil || r.found.Touched(from) {
		return nil
	}
	former := r.route
	r.route, r.next = r.next, nil
	r.router = evidence.NewRouter(r.route, r.hashKey)
	r.rows = rows.NewCommitter(r.route, r.rowsKeys)
	r.writer.SetRoute(r.route, r.hashKey)
	at := evidence.LogPosition{Reach: r.last.Reach, Seq: r.last.Seq + 1}
	content := &evidence.RouteContent{Route: r.route, At: r.now().UTC().Truncate(time.Millisecond)}
	if t := r.checkpoints.tree; t != nil {
		rotation, err := t.Succeed()
		if err != nil {
			return err
		}
		content.Rotation = string(rotation)
	}
	r.enqueue(r.writer.Write(content, at, false))
	if err := r.logAll(ctx); err != nil {
		return err
	}
	r.log.Info("events have another route", "version", r.route.Version, "from", at.Reach.String(), "format", r.route.Format, "former_format", former.Format,
		"partitions", r.route.System.Partitions, "former_partitions", former.System.Partitions, "other_hash_key", r.route.HashKey != former.HashKey,
		"other_log_key", content.Rotation != "")
	return nil
}

// publishMarker hands a marker to every partition that does not have it.
func (r *relay) publishMarker(ctx context.Context, m *evidence.Marker) error {
	records := r.router.RouteMarker(m)
	for i := range records {
		rec := &records[i]
		tails := r.tails[rec.Topic]
		if m.At.Compare(tails[rec.Partition]) <= 0 {
			r.metrics.deduplicated.Inc()
			continue
		}
		mark, err := r.append(ctx, rec)
		if err != nil {
			return err
		}
		tails[rec.Partition], r.lastEvent, r.events = m.At, mark, evidence.ReachOf(m.At)
	}
	if m.Op == evidence.Gap {
		r.metrics.gaps.Inc()
	}
	r.log.Warn("the order of events is broken", "by", m.Op.String(), "reason", string(m.Reason), "from", m.From.String(), "to", m.To.String())
	return nil
}
