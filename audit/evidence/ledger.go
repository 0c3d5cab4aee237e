package evidence

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// A policy's name that is longer was not written by a deletion function.
const maxPolicyName = 1 << 10

// claimColumns are the columns of lapse.batch that a claim is made of. Others, of a later catalog, are passed over: a
// claim with more fields has another format and another MAC.
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

// softColumn says of a batch that it sets a column. It is in no claim: with the right claim before it, an update is never the
// system's by another word than that of the function that wrote the row.
const softColumn = "soft"

// hashedColumn says of a batch that its events have hashes in place of keys. It is in no claim either: without it the same
// events have the keys.
const hashedColumn = "hashed"

// valuesColumn names the columns that a batch's events have as values ("events: values: columns"), dueColumn says how the auditor finds
// out whether a row was due ("evidence: due"). Neither is in the claim: without them the events have keys, and no judgement.
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

// parseDue reads dueColumn; nil if there is none. By one that cannot be read nothing can be judged, and it says so of each row.
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

// parseClaim reads a row of lapse.batch. ok is false when a column is missing, NULL or not what its type writes. The
// row's writer may be anybody with the right to insert, so nothing of what is wrong is told.
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

// identityColumns are the columns of lapse.batch that the deletion functions compare with the transaction that they run in
// (lapse.enter), and the batch's name. What else is in a claim is what the executor's login says.
var identityColumns = []string{"database_oid", "xid", "started_at", "batch"}

// parseIdentity reads what names the transaction in a row of lapse.batch, whatever else is in it: a claim of another format
// has the same columns for it.
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

// parseBatch reads the batch's name in a row of lapse.batch_result.
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

// Result is what a batch says it did: the row of lapse.batch_result.
type Result struct {
	Batch      uuid.UUID
	Picked     int64
	Deleted    int64
	ByRelation []RelationCount // ascending by OID
}

// RelationCount is a number of rows that left one relation.
type RelationCount struct {
	OID  uint32
	Rows int64
}

// parseResult reads a row of lapse.batch_result; nil when it cannot be read.
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
