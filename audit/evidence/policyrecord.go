package evidence

import (
	"encoding/json"
	"slices"
	"time"

	"lapse/schemas"
)

// The kinds of rows in records of policies.
const (
	policyVersion = "version" // lapse.policy: a version was made
	policyState   = "state"   // lapse.policy_state: a policy came into a state
	policyGate    = "gate"    // lapse.gate: what is in force
	policyHalt    = "halt"    // lapse.halt: the switch for all policies
	policyOthers  = "others"  // rows that there is no room for
)

// PolicyContent is the record of a row that says which policies exist and which of them delete.
type PolicyContent struct {
	Committed
	catalogChange[PolicyRow]
	// ByHand: another version or state came into force without an entry in lapse.policy_state. No command does that.
	ByHand bool
	Others uint64 // rows that there is no room for
}

// PolicyRow is a row of one of the tables, with those of the columns that the table has. A person's text is cut after maxCatalogText characters.
type PolicyRow struct {
	Policy      string // its name; "" if the transaction does not show it
	ID          int64
	Version     int64
	State       schemas.State
	HeldVersion int64  // the version that waits for a person
	Table       string // as people write it
	TableOID    int64
	Soft        bool
	Halted      bool
	Alarm       bool
	At          time.Time
	By          string // the login
	Reason      string
	Terms       *PolicyTerms
	Definition  string // a keyed hash of the whole version

	spec string // the text under the hash
}

// PolicyTerms are the terms of a version that a report needs. Conditions and expressions may contain values of rows: only Definition covers
// them, hashed.
type PolicyTerms struct {
	Expire   ExpireTerms `json:"expire"`
	Every    string      `json:"every"`
	Daily    string      `json:"daily"`
	Cron     string      `json:"cron"`
	Window   string      `json:"window"`
	Where    bool        `json:"where"` // whether it has a condition
	Action   string      `json:"action"`
	Sets     string      `json:"sets"` // the column that a soft action sets
	Events   string      `json:"events"`
	Evidence string      `json:"evidence"`
	Moves    string      `json:"moves"`
	Owner    string      `json:"owner"`
	Basis    string      `json:"basis"`
	Latitude string      `json:"latitude"`
	Trusted  bool        `json:"trusted"`
	// Floors are the periods of lapse.yaml below which nothing is deleted.
	Floors []FloorTerms `json:"floors"`
}

// FloorTerms are a period, and the table that it is about.
type FloorTerms struct {
	Of    string `json:"table"`
	Least string `json:"least"`
}

// ExpireTerms say when a row is due.
type ExpireTerms struct {
	Kind       string `json:"kind"` // "" is a column and an interval
	Column     string `json:"column"`
	Path       string `json:"path"`
	Unit       string `json:"epoch"`
	Zone       string `json:"zone"`
	After      string `json:"after"`
	Span       string `json:"span"`
	TTLColumn  string `json:"ttl_column"`
	TTLDefault string `json:"ttl_default"`
	Sidecar    string `json:"sidecar"`
}

// readPolicyRow reads a row of one of the tables.
func readPolicyRow(row string, c columns) *PolicyRow {
	r := &PolicyRow{
		Policy: cut(c("name")), ID: numberOf(c("policy_id")), Version: numberOf(c("version")), State: schemas.State(cut(c("state"))),
		HeldVersion: numberOf(c("held_back")), TableOID: numberOf(c("table_oid")), Soft: c("soft") == "t",
		At: timeOf(c("changed_at")), By: cut(c("changed_by")), Reason: cut(c("reason")),
	}
	switch row {
	case policyVersion:
		r.ID, r.Table, r.At, r.By, r.spec = numberOf(c("id")), tableOf(c("table_name")), timeOf(c("made_at")), cut(c("made_by")), c("spec")
		r.Terms = readTerms(r.spec)
	case policyHalt:
		r.ID, r.Halted, r.Alarm, r.At, r.By = numberOf(c("id")), c("halted") == "t", c("alarm") == "t", timeOf(c("at")), cut(c("by"))
	}
	return r
}

// readTerms reads the terms from a version's spec; nil if it cannot be read.
func readTerms(spec string) *PolicyTerms {
	var is struct {
		PolicyTerms
		Where  string                  `json:"where"`
		Events struct{ Values string } `json:"events"`
		Soft   struct {
			Name string `json:"name"`
		} `json:"soft"`
		Floor []struct {
			Of    string `json:"of"`
			Least string `json:"least"`
		} `json:"floor"`
		Triggers json.RawMessage `json:"triggers"`
		Trusted  json.RawMessage `json:"trusted"` // what was found when the triggers were trusted
	}
	if json.Unmarshal([]byte(spec), &is) != nil {
		return nil
	}
	t := &is.PolicyTerms
	t.Where, t.Events, t.Sets = is.Where != "", is.Events.Values, is.Soft.Name
	t.Trusted = len(is.Triggers) > 0 && is.Triggers[0] == '{'
	for _, floor := range is.Floor {
		t.Floors = append(t.Floors, FloorTerms{Of: floor.Of, Least: floor.Least})
	}
	return t
}

// seal computes the keyed hashes. Without the key there are none.
func (c *PolicyContent) seal(key schemas.Key) {
	for _, r := range []*PolicyRow{c.Is, c.Was} {
		if r != nil && r.spec != "" && len(key) > 0 {
			r.Definition = HashOf(key, r.spec)
		}
	}
}

// Kind is KindPolicy.
func (*PolicyContent) Kind() Kind { return KindPolicy }

func (c *PolicyContent) append(b []byte, form TextForm) []byte {
	b = appendChange(c.Committed.append(b), &c.catalogChange, form, (*PolicyRow).write)
	if c.ByHand {
		b = append(b, `,"by_hand":true`...)
	}
	if c.Others > 0 {
		b = appendUint(append(b, `,"others":`...), c.Others)
	}
	return b
}

func (r *PolicyRow) write(o *object) {
	o.text("policy", r.Policy)
	o.number("id", r.ID)
	o.number("version", r.Version)
	o.text("state", string(r.State))
	o.number("held_back", r.HeldVersion)
	o.text("table", r.Table)
	o.number("table_oid", r.TableOID)
	o.flag("soft", r.Soft)
	o.flag("halted", r.Halted)
	o.flag("alarm", r.Alarm)
	o.instant("at", r.At)
	o.text("by", r.By)
	o.text("reason", r.Reason)
	if r.Terms != nil {
		o.name("terms")
		o.b = append(o.b, '{')
		r.Terms.write(o)
		o.b = append(o.b, '}')
	}
	o.text("definition", r.Definition)
}

func (t *PolicyTerms) write(o *object) {
	o.name("expire")
	o.b = append(o.b, '{')
	e := &t.Expire
	o.text("kind", e.Kind)
	o.text("column", e.Column)
	o.text("path", e.Path)
	o.text("epoch", e.Unit)
	o.text("zone", e.Zone)
	o.text("after", e.After)
	o.text("span", e.Span)
	o.text("ttl_column", e.TTLColumn)
	o.text("ttl_default", e.TTLDefault)
	o.text("sidecar", e.Sidecar)
	o.b = append(o.b, '}')
	o.text("every", t.Every)
	o.text("daily", t.Daily)
	o.text("cron", t.Cron)
	o.text("window", t.Window)
	o.flag("where", t.Where)
	o.text("action", t.Action)
	o.text("sets", t.Sets)
	o.text("events", t.Events)
	o.text("evidence", t.Evidence)
	o.text("moves", t.Moves)
	o.text("owner", cut(t.Owner))
	o.text("basis", cut(t.Basis))
	o.text("latitude", t.Latitude)
	o.flag("trusted", t.Trusted)
	for i := range t.Floors {
		if i == 0 {
			o.name("floors")
		}
		o.b = append(o.b, "[,"[min(i, 1)], '{')
		o.text("table", t.Floors[i].Of)
		o.text("least", t.Floors[i].Least)
		o.b = append(o.b, '}')
	}
	if len(t.Floors) > 0 {
		o.b = append(o.b, ']')
	}
}

func (c *PolicyContent) parse(record []byte, form TextForm) (err error) {
	var j struct {
		committedJSON
		Row    string         `json:"row"`
		Op     string         `json:"op"`
		Is     *policyRowJSON `json:"is"`
		Was    *policyRowJSON `json:"was"`
		ByHand bool           `json:"by_hand"`
		Others uint64         `json:"others"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	c.Row, c.Op, c.Is, c.Was, c.ByHand, c.Others = j.Row, j.Op, j.Is.row(form), j.Was.row(form), j.ByHand, j.Others
	c.Committed, err = j.committed()
	return err
}

// policyRowJSON is what PolicyRow.write writes.
type policyRowJSON struct {
	Policy      string        `json:"policy"`
	ID          int64         `json:"id"`
	Version     int64         `json:"version"`
	State       schemas.State `json:"state"`
	HeldVersion int64         `json:"held_back"`
	Table       string        `json:"table"`
	TableOID    int64         `json:"table_oid"`
	Soft        bool          `json:"soft"`
	Halted      bool          `json:"halted"`
	Alarm       bool          `json:"alarm"`
	At          time.Time     `json:"at"`
	By          string        `json:"by"`
	Reason      string        `json:"reason"`
	Terms       *PolicyTerms  `json:"terms"`
	Definition  string        `json:"definition"`
}

func (j *policyRowJSON) row(form TextForm) *PolicyRow {
	if j == nil {
		return nil
	}
	r := &PolicyRow{
		Policy: form.decode(j.Policy), ID: j.ID, Version: j.Version, State: schemas.State(form.decode(string(j.State))), HeldVersion: j.HeldVersion,
		Table: form.decode(j.Table), TableOID: j.TableOID, Soft: j.Soft, Halted: j.Halted, Alarm: j.Alarm, At: j.At,
		By: form.decode(j.By), Reason: form.decode(j.Reason), Terms: j.Terms, Definition: j.Definition,
	}
	if t := r.Terms; t != nil {
		e := &t.Expire
		for _, text := range []*string{
			&e.Kind, &e.Column, &e.Path, &e.Unit, &e.Zone, &e.After, &e.Span, &e.TTLColumn, &e.TTLDefault, &e.Sidecar,
			&t.Every, &t.Daily, &t.Cron, &t.Window, &t.Action, &t.Sets, &t.Events, &t.Evidence, &t.Moves, &t.Owner, &t.Basis, &t.Latitude,
		} {
			*text = form.decode(*text)
		}
		for i := range t.Floors {
			t.Floors[i].Of, t.Floors[i].Least = form.decode(t.Floors[i].Of), form.decode(t.Floors[i].Least)
		}
	}
	return r
}

// sameGate reports whether two rows of lapse.gate have the same in force. Their other columns change with holds and the auditor.
func sameGate(is, was *PolicyRow) bool { return is != nil && was != nil && *is == *was }

// toldGate is a row of lapse.gate with a record.
type toldGate struct {
	catalogChange[PolicyRow]
	byHand bool
}

// tellGates leaves out a row if the states and versions of the same transaction say the same, and names policies that another row names.
func (r *catalogRows) tellGates() (told []toldGate) {
	names := map[int64]string{}
	for _, c := range r.policies {
		for _, row := range []*PolicyRow{c.Is, c.Was} {
			if row != nil && row.Policy != "" {
				names[row.ID] = row.Policy
			}
		}
	}
	for _, c := range r.policies {
		t := toldGate{catalogChange: c}
		if c.Row == policyGate {
			said := c.Is != nil && slices.ContainsFunc(r.policies, func(s catalogChange[PolicyRow]) bool {
				return s.Row == policyState && s.Op == rowInserted && s.Is.ID == c.Is.ID && s.Is.Version == c.Is.Version && s.Is.State == c.Is.State
			})
			made := c.Is != nil && slices.ContainsFunc(r.policies, func(s catalogChange[PolicyRow]) bool {
				return s.Row == policyVersion && s.Op == rowInserted && s.Is.ID == c.Is.ID && s.Is.TableOID == c.Is.TableOID
			})
			moved := c.Was == nil || c.Is == nil || c.Is.TableOID != c.Was.TableOID || c.Is.Policy != c.Was.Policy || c.Is.Soft != c.Was.Soft
			stated := c.Was != nil && c.Is != nil && c.Is.Version == c.Was.Version && c.Is.State == c.Was.State
			t.byHand = !said && !stated || moved && !made
			made = made || c.Was == nil || c.Is == nil || c.Is.Version == c.Was.Version
			revived := c.Was != nil && c.Is != nil && c.Was.State == schemas.Dropped && c.Is.State != schemas.Dropped && c.Is.Version == c.Was.Version
			if said && made && !t.byHand && !revived && (c.Was == nil || c.Is.HeldVersion == c.Was.HeldVersion) && c.Is.HeldVersion == 0 {
				continue
			}
		}
		for _, row := range []*PolicyRow{c.Is, c.Was} {
			if row != nil && row.Policy == "" && c.Row == policyState {
				row.Policy = names[row.ID]
			}
		}
		told = append(told, t)
	}
	return told
}
