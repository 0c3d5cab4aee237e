package evidence

import (
	"encoding/hex"
	"encoding/json"
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// parseDrop reads a row of lapse.dropped without its claim; nil if it cannot be read.
func parseDrop(change *replication.Change, claim *schemas.Claim) *PartitionDrop {
	d := &PartitionDrop{Claim: claim, Relation: &replication.Relation{OID: claim.Target}}
	found := 0
	for i, column := range change.Relation.Columns {
		text, sent := textOf(change.New, i)
		var ok bool
		switch column.Name {
		case "relation":
			d.Relation.Schema, d.Relation.Name, ok = parseQualified(text)
		case "root":
			root := &replication.Relation{OID: claim.Target}
			root.Schema, root.Name, ok = parseQualified(text)
			d.Root = tableName(root)
		case "rows":
			ok = parseInt64(text, &d.Rows) && d.Rows > 0
		case "oldest":
			parseInstant(text, &d.Oldest)
			continue
		case "newest":
			parseInstant(text, &d.Newest)
			continue
		default:
			continue
		}
		if !sent || !ok {
			return nil
		}
		found++
	}
	if found != 3 {
		return nil
	}
	return d
}

// setDrop fills e with the event of a dropped partition.
func (e *Event) setDrop(tx *replication.Tx, ordinal uint32, d *PartitionDrop) {
	*e = Event{
		Tx: tx, Ordinal: ordinal, Op: Drop, Cause: System, Claim: d.Claim, Drop: d,
		TableOID: d.Relation.OID, Table: tableName(d.Relation), Relation: d.Relation, Root: d.Root, Partition: true, Keys: e.Keys[:0],
	}
}

// DropContent is the record of a partition that was dropped. It follows the record of its transaction.
type DropContent struct {
	Committed
	Table string
	Drop  *PartitionDrop // the record has its relation's name as people write it: Table
}

func newDropContent(tx *replication.Tx, d *PartitionDrop) *DropContent {
	return &DropContent{Committed: committed(tx), Table: tableName(d.Relation), Drop: d}
}

// Kind is KindDrop.
func (*DropContent) Kind() Kind { return KindDrop }

func (c *DropContent) append(b []byte, form TextForm) []byte {
	d := c.Drop
	b = appendText(append(c.Committed.append(b), `,"table":`...), c.Table, form)
	b = appendUint(append(b, `,"table_oid":`...), uint64(d.Relation.OID))
	b = appendText(append(b, `,"root":`...), d.Root, form)
	b = appendDrop(append(b, ','), d)
	b = appendClaim(append(b, `,"claim":{`...), d.Claim, form)
	return append(hex.AppendEncode(append(b, `,"functions":"`...), d.Claim.Functions[:]), `"}`...)
}

func (c *DropContent) parse(record []byte, form TextForm) (err error) {
	var j struct {
		committedJSON
		Table  string    `json:"table"`
		OID    uint32    `json:"table_oid"`
		Root   string    `json:"root"`
		Rows   int64     `json:"rows"`
		Oldest time.Time `json:"oldest"`
		Newest time.Time `json:"newest"`
		Claim  claimJSON `json:"claim"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	c.Table = form.decode(j.Table)
	c.Drop = &PartitionDrop{
		Relation: &replication.Relation{OID: j.OID}, Root: form.decode(j.Root), Rows: j.Rows, Oldest: j.Oldest, Newest: j.Newest,
	}
	c.Drop.Claim = j.Claim.claim(form)
	c.Drop.Claim.Target = j.OID
	c.Committed, err = j.committed()
	return err
}
