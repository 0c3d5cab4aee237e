package page

import (
	"strings"

	"lapse/audit/report"
	"lapse/internal/plaintext"
)

// tableOf says how many items there are of a kind that has a table if there are any.
type tableOf struct {
	name string
	n    int64
}

// none lists the kinds without items, which have no table.
func none(of ...tableOf) string {
	var text []string
	for _, x := range of {
		if x.n == 0 {
			text = append(text, x.name+": none.")
		}
	}
	return strings.Join(text, " ")
}

// people makes the section on human actions that concern no single policy: holds, halts, and changes by hand.
func (m *maker) people() Section {
	s := Section{ID: "holds", Title: "Holds, halts and changes by hand"}
	m.holds(&s)
	m.switches(&s)
	s.Lead = none(tableOf{"Legal holds", m.Holds.Len()}, tableOf{"Halts of all policies", m.Halts.Len()}, tableOf{"Changes by hand", m.ByHand.Len()})
	return s
}

func (m *maker) holds(s *Section) {
	root := place("")
	s.table(Table{Name: "holds", Caption: "Legal holds that were in force in the period, or ended in it", Columns: []Column{
		{Name: "hold"},
		{Name: "matter"},
		{Name: "table"},
		{Name: "what is held"},
		{Name: "placed (UTC)"},
		{Name: "by"},
		{Name: "state at the end"},
		{Name: "effective from"},
		{Name: "policies that it touches"},
	}, Rows: listed(&m.Holds, root.in("holds"), func(h *report.Hold, at place) []Cell {
		held := Cell{Text: "rows by a condition"}
		if h.Keys > 0 {
			held = count(h.Keys, at.in("keys")).with(" keys")
		}
		return []Cell{
			ref(h.Hold, at.in("hold")), text(h.Matter, at.in("matter")), text(h.Table, at.in("table")), held, instant(h.Placed, at.in("placed")),
			text(h.By, at.in("by")), text(h.State, at.in("state")), text(h.Position, at.in("position")),
			{Text: plaintext.Line(strings.Join(h.Policies, ", "))},
		}
	})})
	var changes []Row
	for i := range m.Holds.Items {
		h := &m.Holds.Items[i]
		changes = append(changes, listed(&h.States, root.in("holds", "items", i, "states"), func(c *report.HoldChange, at place) []Cell {
			return []Cell{
				ref(h.Hold, root.in("holds", "items", i, "hold")), instant(c.At, at.in("at")), text(c.State, at.in("state")),
				instant(c.Until, at.in("enforced_until")), text(c.By, at.in("by")), text(c.Reason, at.in("reason")), ref(c.Leaf, at.in("leaf")),
			}
		})...)
	}
	s.table(Table{Name: "hold-changes", Caption: "What became of holds", Columns: []Column{
		{Name: "hold"},
		{Name: "at (UTC)"},
		{Name: "state"},
		{Name: "enforced until (UTC)"},
		{Name: "by"},
		{Name: "reason"},
		{"record of the log", true},
	}, Rows: changes})
}

// switches makes the tables of halts and of changes by hand.
func (m *maker) switches(s *Section) {
	root := place("")
	s.table(Table{Name: "halts", Caption: "All policies at once", Columns: []Column{
		{Name: "at (UTC)"},
		{Name: "what"},
		{Name: "by"},
		{Name: "reason"},
		{"record of the log", true},
	}, Rows: listed(&m.Halts, root.in("halts"), func(h *report.Halt, at place) []Cell {
		what := "go on"
		if h.Halted {
			what = "stopped"
		}
		if h.Alarm {
			what += ", by the alarm of the checking program (lapse audit)"
		}
		return []Cell{instant(h.At, at.in("at")), {Text: what}, text(h.By, at.in("by")), text(h.Reason, at.in("reason")), ref(h.Leaf, at.in("leaf"))}
	})})
	s.table(Table{Name: "by-hand", Caption: "Changes of Lapse’s own tables that no command makes", Columns: []Column{
		{Name: "at (UTC)"},
		{Name: "what"},
		{Name: "operation"},
		{Name: "policy"},
		{"transaction", true},
		{"record of the log", true},
	}, Rows: listed(&m.ByHand, root.in("by_hand"), func(e *report.HandEdit, at place) []Cell {
		return []Cell{
			instant(e.At, at.in("at")),
			{Text: plaintext.Line(e.What + ", " + e.Row)},
			text(e.Op, at.in("op")), text(e.Policy, at.in("policy")),
			ref(int64(e.XID), at.in("xid")), ref(e.Leaf, at.in("leaf")),
		}
	})})
}

// coverage makes the section on what was read, and on what may still contain the rows.
func (m *maker) coverage() Section {
	s := Section{ID: "coverage", Title: "Coverage, restores and what may still have deleted rows"}
	c, root := &m.Coverage, place("")
	s.Lead = none(tableOf{"Gaps", c.Gaps.Len()}, tableOf{"Claims that prove nothing", c.Unproven.Len()}, tableOf{"Restores", m.Rewinds.Len()})
	at := root.in("coverage")
	s.table(Table{Name: "coverage", Caption: "What was read of the period", Columns: []Column{{Name: "what"}, {"value", true}}, Rows: []Row{
		named("first record with a time (UTC)", instant(c.First, at.in("first"))),
		named("last record with a time (UTC)", instant(c.Last, at.in("last"))),
		named("transactions", count(c.Transactions, at.in("transactions"))),
		named("heartbeats of the checking program (lapse audit)", count(c.Heartbeats, at.in("heartbeats"))),
		named("times that the database’s clock was set back", count(c.SetBack, at.in("clock_set_back"))),
		named("records of kinds that this report does not know", count(c.Unread, at.in("records_of_other_kinds"))),
	}})
	s.table(Table{Name: "gaps", Caption: "Gaps: from and to as history, timeline and position of the write-ahead log", Columns: []Column{
		{Name: "found (UTC)"},
		{Name: "why"},
		{Name: "topic"},
		{Name: "from"},
		{Name: "to"},
		{"record of the log", true},
	}, Rows: listed(&c.Gaps, at.in("gaps"), func(g *report.Gap, at place) []Cell {
		return []Cell{
			instant(g.At, at.in("at")), cause(g.Reason), text(g.Topic, at.in("topic")), text(g.From, at.in("from")), text(g.To, at.in("to")),
			ref(g.Leaf, at.in("leaf")),
		}
	})})
	s.table(Table{Name: "table-changes", Caption: "Changes of what is published", Columns: []Column{
		{Name: "at (UTC)"},
		{Name: "table"},
		{Name: "change"},
		{Name: "the log tells why rows are gone"},
		{"record of the log", true},
	}, Rows: listed(&c.Tables, at.in("tables"), func(x *report.TableChange, at place) []Cell {
		change := text(x.Change, at.in("change"))
		if x.Former != "" {
			change = change.with(", formerly " + plaintext.Line(x.Former))
			change.From = ""
		}
		told := map[bool]string{true: "yes", false: "no"}[x.Told]
		return []Cell{instant(x.At, at.in("at")), text(x.Table, at.in("table")), change, {Text: told}, ref(x.Leaf, at.in("leaf"))}
	})})
	s.table(Table{Name: "unproven", Caption: "Claims that prove nothing", Columns: transactionColumns, Rows: listed(&c.Unproven, at.in("unproven"), transaction)})
	m.rewinds(&s)
	s.residue(&m.Residue, root.in("residue"))
	return s
}

// cause makes the cell of the cause of a gap or a restore.
func cause(reason string) Cell { return Cell{Text: plaintext.Line(report.Cause(reason))} }

// rewinds makes the table of restores.
func (m *maker) rewinds(s *Section) {
	root := place("")
	s.table(Table{Name: "rewinds", Caption: "Restores: the database went back to an earlier state; positions as history, timeline and position of the write-ahead log", Columns: []Column{
		{Name: "at (UTC)"},
		{Name: "why"},
		{Name: "never happened: from"},
		{Name: "to"},
		{"rows back that others had deleted", true},
		{"record of the log", true},
	}, Rows: listed(&m.Rewinds, root.in("rewinds"), func(r *report.Rewind, at place) []Cell {
		return []Cell{
			instant(r.At, at.in("at")), cause(r.Reason), text(r.From, at.in("from")), text(r.To, at.in("to")), count(r.Users, at.in("deleted_by_users")),
			ref(r.Leaf, at.in("leaf")),
		}
	})})
	var back []Row
	for i := range m.Rewinds.Items {
		r := &m.Rewinds.Items[i]
		for j := range r.Policies {
			p, at := &r.Policies[j], root.in("rewinds", "items", i, "policies", j)
			back = append(back, Row{Cells: []Cell{
				text(p.Policy, at.in("policy")), instant(r.At, root.in("rewinds", "items", i, "at")), count(p.BroughtBack, at.in("brought_back")),
				count(p.DeletedSince, at.in("deleted_since")), instant(p.FirstSince, at.in("first_since")), instant(p.LastSince, at.in("last_since")),
			}})
		}
	}
	s.table(Table{Name: "brought-back", Caption: "What restores brought back, and what was deleted since: which rows, no number tells", Columns: []Column{
		{Name: "policy"},
		{Name: "restore (UTC)"},
		{"rows back that it had deleted", true},
		{"rows that it deleted since", true},
		{Name: "first (UTC)"},
		{Name: "last (UTC)"},
	}, Rows: back})
}

// residue says where deleted rows may still exist.
func (s *Section) residue(r *report.Residue, at place) {
	s.table(Table{Name: "residue", Caption: "What may still have deleted rows", Columns: []Column{{Name: "where"}, {"value", true}, {Name: "if not assessed, why"}}, Rows: []Row{
		assessed("the table’s own files, until vacuum", r.VacuumHorizon, figure(r.VacuumHorizon, at.in("vacuum_horizon"))),
	}})
	s.Blocks[len(s.Blocks)-1].Text = "A row that is deleted from its table is not erased from the disk, from backups or from copies."
	s.table(Table{Name: "declared", Caption: "For how long copies are kept: declared by the people who run the database, not measured", Columns: []Column{
		{Name: "said since (UTC)"},
		{Name: "archived write-ahead log"},
		{Name: "backups"},
		{"record of the log", true},
	}, Rows: listed(&r.Declared, at.in("declared"), func(d *report.Declaration, at place) []Cell {
		return []Cell{instant(d.At, at.in("at")), declared(d.WALArchive, at.in("wal_archive")), declared(d.Backups, at.in("backups")), ref(d.Leaf, at.in("leaf"))}
	})})
	if len(r.Declared.Items) == 0 {
		s.Blocks[len(s.Blocks)-1].Text += " For how long copies are kept nobody has declared."
	}
}

func declared(said string, at place) Cell {
	if said == "" {
		return Cell{Text: "nothing is declared"}
	}
	return text(said, at)
}
