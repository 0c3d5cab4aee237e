package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/internal/evidencetest"
	"lapse/schemas"
)

// expected is what must be in the topics: each row's cause, by table and key, how often scratch was truncated, and how many
// partitions were dropped.
type expected struct {
	mu        sync.Mutex
	causes    map[string]string
	truncates int
	drops     int
	verdicts  map[string]int // transactions by verdict
}

func newExpected() *expected {
	return &expected{causes: map[string]string{}, verdicts: map[string]int{}}
}

// rowKey names a deleted row: its table and the record's key.
func rowKey(table, key string) string { return table + " " + key }

func sessionKey(id int64) string { return rowKey("public.sessions", fmt.Sprintf(`{"id":"%d"}`, id)) }

func elsewhereKey(id int64) string {
	return rowKey("public.elsewhere", fmt.Sprintf(`{"id":"%d"}`, id))
}

func noteKey(id int64, n int) string {
	return rowKey("public.notes", fmt.Sprintf(`{"session":"%d","n":"%d"}`, id, n))
}

// writer runs transactions over one connection and knows what must come of each. ids are its own.
type writer struct {
	conn *pgx.Conn
	next int64
}

// outcome is what a transaction must be seen as.
type outcome struct {
	causes    map[string]string
	truncates int
	drops     int
	verdict   string
	committed string // a query of one boolean that says whether it was committed, with a row's id; empty for one that deletes it
}

// transaction is what a transaction does, and what must come of it.
type transaction func(ctx context.Context, tx pgx.Tx) (outcome, error)

// commit runs a transaction and takes what must come of it into the books, if it committed.
func (w *writer) commit(ctx context.Context, e *expected, do transaction) error {
	var o outcome
	err := pgx.BeginFunc(ctx, w.conn, func(tx pgx.Tx) (err error) {
		o, err = do(ctx, tx)
		return err
	})
	if err == nil {
		e.add(o)
	}
	return err
}

func (e *expected) add(o outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.Copy(e.causes, o.causes)
	e.truncates += o.truncates
	e.drops += o.drops
	e.verdicts[o.verdict]++
}

// rows inserts sessions with two notes each and returns their ids.
func (w *writer) rows(ctx context.Context, n int) (ids []int64, err error) {
	for range n {
		w.next++
		ids = append(ids, w.next)
	}
	_, err = w.conn.Exec(ctx, `insert into sessions select unnest($1::bigint[])`, ids)
	if err == nil {
		_, err = w.conn.Exec(ctx, `insert into notes select id, n from unnest($1::bigint[]) id, generate_series(1, 2) n`, ids)
	}
	if err == nil {
		_, err = w.conn.Exec(ctx, `insert into elsewhere select unnest($1::bigint[])`, ids)
	}
	return ids, err
}

func causesOf(ids []int64, cause string) map[string]string {
	causes := map[string]string{}
	for _, id := range ids {
		causes[sessionKey(id)] = cause
		for n := range 2 {
			causes[noteKey(id, n+1)] = cause
		}
	}
	return causes
}

const deleteSessions = `delete from sessions where id = any ($1)`

// user deletes sessions, and their notes by cascade.
func user(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		_, err := tx.Exec(ctx, deleteSessions, ids)
		return outcome{causes: causesOf(ids, "user"), verdict: "unclaimed"}, err
	}
}

// forger emits the tag before its own delete.
func forger(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		_, err := tx.Exec(ctx, `select pg_logical_emit_message(true, 'lapse', $1)`,
			`{"transaction_tag": "RowDeletionPolicy", "is_system_transaction": true}`)
		if err != nil {
			return outcome{}, err
		}
		return user(ids)(ctx, tx)
	}
}

// emptier truncates scratch.
func emptier(ctx context.Context, tx pgx.Tx) (outcome, error) {
	_, err := tx.Exec(ctx, `truncate scratch`)
	return outcome{
		truncates: 1, verdict: "unclaimed", committed: `select not exists (select from scratch where id > 0 and $1::bigint is not null)`,
	}, err
}

// batch deletes sessions as the deletion function does; fix changes the claim after it was signed.
func batch(ids []int64, fix func(*schemas.Claim)) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		claim, err := claimOf(ctx, tx)
		if err != nil {
			return outcome{}, err
		}
		mac := claim.MAC(evidencetest.TagKey)
		o := outcome{causes: causesOf(ids, "system"), verdict: "match"}
		if fix != nil {
			fix(&claim)
			o = outcome{causes: causesOf(ids, "unverified"), verdict: "unclaimed"}
		}
		if err := writeClaim(ctx, tx, &claim, mac); err != nil {
			return o, err
		}
		if _, err := tx.Exec(ctx, deleteSessions, ids); err != nil {
			return o, err
		}
		return o, writeResult(ctx, tx, &claim, int64(len(ids)), int64(2*len(ids)))
	}
}

// intruder deletes elsewhere within a true batch, and once more after its result.
func intruder(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		o, err := batch(ids[1:], nil)(ctx, tx)
		if err != nil {
			return o, err
		}
		maps.Copy(o.causes, causesOf(ids[:1], "unverified"))
		o.causes[elsewhereKey(ids[0])] = "unverified"
		o.verdict = "mismatch"
		if _, err = tx.Exec(ctx, `delete from elsewhere where id = $1`, ids[0]); err == nil {
			_, err = tx.Exec(ctx, deleteSessions, ids[:1])
		}
		return o, err
	}
}

// latecomer writes a true batch row after a delete of its own.
func latecomer(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		o, err := user(ids[:1])(ctx, tx)
		if err != nil {
			return o, err
		}
		late, err := batch(ids[1:], nil)(ctx, tx)
		for key := range late.causes {
			o.causes[key] = "unverified"
		}
		return o, err
	}
}

// testFunctions is the digest of what runs in the tests' batches.
var testFunctions = schemas.DigestOf(schemas.Function{Name: "lapse.delete_1_3", Body: "what runs in the tests"})

// claimOf is a true claim of this transaction.
func claimOf(ctx context.Context, tx pgx.Tx) (c schemas.Claim, err error) {
	var notes uint32
	var system int64
	err = tx.QueryRow(ctx, `
		select (select system_identifier from pg_control_system()), d.oid, pg_current_xact_id()::text::bigint, now(),
		       'sessions'::regclass::oid, 'notes'::regclass::oid, (select max(number) from lapse.history), lapse.timeline()
		  from pg_database d where d.datname = current_database()`).
		Scan(&system, &c.DatabaseOID, &c.XID, &c.StartedAt, &c.Target, &notes, &c.History, &c.Timeline)
	c.SystemIdentifier = uint64(system)
	c.StartedAt = c.StartedAt.UTC()
	c.Batch, c.Run = uuid.New(), uuid.New()
	c.PolicyID, c.Policy, c.PolicyVersion = 1, "sessions-30d", 3
	c.Cutoff = c.StartedAt.Add(-time.Second)
	c.Cascades = []uint32{notes}
	c.Functions = testFunctions
	return c, err
}

// writeClaim writes a batch's row, in which flags are true.
func writeClaim(ctx context.Context, tx pgx.Tx, c *schemas.Claim, mac []byte, flags ...string) error {
	columns, values := "", ""
	for _, flag := range flags {
		columns, values = columns+", "+flag, values+", true"
	}
	_, err := tx.Exec(ctx, fmt.Sprintf(`
		insert into lapse.batch (batch, policy_id, policy, policy_version, run, cutoff, hold_version, target, cascades,
		                         functions, system_identifier, database_oid, history, timeline, xid, started_at, mac%s)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15::text::xid8, $16, $17%s)`, columns, values),
		c.Batch, c.PolicyID, c.Policy, c.PolicyVersion, c.Run, c.Cutoff, c.HoldVersion, c.Target, c.Cascades,
		c.Functions[:], fmt.Sprint(c.SystemIdentifier), c.DatabaseOID, c.History, c.Timeline, fmt.Sprint(c.XID), c.StartedAt, mac)
	return err
}

func writeResult(ctx context.Context, tx pgx.Tx, c *schemas.Claim, deleted, cascaded int64) error {
	counts := map[string]int64{fmt.Sprint(c.Target): deleted}
	if cascaded > 0 {
		counts[fmt.Sprint(c.Cascades[0])] = cascaded
	}
	text, err := json.Marshal(counts)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into lapse.batch_result (batch, picked, deleted, by_relation) values ($1, $2, $2, $3)`,
		c.Batch, deleted, strings.TrimSpace(string(text)))
	return err
}
