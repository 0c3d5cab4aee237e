package evidence

import (
	"encoding/json"
	"time"
)

// QuarantineContent is the record of rows that entered or left the quarantine. No record says which rows.
type QuarantineContent struct {
	Committed
	Op       string
	PolicyID int64
	Policy   string
	Table    string // as people write it; "" if it is gone
	TableOID int64
	Entered  int64
	Left     int64
	Rows     int64 // restated: how many there are
	At       time.Time
	By       string
}

func readQuarantine(op string, c columns) QuarantineContent {
	q := QuarantineContent{
		Op: op, PolicyID: numberOf(c("policy_id")), Policy: cut(c("policy")), TableOID: numberOf(c("leaf")),
		Entered: numberOf(c("entered")), Left: numberOf(c("left_it")), Rows: numberOf(c("rows")), At: timeOf(c("changed_at")), By: cut(c("changed_by")),
	}
	if table := c("name"); table != "" {
		q.Table = tableOf(table)
	}
	return q
}

// Kind is KindQuarantine.
func (*QuarantineContent) Kind() Kind { return KindQuarantine }

func (c *QuarantineContent) append(b []byte, form TextForm) []byte {
	o := object{c.Committed.append(b), form}
	o.text("op", c.Op)
	o.number("policy_id", c.PolicyID)
	o.text("policy", c.Policy)
	o.text("table", c.Table)
	o.number("table_oid", c.TableOID)
	o.number("entered", c.Entered)
	o.number("left", c.Left)
	o.number("rows", c.Rows)
	o.instant("at", c.At)
	o.text("by", c.By)
	return o.b
}

func (c *QuarantineContent) parse(record []byte, form TextForm) (err error) {
	var j struct {
		committedJSON
		Op       string    `json:"op"`
		PolicyID int64     `json:"policy_id"`
		Policy   string    `json:"policy"`
		Table    string    `json:"table"`
		TableOID int64     `json:"table_oid"`
		Entered  int64     `json:"entered"`
		Left     int64     `json:"left"`
		Rows     int64     `json:"rows"`
		At       time.Time `json:"at"`
		By       string    `json:"by"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	*c = QuarantineContent{
		Op: j.Op, PolicyID: j.PolicyID, Policy: form.decode(j.Policy), Table: form.decode(j.Table), TableOID: j.TableOID,
		Entered: j.Entered, Left: j.Left, Rows: j.Rows, At: j.At, By: form.decode(j.By),
	}
	c.Committed, err = j.committed()
	return err
}
