package audit_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/evidencetest"
	"lapse/replication"
)

// makeKept makes a table whose rows are set and not deleted, and one whose rows move between partitions, and publishes
// them as apply does for action: soft and for moves: detect.
func (r *rig) makeKept(t *testing.T) {
	t.Helper()
	r.db.Exec(t, `create table kept (id bigint primary key, gone boolean, note text)`,
		`create table placed (id bigint, place int, note text, primary key (id, place)) partition by list (place)`,
		`create table placed_1 partition of placed for values in (1)`, `create table placed_2 partition of placed for values in (2)`)
	conn := r.db.Connect(t)
	r.joins(t, conn, "kept", replication.JoinChanges)
	r.joins(t, conn, "placed", replication.JoinChanges)
	r.asksForMoves(t, "placed", 1, "detect")
	r.db.Exec(t, beatNow)
}

func keptKey(id int64) string { return rowKey("public.kept", fmt.Sprintf(`{"id":"%d"}`, id)) }

func placedKey(id int64) string {
	return rowKey("public.placed_1", fmt.Sprintf(`{"id":"%d","place":"1"}`, id))
}

// keep inserts rows of kept and placed, and updates them as an application does, which is nobody's event.
func (w *writer) keep(ctx context.Context, ids []int64) error {
	_, err := w.conn.Exec(ctx, `insert into kept select unnest($1::bigint[])`, ids)
	if err == nil {
		_, err = w.conn.Exec(ctx, `insert into placed select unnest($1::bigint[]), 1`, ids)
	}
	if err == nil {
		_, err = w.conn.Exec(ctx, `update kept set note = 'seen' where id = any ($1)`, ids)
	}
	return err
}

// setter sets rows of kept as a policy does that deletes none.
func setter(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		o := outcome{causes: map[string]string{}, verdict: "match", committed: `select gone is not null from kept where id = $1`}
		for _, id := range ids {
			o.causes[keptKey(id)] = "system"
		}
		claim, err := claimOf(ctx, tx)
		if err != nil {
			return o, err
		}
		claim.Cascades = []uint32{}
		if err := tx.QueryRow(ctx, `select 'kept'::regclass::oid`).Scan(&claim.Target); err != nil {
			return o, err
		}
		if err := writeClaim(ctx, tx, &claim, claim.MAC(evidencetest.TagKey), "soft"); err != nil {
			return o, err
		}
		if _, err := tx.Exec(ctx, `update kept set gone = true where id = any ($1)`, ids); err != nil {
			return o, err
		}
		return o, writeResult(ctx, tx, &claim, int64(len(ids)), 0)
	}
}

// mover moves rows of placed, and deletes every third.
func mover(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		o := outcome{causes: map[string]string{}, verdict: "unclaimed", committed: `select not exists (select from placed_1 where id = $1)`}
		var deleted []int64
		for i, id := range ids {
			if i%3 == 0 {
				deleted = append(deleted, id)
				o.causes[placedKey(id)] = "user"
			} else {
				o.causes[placedKey(id)] = "user, moved"
			}
		}
		_, err := tx.Exec(ctx, `delete from placed where id = any ($1)`, deleted)
		if err == nil {
			_, err = tx.Exec(ctx, `update placed set place = 2 where id = any ($1)`, ids)
		}
		return o, err
	}
}

// hashOf is what events have in place of a value that is not to be told.
func hashOf(value any) string {
	h := hmac.New(sha256.New, evidencetest.HashKey)
	fmt.Fprint(h, value)
	return "hmac-sha256:" + hex.EncodeToString(h.Sum(nil))
}

// hider deletes sessions under a policy whose events have hashes in place of keys.
func hider(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		o := outcome{causes: map[string]string{}, verdict: "match"}
		for _, id := range ids {
			o.causes[rowKey("public.sessions", fmt.Sprintf(`{"id":"%s"}`, hashOf(id)))] = "system"
			for n := range 2 {
				o.causes[rowKey("public.notes", fmt.Sprintf(`{"session":"%s","n":"%s"}`, hashOf(id), hashOf(n+1)))] = "system"
			}
		}
		claim, err := claimOf(ctx, tx)
		if err != nil {
			return o, err
		}
		if err := writeClaim(ctx, tx, &claim, claim.MAC(evidencetest.TagKey), "hashed"); err != nil {
			return o, err
		}
		if _, err := tx.Exec(ctx, deleteSessions, ids); err != nil {
			return o, err
		}
		return o, writeResult(ctx, tx, &claim, int64(len(ids)), int64(2*len(ids)))
	}
}

// dropper writes what the dropping function writes.
func dropper(ctx context.Context, tx pgx.Tx) (outcome, error) {
	claim, err := claimOf(ctx, tx)
	if err != nil {
		return outcome{}, err
	}
	return outcome{
		drops: 1, verdict: "match",
		committed: fmt.Sprintf(`select exists (select from lapse.dropped where batch = '%s') and $1::bigint is not null`, claim.Batch),
	}, writeDrop(ctx, tx, &claim, claim.DropMAC(evidencetest.TagKey))
}

// waverer deletes sessions, takes it back, and deletes all of them but the first.
func waverer(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		if _, err := tx.Exec(ctx, `savepoint s`); err != nil {
			return outcome{}, err
		}
		if _, err := user(ids)(ctx, tx); err != nil {
			return outcome{}, err
		}
		if _, err := tx.Exec(ctx, `rollback to s`); err != nil {
			return outcome{}, err
		}
		return user(ids[1:])(ctx, tx)
	}
}
