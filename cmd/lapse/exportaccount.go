package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"lapse/audit/evidence"
	"lapse/audit/tree"
	"lapse/audit/verify"
	"lapse/schemas"
)

// account compares the log's records with the files of events and commitments. lost are the topics that lost records according to the log, and up to
// where. far is called with each record.
func (x *exportFiles) account(
	ctx context.Context, keys schemas.EpochKeys, lost map[string]evidence.Reach, far func(leaf int64),
) (*verify.Account, error) {
	// In a growing folder the log's end is read first: the topics then have everything that the log speaks of.
	log, err := x.open(&x.manifest.Files[0])
	if err != nil {
		return nil, err
	}
	defer log.close()
	a := &verify.Account{System: x.manifest.Topics.System, Keys: keys, Lost: lost}
	p := x.waypoint(log, a)
	for i := range x.manifest.Files[1:] {
		of := &x.manifest.Files[1+i]
		lines, err := x.open(of)
		if err != nil {
			return nil, err
		}
		defer lines.close()
		from := x.from[of.Name]
		s := &verify.Stream{
			Within: from != nil && from.Begun && of.First <= from.Offset+1, Name: of.Name, Topic: of.Topic, Cut: of.First > 0, Line: func() int { return lines.lines },
			Next: func() (*schemas.Record, error) { return x.next(of, lines) },
		}
		if of.Topic == x.manifest.Topics.Proofs {
			a.Proofs = s
		} else {
			a.Events = append(a.Events, s)
		}
		p.streams, p.from = append(p.streams, lines), append(p.from, s)
	}
	x.newOrder()
	return a, x.counts(ctx, log, a, p, far)
}

// counts reads the log's file beside the others.
func (x *exportFiles) counts(ctx context.Context, log *exportedLines, a *verify.Account, p *waypoint, far func(leaf int64)) error {
	leaves := tree.Reader{Tree: tree.New(nil)}
	var broken string
	order := verify.Log{Within: x.before != nil, Broken: func(what string) { broken = cmp.Or(broken, what) }}
	within := int64(0)
	if x.before != nil {
		within = x.before.Within
		leaves.Tree = tree.Within(x.before.Leaf)
		a.Resume(x.route, x.before.Rewind)
	}
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		rec, err := log.next()
		if errors.Is(err, io.EOF) {
			return x.located(a.End())
		}
		if err != nil {
			return err
		}
		record := logRecordIn(rec)
		if record == nil || !leaves.Take(rec) {
			continue
		}
		leaf := leaves.Tree.Size() - 1
		far(leaf)
		if leaf < within {
			continue
		}
		if leaf == within && x.before != nil && !x.sameRoute(record) {
			return invalid(errOtherRoute)
		}
		if err := p.passes(leaf, rec, record); err != nil {
			return err
		}
		if record.Kind == evidence.KindRoute {
			x.routeRecord = rec.Value
		}
		x.clock.Next(leaf, record)
		if order.Next(record); broken != "" {
			return x.located(&verify.Discrepancy{Leaf: leaf, What: broken})
		}
		if err := x.located(a.Record(leaf, record)); err != nil {
			return err
		}
	}
}

// located makes a discrepancy a fault in a file.
func (x *exportFiles) located(err error) error {
	var d *verify.Discrepancy
	switch {
	case !errors.As(err, &d):
		return err
	case d.Name == "":
		return exportFault(x.manifest.Files[0].Name, d.Leaf, "%s", d.What)
	default:
		return exportFault(d.Name, d.Leaf, "line %d: %s", d.Line, d.What)
	}
}

// lostIn adds the topic that lost records according to a gap in the log.
func lostIn(entry []byte, lost map[string]evidence.Reach) {
	record, err := evidence.ParseLogRecord(entry)
	if err != nil {
		return
	}
	c, is := record.Content.(*evidence.MarkerContent)
	if is && c.Marker.Reason == evidence.ReasonTopic && lost[c.Marker.Topic].Before(c.Marker.To) {
		lost[c.Marker.Topic] = c.Marker.To
	}
}

// notCounted lists what the account could not check.
func notCounted(a *verify.Account) (open []string) {
	add := func(n int, what, why string) {
		if n > 0 {
			open = append(open, fmt.Sprintf("%s: %s", counted(n, what), why))
		}
	}
	add(a.Forgotten, "transaction", "some or all of their events are no longer in the topics")
	add(a.Unrooted, "transaction", "their commitments are no longer in the proof store, and they do not come to their root without it")
	add(a.Rootless, "transaction", "they name a month whose key was destroyed, and commit to none of their rows")
	add(a.Hidden, "event", "their keys are hidden, too long, or typed: they were counted, and not held against their commitments")
	add(a.TakenBack, "event", "a rewind says that they never happened, and the log has no record of them")
	add(a.Beyond, "event", "they come after the log's last record")
	if a.Keys == nil {
		open = append(open, "the rows of events against their commitments: that needs the key named rows (--keys)")
	}
	return open
}
