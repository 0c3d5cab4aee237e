package export

import (
	"slices"

	"lapse/audit/evidence"
	"lapse/audit/tree"
	"lapse/audit/verify"
	"lapse/schemas"
)

// waypoint saves all places when the account reaches a place from which the next verification can continue.
type waypoint struct {
	reader  *Reader
	log     *lines
	account *verify.Account
	streams []*lines // the files' readers, except the log's
	from    []*verify.Stream
	leaf    int64 // the first leaf at which it can continue; -1 if that is not wanted
	below   int64 // the end of such leaves
	tile    *fileState
}

// waypoint makes the waypoint of an export's account.
func (r *Reader) waypoint(log *lines, account *verify.Account) *waypoint {
	p := &waypoint{reader: r, log: log, account: account, leaf: -1}
	if r.Keep && r.size > 0 {
		p.below, p.leaf = r.size, (r.size-1)/tileWidth*tileWidth
	}
	return p
}

// passes is called with each log record before the account counts it.
func (p *waypoint) passes(leaf int64, rec *schemas.Record, record *evidence.LogRecord) error {
	if p.leaf < 0 || leaf < p.leaf || leaf >= p.below || p.reader.came != nil {
		return nil
	}
	if _, placed := tree.IndexOf(rec); !placed {
		return nil // from before the log had a tree: such records have no numbers
	}
	if leaf == p.leaf {
		at, err := p.log.before()
		if err != nil {
			return err
		}
		p.tile = &fileState{Name: p.log.of.Name, First: p.log.of.First, place: at}
	}
	if c, is := record.Content.(*evidence.TransactionContent); p.tile == nil || is && c.Further {
		return nil
	}
	if err := p.reader.located(p.account.Settle()); err != nil {
		return err
	}
	e := &State{Leaf: p.leaf, Within: leaf, Route: slices.Clone(p.reader.routeRecord), Rewind: p.account.Rewind(), Lost: map[string]string{}, Files: []fileState{*p.tile}}
	for topic, reach := range p.account.Lost {
		e.Lost[topic] = reach.String()
	}
	for i, l := range p.streams {
		reached := l.after
		if p.from[i].Ahead() {
			reached = l.before
		}
		at, err := reached()
		if err != nil {
			return err
		}
		e.Files = append(e.Files, fileState{Name: l.of.Name, First: l.of.First, Begun: p.from[i].Begun(), place: at})
	}
	p.reader.came = e
	return nil
}
