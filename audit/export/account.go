package export

import (
	"cmp"
	"context"
	"errors"
	"io"

	"lapse/audit/evidence"
	"lapse/audit/tree"
	"lapse/audit/verify"
	"lapse/schemas"
)

// Account is what the events of an export come to.
type Account struct {
	*verify.Account
	Events int // the number of lines of the topics of events, fences included
	Clock  verify.Clock
}

// Account compares the log's records with the files of events and commitments; keys may be nil. far is called with each record. Call it after Tree.
func (r *Reader) Account(ctx context.Context, keys schemas.EpochKeys, far func(leaf int64)) (*Account, error) {
	a := &verify.Account{System: r.Manifest.Topics.System, Keys: keys, Lost: r.lost}
	if err := r.account(ctx, a, far); err != nil {
		return nil, cmp.Or(r.alone(ctx), err)
	}
	return &Account{Account: a, Events: r.events, Clock: r.clock}, nil
}

func (r *Reader) account(ctx context.Context, a *verify.Account, far func(leaf int64)) error {
	// In a growing folder the log's end is read first: the topics then have everything that the log speaks of.
	log, err := r.open(ctx, &r.Manifest.Files[0])
	if err != nil {
		return err
	}
	defer log.close()
	p := r.waypoint(log, a)
	for i := range r.Manifest.Files[1:] {
		of := &r.Manifest.Files[1+i]
		l, err := r.open(ctx, of)
		if err != nil {
			return err
		}
		defer l.close()
		from := r.from[of.Name]
		s := &verify.Stream{
			Within: from != nil && from.Begun && of.First <= from.Offset+1, Name: of.Name, Topic: of.Topic, Cut: of.First > 0, Line: func() int { return l.lines },
			Next: func() (*schemas.Record, error) { return r.next(of, l) },
		}
		if of.Topic == r.Manifest.Topics.Proofs {
			a.Proofs = s
		} else {
			a.Events = append(a.Events, s)
		}
		p.streams, p.from = append(p.streams, l), append(p.from, s)
	}
	r.newOrder()
	return r.counts(ctx, log, a, p, far)
}

// newOrder begins to check the order that the topics of events promise.
func (r *Reader) newOrder() {
	r.events, r.broken = 0, ""
	r.order = verify.Order{System: r.Manifest.Topics.System, Broken: func(what string) {
		if r.broken == "" {
			r.broken = what
		}
	}}
}

// next reads the next record of a partition of events or commitments. It returns io.EOF at an end that is as it must be.
func (r *Reader) next(of *File, l *lines) (*schemas.Record, error) {
	rec, err := l.next()
	if errors.Is(err, io.EOF) {
		if end := r.sink.checkEnd(of, l.offset); end != nil {
			return nil, end
		}
	}
	if err != nil || of.Topic == r.Manifest.Topics.Proofs {
		return rec, err
	}
	r.events++
	if r.order.Next(of.Topic, of.Partition, rec, l.offset); r.broken != "" {
		return nil, fault(of.Name, -1, "line %d: %s", l.lines, r.broken)
	}
	return rec, nil
}

// alone reads the topics' files one by one, because a fault within a file is more precise than a mismatch with the log.
func (r *Reader) alone(ctx context.Context) error {
	r.newOrder()
	for i := range r.Manifest.Files[1:] {
		of := &r.Manifest.Files[1+i]
		l, err := r.open(ctx, of)
		if err != nil {
			return err
		}
		for err == nil && ctx.Err() == nil {
			_, err = r.next(of, l)
		}
		l.close()
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// counts reads the log's file beside the others.
func (r *Reader) counts(ctx context.Context, log *lines, a *verify.Account, p *waypoint, far func(leaf int64)) error {
	leaves := tree.Reader{Tree: tree.New(nil)}
	var broken string
	order := verify.Log{Within: r.before != nil, Broken: func(what string) { broken = cmp.Or(broken, what) }}
	within := int64(0)
	if r.before != nil {
		within = r.before.Within
		leaves.Tree = tree.Within(r.before.Leaf)
		a.Resume(r.route, r.before.Rewind)
	}
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		rec, err := log.next()
		if errors.Is(err, io.EOF) {
			return r.located(a.End())
		}
		if err != nil {
			return err
		}
		record := evidence.LogRecordIn(rec)
		if record == nil || !leaves.Take(rec) {
			continue
		}
		leaf := leaves.Tree.Size() - 1
		far(leaf)
		if leaf < within {
			continue
		}
		if leaf == within && r.before != nil && !r.sameRoute(record) {
			return invalid("the state of a former verification: its route is not the one in force there")
		}
		if err := p.passes(leaf, rec, record); err != nil {
			return err
		}
		if record.Kind == evidence.KindRoute {
			r.routeRecord = rec.Value
		}
		r.clock.Next(leaf, record)
		if order.Next(record); broken != "" {
			return r.located(&verify.Discrepancy{Leaf: leaf, What: broken})
		}
		if err := r.located(a.Record(leaf, record)); err != nil {
			return err
		}
	}
}

// located makes a discrepancy a fault in a file.
func (r *Reader) located(err error) error {
	var d *verify.Discrepancy
	switch {
	case !errors.As(err, &d):
		return err
	case d.Name == "":
		return fault(r.Manifest.Files[0].Name, d.Leaf, "%s", d.What)
	default:
		return fault(d.Name, d.Leaf, "line %d: %s", d.Line, d.What)
	}
}
