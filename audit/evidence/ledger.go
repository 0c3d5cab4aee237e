package evidence

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// A longer policy name was not written by a deletion function.
const maxPolicyName = 1 << 10

// claimColumns are the columns of lapse.batch that form a claim. Other columns, of a later catalog, are ignored: a claim with more fields
// has another format and another MAC.
var claimColumns = map[string]func(*schemas.Claim, string) bool{
	"system_identifier": func(c *schemas.Claim, s string) bool { return parseUint(s, 64, &c.SystemIdentifier) },
	"database_oid":      func(c *schemas.Claim, s string) bool { return parseUint32(s, &c.DatabaseOID) },
	"history":           func(c *schemas.Claim, s string) bool { return parseUint32(s, &c.History) },
	"timeline":          func(c *schemas.Claim, s string) bool { return parseUint32(s, &c.Timeline) },
	"xid":               func(c *schemas.Claim, s string) bool { return parseUint(s, 64, &c.XID) },
	"started_at":        func(c *schemas.Claim, s string) bool { return parseInstant(s, &c.StartedAt) },
	"batch":             func(c *schemas.Claim, s string) bool { return parseUUID(s, &c.Batch) },
	"policy_id":         func(c *schemas.Claim, s string) bool { return parseInt32(s, &c.PolicyID) },
	"policy": func(c *schemas.Claim, s string) bool {
		c.Policy = schemas.PolicyName(s)
		return len(s) <= maxPolicyName
	},
	"policy_version": func(c *schemas.Claim, s string) bool { return parseInt32(s, &c.PolicyVersion) },
	"run":            func(c *schemas.Claim, s string) bool { return parseUUID(s, &c.Run) },
	"cutoff":         func(c *schemas.Claim, s string) bool { return parseInstant(s, &c.Cutoff) },
	"hold_version":   func(c *schemas.Claim, s string) bool { return parseInt64(s, &c.HoldVersion) },
	"target":         func(c *schemas.Claim, s string) bool { return parseUint32(s, &c.Target) },
	"cascades":       func(c *schemas.Claim, s string) bool { return parseOIDs(s, &c.Cascades) },
	"functions":      func(c *schemas.Claim, s string) bool { return parseDigest(s, &c.Functions) },
}

const macColumn = "mac"

// softColumn says that a batch sets a column. It is in no claim: together with a claim for deleting, an update still is the system's only
// if the function that wrote the row says so.
const softColumn = "soft"

// hashedColumn says that a batch's events have hashes instead of keys. It is in no claim either: without it the same events have the keys.
const hashedColumn = "hashed"

// valuesColumn names the columns that a batch's events have as values ("events: values: columns"), dueColumn says how the auditor judges
// whether a row was due ("evidence: due"). Neither is in the claim: without them the events have keys, and no judgement.
const (
	valuesColumn = "told"
	dueColumn    = "due"
)

// parseFlag reads softColumn or hashedColumn.
func parseFlag(change *replication.Change, name string) bool {
	text, sent := ledgerText(change, name)
	return sent && text == "t"
}

// parseValues reads valuesColumn; nil if there is none.
func parseValues(change *replication.Change) (columns []string) {
	text, sent := ledgerText(change, valuesColumn)
	if !sent || json.Unmarshal([]byte(text), &columns) != nil {
		return nil
	}
	return columns
}

// parseDue reads dueColumn; nil if there is none. With one that cannot be read, every row's judgement is CannotTell.
func parseDue(change *replication.Change) *schemas.Due {
	text, sent := ledgerText(change, dueColumn)
	if !sent {
		return nil
	}
	due, err := schemas.ParseDue([]byte(text))
	if err != nil {
		return &schemas.Due{}
	}
	return due
}

// ledgerText is a column of a ledger row that may be null.
func ledgerText(change *replication.Change, name string) (text string, sent bool) {
	for i, column := range change.Relation.Columns {
		if column.Name == name {
			return textOf(change.New, i)
		}
	}
	return "", false
}

// parseClaim reads a row of lapse.batch. ok is false if a column is missing, NULL or not in its type's form. Anyone with the right to
// insert may have written the row, so it does not report what is wrong.
func parseClaim(change *replication.Change, claim *schemas.Claim) (mac []byte, ok bool) {
	*claim = schemas.Claim{}
	found := 0
	for i, column := range change.Relation.Columns {
		read, wanted := claimColumns[column.Name]
		if !wanted && column.Name != macColumn {
			continue
		}
		text, sent := textOf(change.New, i)
		if !sent {
			return nil, false
		}
		if column.Name == macColumn {
			if mac, ok = parseBytes(text); !ok {
				return nil, false
			}
		} else if !read(claim, text) {
			return nil, false
		}
		found++
	}
	return mac, found == len(claimColumns)+1
}

// identityColumns are the columns of lapse.batch that the deletion functions compare with their own transaction (lapse.enter), and the
// batch's id. The other parts of a claim are the word of the executor's login.
var identityColumns = []string{"database_oid", "xid", "started_at", "batch"}

// parseIdentity reads the columns that name the transaction in a row of lapse.batch, whatever else the row contains: a claim of another
// format has the same columns for it.
func parseIdentity(change *replication.Change, claim *schemas.Claim) bool {
	*claim = schemas.Claim{}
	found := 0
	for i, column := range change.Relation.Columns {
		if !slices.Contains(identityColumns, column.Name) {
			continue
		}
		text, sent := textOf(change.New, i)
		if !sent || !claimColumns[column.Name](claim, text) {
			return false
		}
		found++
	}
	return found == len(identityColumns)
}

// parseBatch reads the batch's id in a row of lapse.batch_result.
func parseBatch(change *replication.Change) (batch uuid.UUID, ok bool) {
	for i, column := range change.Relation.Columns {
		if column.Name == "batch" {
			text, sent := textOf(change.New, i)
			ok = sent && parseUUID(text, &batch)
			return batch, ok
		}
	}
	return batch, false
}

// Result is what a batch says that it did: the row of lapse.batch_result.
type Result struct {
	Batch      uuid.UUID
	Picked     int64
	Deleted    int64
	ByRelation []RelationCount // ascending by OID
}

// RelationCount is a number of rows that were deleted from one relation.
type RelationCount struct {
	OID  uint32
	Rows int64
}

// parseResult reads a row of lapse.batch_result; nil if it cannot be read.
func parseResult(change *replication.Change) *Result {
	var r Result
	found := 0
	for i, column := range change.Relation.Columns {
		text, sent := textOf(change.New, i)
		var ok bool
		switch column.Name {
		case "batch":
			ok = parseUUID(text, &r.Batch)
		case "picked":
			ok = parseInt64(text, &r.Picked) && r.Picked >= 0
		case "deleted":
			ok = parseInt64(text, &r.Deleted) && r.Deleted >= 0
		case "by_relation":
			ok = parseCounts(text, &r.ByRelation)
		default:
			continue
		}
		if !sent || !ok {
			return nil
		}
		found++
	}
	if found != 4 {
		return nil
	}
	return &r
}

// parseCounts reads {"16390": 5, …}.
func parseCounts(s string, to *[]RelationCount) bool {
	var byOID map[string]int64
	if json.Unmarshal([]byte(s), &byOID) != nil || byOID == nil {
		return false
	}
	counts := make([]RelationCount, 0, len(byOID))
	for text, rows := range byOID {
		var oid uint32
		if !parseUint32(text, &oid) || rows < 0 {
			return false
		}
		counts = append(counts, RelationCount{OID: oid, Rows: rows})
	}
	slices.SortFunc(counts, func(a, b RelationCount) int { return compareOIDs(a.OID, b.OID) })
	*to = counts
	return true
}

func compareOIDs(a, b uint32) int { return cmp.Compare(a, b) }
