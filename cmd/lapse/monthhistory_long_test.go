//go:build long

package main

import (
	"time"

	"lapse/schemas"
)

// rowChange is a row of the shadow table.
type rowChange struct {
	relation, op, who, xid string
	id                     int64
	value, at              time.Time
	branch                 int
	undone                 bool // a restore took it back
}

// collect reads what the tables' history has now, and finds partitions that are gone.
func (o *october) collect() {
	o.t.Helper()
	at := o.now()
	rows, err := o.session.Query(o.t.Context(), `select n, relation, op, id, value, who, xid::text, at from shadow.change where n > $1 order by n`, o.last)
	if err != nil {
		o.t.Fatal(err)
	}
	for rows.Next() {
		c := rowChange{branch: o.branch}
		if err := rows.Scan(&o.last, &c.relation, &c.op, &c.id, &c.value, &c.who, &c.xid, &c.at); err != nil {
			o.t.Fatal(err)
		}
		o.changes = append(o.changes, c)
	}
	if err := rows.Err(); err != nil {
		o.t.Fatal(err)
	}
	for name, there := range o.parts {
		if is := o.number(`select count(to_regclass('public.`+name+`'))`) == 1; there && !is {
			for id, value := range o.present(name, at) {
				o.changes = append(o.changes, rowChange{relation: name, op: "DROP", who: "lapse_executor", xid: "drop of " + name, id: id, value: value, at: at, branch: o.branch})
			}
			o.parts[name] = false
		}
	}
}

// present are the rows that a table had at a time, with the value that they expire by.
func (o *october) present(relation string, at time.Time) map[int64]time.Time {
	rows := map[int64]time.Time{}
	for i := range o.changes {
		c := &o.changes[i]
		if c.relation != relation || c.at.After(at) || c.undone && !at.Before(o.restored) {
			continue
		}
		switch c.op {
		case "INSERT", "UPDATE":
			rows[c.id] = c.value
		default:
			delete(rows, c.id)
		}
	}
	return rows
}

// step is the index of the first step that is not exceeded.
func step(late int64) (i int) {
	for i < len(schemas.LatenessSteps) && late > schemas.LatenessSteps[i] {
		i++
	}
	return i
}
