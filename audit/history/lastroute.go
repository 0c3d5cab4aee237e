package history

import (
	"context"
	"errors"
	"fmt"
	"io"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/schemas"
)

// A log has one route after the other. Records in the log are never routed again, so a start needs two routes: the one in force at the log's end, to
// finish what is half in the topics above it, and the one that the configuration asks for, which follows.

// Events returns the topics of events with the published partitions of the route in force, and of the one that follows it.
func (p *Topics) Events() []evidence.Topic {
	if p.Next != nil {
		return []evidence.Topic{p.Next.System, p.Next.User}
	}
	return []evidence.Topic{p.route.System, p.route.User}
}

// findRoutes finds the route in force at the log's end, and the one that follows it. configured is the configuration's.
func (p *Topics) findRoutes(ctx context.Context, client store.Client, configured *evidence.Route) error {
	p.route = configured
	end := p.LogEnd
	if end == nil || !isOfSource(end, &configured.Source) {
		return nil // the log is empty, or another database's, which is refused
	}
	// The database keeps the name that it has in the log, since its events have that name.
	configured.Source.Database = end.Database
	if evidence.TextFormOf(configured.Source.Encoding) == evidence.RawText {
		configured.Source.Database = string(evidence.DecodeText(end.Database))
	}
	configured.Version = end.RouteVersion
	switch {
	case end.Route == configured.Fingerprint():
		return nil
	case end.Kind == evidence.KindOrigin: // its route was never written, and nothing was routed by it
		configured.Version++
		return nil
	}
	former, err := p.findRoute(ctx, client, configured)
	if err != nil {
		return err
	}
	if former.System.Name != configured.System.Name || former.User.Name != configured.User.Name || former.Source != configured.Source {
		return Refuse(ErrRouteChanged, "%s has route %d with the topics %s and %s, slot %s and encoding %s",
			"put topics and slot back to what they were: format, topics.partitions and the key named hash may change while a log goes on",
			configured.Log.Name, former.Version, former.System.Name, former.User.Name, former.Source.Slot, former.Source.Encoding)
	}
	if epoch, other := configured.OtherRowsKey(former); other {
		return Refuse(ErrRowsKeyChanged, "%s has route %d with another key of %s",
			"give this machine the file of the key named rows that the other auditors have: each month has one key", configured.Log.Name, former.Version, epoch)
	}
	if configured.Follow(former) {
		p.route, p.Next = former, configured
	}
	return nil
}

// findRoute finds the record of the route in force at the log's end. Each record names its route's version, and versions only grow, so a
// binary search finds the first record of a version, which is the route's own. If somebody has copied old records to the end, it reads the
// log back instead.
func (p *Topics) findRoute(ctx context.Context, client store.Client, route *evidence.Route) (found *evidence.Route, err error) {
	low, high := p.logFirst, p.logEndOffset
	for low < high {
		middle := low + (high-low)/2
		record, at, err := p.recordFrom(ctx, client, route, middle)
		if err != nil {
			return nil, err
		}
		if record.RouteVersion >= p.LogEnd.RouteVersion {
			high = middle
		} else {
			low = at + 1
		}
	}
	first, at, err := p.recordFrom(ctx, client, route, low)
	if err != nil {
		return nil, err
	}
	if found, err = p.routeOf(first); err == nil {
		return found, nil
	}
	why := fmt.Errorf("the log has no record of route %d, which wrote its end; the one at offset %d, where it should be, is another: %w",
		p.LogEnd.RouteVersion, at, err)
	err = client.Backward(ctx, route.Log.Name, 0, p.logEndOffset+1, func(rec *schemas.Record, offset int64) (bool, error) {
		record, err := logRecordOf(rec, route)
		if err != nil || record == nil || record.Kind != evidence.KindRoute || record.RouteVersion != p.LogEnd.RouteVersion {
			return err == nil, err
		}
		if found, err = p.routeOf(record); err != nil {
			why = fmt.Errorf("the record of route %d at offset %d: %w", record.RouteVersion, offset, err)
		}
		return found == nil, nil
	})
	if err == nil && found == nil {
		err = Refuse(ErrRouteUnreadable, "%s/0: %s", fixUnreadable, route.Log.Name, why)
	}
	return found, err
}

// routeOf returns the route in force at the log's end, if a record is that route's.
func (p *Topics) routeOf(r *evidence.LogRecord) (*evidence.Route, error) {
	route, err := r.Routing()
	if err == nil && (r.Route != p.LogEnd.Route || r.RouteVersion != p.LogEnd.RouteVersion) {
		err = fmt.Errorf("it is route %d, %s, and the log ends with route %d, %s", r.RouteVersion, r.Route, p.LogEnd.RouteVersion, p.LogEnd.Route)
	}
	if err != nil {
		return nil, err
	}
	return route, nil
}

// recordFrom returns the log's first record at or above an offset, up to its end.
func (p *Topics) recordFrom(ctx context.Context, client store.Client, route *evidence.Route, from int64) (*evidence.LogRecord, int64, error) {
	reader := client.Reader(route.Log.Name, 0, from, p.logEndOffset+1)
	for {
		rec, offset, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil, 0, fmt.Errorf("read %s/0 from offset %d on: the record at offset %d is gone", route.Log.Name, from, p.logEndOffset)
		}
		if err != nil {
			return nil, 0, err
		}
		if record, err := logRecordOf(&rec, route); err != nil || record != nil {
			return record, offset, err
		}
	}
}

// checkRoute refuses a record of a route of this database whose content contradicts it.
func checkRoute(r *evidence.LogRecord, route *evidence.Route, offset int64) error {
	if r.Kind != evidence.KindRoute || !isOfSource(r, &route.Source) {
		return nil
	}
	if _, err := r.Routing(); err != nil {
		return Refuse(ErrRouteUnreadable, "%s/0: the record of route %d at offset %d: %s", fixUnreadable, route.Log.Name, r.RouteVersion, offset, err)
	}
	return nil
}

const fixUnreadable = "find out who may write into it (ACL: WRITE) and take the right away; then " + anotherLog

// isOfSource reports whether a record is of the log of this database.
func isOfSource(r *evidence.LogRecord, source *evidence.Source) bool {
	return r.SystemIdentifier == source.SystemIdentifier && r.DatabaseOID == source.DatabaseOID
}

// Touched reports whether topics or log have something of a transaction that commits at or above a position. The route in force finishes such a
// transaction.
func (p *Topics) Touched(at evidence.Reach) bool {
	return !evidence.ReachOf(p.LastOfAll()).Before(at) || at.Before(p.Newest().Reach)
}
