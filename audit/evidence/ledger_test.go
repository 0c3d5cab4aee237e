package evidence_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// The relations of the tests, as the WAL would describe them.
var (
	batchRelation = relation(16100, "lapse", "batch", "batch*", "policy_id", "policy", "policy_version", "run", "cutoff",
		"hold_version", "target", "cascades", "functions", "system_identifier", "database_oid", "history",
		"timeline", "xid", "started_at", "mac")
	resultRelation = relation(16110, "lapse", "batch_result", "batch*", "picked", "deleted", "by_relation", "finished_at")
	stateRelation  = relation(16120, "lapse", "policy_state", "policy_id", "version", "state")
	beatRelation   = relation(16130, "lapse", "heartbeat", "id*", "at")
	target         = numbered(relation(16390, "public", "sessions", "id*", "last_seen"))
	child          = relation(16400, "public", "session_notes", "session_id*", "note_no*", "text")
	stranger       = relation(16500, "shop", "Orders \"old\"", "id*")
)

// relation describes a table; a name that ends with * is part of the replica identity.
func relation(oid uint32, schema, name string, columns ...string) *replication.Relation {
	r := &replication.Relation{OID: oid, Schema: schema, Name: name, ReplicaIdentity: 'd'}
	for _, c := range columns {
		plain, key := strings.CutSuffix(c, "*")
		r.Columns = append(r.Columns, replication.Column{Name: plain, TypeOID: 25, TypeMod: -1, Key: key})
	}
	return r
}

// numbered makes the first column a bigint.
func numbered(r *replication.Relation) *replication.Relation {
	r.Columns[0].TypeOID = 20
	return r
}

// row makes values; nil is NULL.
func row(values ...any) []replication.Value {
	var out []replication.Value
	for _, v := range values {
		if v == nil {
			out = append(out, replication.Value{Kind: replication.Null})
			continue
		}
		out = append(out, replication.Value{Kind: replication.Text, Bytes: fmt.Append(nil, v)})
	}
	return out
}

func insert(r *replication.Relation, values []replication.Value) *replication.Change {
	return &replication.Change{Op: replication.OpInsert, Relation: r, New: values}
}

func del(r *replication.Relation, keys ...any) *replication.Change {
	old := make([]replication.Value, len(r.Columns))
	for i := range old {
		old[i].Kind = replication.Unsent
		if r.Columns[i].Key && len(keys) > 0 {
			old[i] = row(keys[0])[0]
			keys = keys[1:]
		}
	}
	return &replication.Change{Op: replication.OpDelete, Relation: r, Old: old, OldIsKey: true}
}

func truncate(r *replication.Relation) *replication.Change {
	return &replication.Change{Op: replication.OpTruncate, Relation: r}
}

var (
	source = evidence.Source{
		SystemIdentifier: 7381000000000000001, DatabaseOID: 16384, Database: "app", Encoding: "UTF8", Slot: "lapse_app",
	}
	commitTime = time.Date(2026, 11, 21, 10, 15, 30, 123456000, time.UTC)
)

func exampleTx() *replication.Tx {
	return &replication.Tx{XID: 745, CommitLSN: 0x19C2A40, CommitTime: commitTime, History: 1, Timeline: 1, EndLSN: 0x19C2A78}
}

func exampleClaim() schemas.Claim {
	return schemas.Claim{
		SystemIdentifier: source.SystemIdentifier, DatabaseOID: source.DatabaseOID, History: 1, Timeline: 1, XID: 3<<32 | 745,
		StartedAt: commitTime.Add(-20 * time.Millisecond), Batch: uuid.MustParse("0198f1d0-0000-7000-8000-000000000001"),
		PolicyID: 1, Policy: "sessions-30d", PolicyVersion: 3, Run: uuid.MustParse("0198f1d0-0000-7000-8000-000000000002"),
		Cutoff: commitTime.Truncate(time.Second), HoldVersion: 5, Target: target.OID, Cascades: []uint32{child.OID, 16410},
		Functions: sha256.Sum256([]byte("what runs in the example")),
	}
}

// batchRow is the row of lapse.batch that PostgreSQL writes for a claim and a MAC.
func batchRow(c schemas.Claim, mac []byte) *replication.Change {
	const instant = "2006-01-02 15:04:05.999999-07"
	return insert(batchRelation, row(c.Batch, c.PolicyID, c.Policy, c.PolicyVersion, c.Run, c.Cutoff.Format(instant),
		c.HoldVersion, c.Target, oidArray(c.Cascades), `\x`+hex.EncodeToString(c.Functions[:]), c.SystemIdentifier, c.DatabaseOID,
		c.History, c.Timeline, c.XID, c.StartedAt.Format(instant), `\x`+hex.EncodeToString(mac)))
}

func oidArray(oids []uint32) string {
	texts := make([]string, len(oids))
	for i, oid := range oids {
		texts[i] = strconv.FormatUint(uint64(oid), 10)
	}
	return "{" + strings.Join(texts, ",") + "}"
}

func signed(c schemas.Claim) *replication.Change { return batchRow(c, c.MAC(evidencetest.TagKey)) }

// resultRow is the row of lapse.batch_result for a batch that deleted counts, target first.
func resultRow(c schemas.Claim, counts ...int64) *replication.Change {
	relations := append([]uint32{c.Target}, c.Cascades...)
	var members []string
	for i, n := range counts {
		if n > 0 {
			members = append(members, fmt.Sprintf("%q: %d", strconv.FormatUint(uint64(relations[i]), 10), n))
		}
	}
	var deleted int64
	if len(counts) > 0 {
		deleted = counts[0]
	}
	return insert(resultRelation, row(c.Batch, deleted, deleted, "{"+strings.Join(members, ", ")+"}",
		"2026-11-21 10:15:30.1+00"))
}
