package evidence

import (
	"encoding/hex"
	"encoding/json"
	"time"

	"lapse/schemas"
)

// The kinds of rows in records of holds.
const (
	holdPlaced   = "hold"     // lapse.hold: it was placed
	holdState    = "state"    // lapse.hold_state: it came into a state, or was moved
	holdRelation = "relation" // lapse.hold_relation: a table that it covers, or covered
)

// HoldContent is the record of one row about a legal hold.
type HoldContent struct {
	Committed
	catalogChange[HoldRow]
}

// HoldRow is a row of one of the tables, with those of the columns that the table has. None of them says what is held.
type HoldRow struct {
	Hold     int64
	Matter   string
	Table    string // as people write it
	TableOID int64
	Keys     int64  // how many keys are held; 0: a condition
	Digest   string // SHA-256, in hexadecimal digits, over a random salt and what is held
	State    string
	Until    time.Time   // while it is being released
	Position schemas.LSN // of state effective: what commits above it has seen the hold
	Attached bool        // the table may have been below the held one before
	Ended    bool        // the table was dropped
	At       time.Time
	By       string
	Reason   string
}

// readHoldRow reads a row of one of the tables.
func readHoldRow(row string, c columns) *HoldRow {
	r := &HoldRow{
		Hold: numberOf(c("hold")), TableOID: numberOf(c("table_oid")), State: cut(c("state")), Until: timeOf(c("enforced_until")),
		At: timeOf(c("changed_at")), By: cut(c("changed_by")), Reason: cut(c("reason")),
	}
	if table := c("table_name"); table != "" {
		r.Table = tableOf(table)
	}
	r.Position, _ = schemas.ParseLSN(c("position"))
	switch row {
	case holdPlaced:
		r.Hold, r.Matter, r.Keys = numberOf(c("id")), cut(c("matter")), numberOf(c("keys"))
		r.At, r.By = timeOf(c("placed_at")), cut(c("placed_by"))
		if digest, ok := parseBytes(c("digest")); ok {
			r.Digest = hex.EncodeToString(digest)
		}
	case holdRelation:
		r.Table, r.TableOID, r.At = tableOf(c("name")), numberOf(c("relation")), timeOf(c("recorded_at"))
		r.Attached, r.Ended = c("attached") == "t", c("ended") == "t"
	}
	return r
}

// Kind is KindHold.
func (*HoldContent) Kind() Kind { return KindHold }

func (c *HoldContent) append(b []byte, form TextForm) []byte {
	return appendChange(c.Committed.append(b), &c.catalogChange, form, (*HoldRow).write)
}

func (r *HoldRow) write(o *object) {
	o.number("hold", r.Hold)
	o.text("matter", r.Matter)
	o.text("table", r.Table)
	o.number("table_oid", r.TableOID)
	o.number("keys", r.Keys)
	o.text("digest", r.Digest)
	o.text("state", r.State)
	o.instant("enforced_until", r.Until)
	if r.Position != 0 {
		o.name("position")
		o.b = appendLSN(o.b, r.Position)
	}
	o.flag("attached", r.Attached)
	o.flag("ended", r.Ended)
	o.instant("at", r.At)
	o.text("by", r.By)
	o.text("reason", r.Reason)
}

func (c *HoldContent) parse(record []byte, form TextForm) (err error) {
	var j struct {
		committedJSON
		Row string       `json:"row"`
		Op  string       `json:"op"`
		Is  *holdRowJSON `json:"is"`
		Was *holdRowJSON `json:"was"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	c.Row, c.Op = j.Row, j.Op
	if c.Is, err = j.Is.row(form); err == nil {
		c.Was, err = j.Was.row(form)
	}
	if err == nil {
		c.Committed, err = j.committed()
	}
	return err
}

// holdRowJSON is what HoldRow.write writes.
type holdRowJSON struct {
	Hold     int64     `json:"hold"`
	Matter   string    `json:"matter"`
	Table    string    `json:"table"`
	TableOID int64     `json:"table_oid"`
	Keys     int64     `json:"keys"`
	Digest   string    `json:"digest"`
	State    string    `json:"state"`
	Until    time.Time `json:"enforced_until"`
	Position string    `json:"position"`
	Attached bool      `json:"attached"`
	Ended    bool      `json:"ended"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
}

func (j *holdRowJSON) row(form TextForm) (*HoldRow, error) {
	if j == nil {
		return nil, nil
	}
	at, err := optionalLSN(j.Position)
	return &HoldRow{
		Hold: j.Hold, Matter: form.decode(j.Matter), Table: form.decode(j.Table), TableOID: j.TableOID, Keys: j.Keys, Digest: j.Digest,
		State: form.decode(j.State), Until: j.Until, Position: at, Attached: j.Attached, Ended: j.Ended, At: j.At, By: form.decode(j.By), Reason: form.decode(j.Reason),
	}, err
}
