package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit"
	"lapse/internal/evidencetest"
	"lapse/schemas"
)

// writeDrop writes the row of a partition that is dropped, as the dropping function does.
func writeDrop(ctx context.Context, tx pgx.Tx, c *schemas.Claim, mac []byte) error {
	_, err := tx.Exec(ctx, `
		insert into lapse.dropped (batch, policy_id, policy, policy_version, run, cutoff, hold_version, target, cascades, functions, system_identifier,
		                           database_oid, history, timeline, xid, started_at, mac, relation, root, rows, oldest, newest)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15::text::xid8, $16, $17, 'public.part', 'public.whole', 7, '2026-01-01Z', '2026-01-31Z')`,
		c.Batch, c.PolicyID, c.Policy, c.PolicyVersion, c.Run, c.Cutoff, c.HoldVersion, c.Target, c.Cascades,
		c.Functions[:], fmt.Sprint(c.SystemIdentifier), c.DatabaseOID, c.History, c.Timeline, fmt.Sprint(c.XID), c.StartedAt, mac)
	return err
}

// dropped is what a transaction does that writes a drop signed as sign says, and deletes a session after it.
func dropped(sign func(*schemas.Claim) []byte) func(ctx context.Context, tx pgx.Tx, id int64) error {
	return func(ctx context.Context, tx pgx.Tx, id int64) error {
		claim, err := claimOf(ctx, tx)
		if err != nil {
			return err
		}
		if err := writeDrop(ctx, tx, &claim, sign(&claim)); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `delete from elsewhere where id = $1`, id)
		return err
	}
}

// copiedDrop inserts a row that is in lapse.dropped again, in place of the former.
func copiedDrop(row string, changes string) func(ctx context.Context, tx pgx.Tx, id int64) error {
	return func(ctx context.Context, tx pgx.Tx, id int64) error {
		for _, sql := range []string{
			unforced, `create temp table copy on commit drop as ` + row, `delete from lapse.dropped d using copy where d.batch = copy.batch`, forced,
			`update copy set ` + changes, `insert into lapse.dropped select * from copy`, fmt.Sprintf(`delete from elsewhere where id = %d`, id),
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	}
}

// A superuser may write any row into the ledger of drops. None is a policy's without the key.
func TestNoForgedDropIsAPolicys(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		byTag := func(c *schemas.Claim) []byte { return c.DropMAC(evidencetest.TagKey) }
		aborted := errors.New("rolled back")
		var claim schemas.Claim
		rolledBack := pgx.BeginFunc(t.Context(), w.conn, func(tx pgx.Tx) (err error) {
			if claim, err = claimOf(t.Context(), tx); err == nil {
				err = writeDrop(t.Context(), tx, &claim, byTag(&claim))
			}
			return errors.Join(err, aborted)
		})
		if !errors.Is(rolledBack, aborted) {
			t.Fatal(rolledBack)
		}
		const this = `xid = pg_current_xact_id(), started_at = now()`
		var unverified []int64
		commit := func(name string, do func(ctx context.Context, tx pgx.Tx, id int64) error) {
			t.Helper()
			ids, err := w.rows(t.Context(), 1)
			if err == nil {
				err = pgx.BeginFunc(t.Context(), w.conn, func(tx pgx.Tx) error { return do(t.Context(), tx, ids[0]) })
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			t.Logf("elsewhere %d: %s", ids[0], name)
			unverified = append(unverified, ids[0])
		}
		commit("a true drop, and a delete after it", dropped(byTag))
		const row = `select * from lapse.dropped order by dropped_at limit 1`
		commit("a row without the key", dropped(func(*schemas.Claim) []byte { return make([]byte, 32) }))
		commit("a row that is signed as a batch", dropped(func(c *schemas.Claim) []byte { return c.MAC(evidencetest.TagKey) }))
		commit("a committed row again", copiedDrop(row, `rows = 8`))
		commit("a committed row, made to be of this transaction", copiedDrop(row, this))
		commit("a rolled-back row", func(ctx context.Context, tx pgx.Tx, id int64) error {
			err := writeDrop(ctx, tx, &claim, byTag(&claim))
			if err == nil {
				_, err = tx.Exec(ctx, `delete from elsewhere where id = $1`, id)
			}
			return err
		})
		commit("a true row after a delete", func(ctx context.Context, tx pgx.Tx, id int64) error {
			if _, err := tx.Exec(ctx, `insert into scratch values (1); delete from scratch`); err != nil {
				return err
			}
			return dropped(byTag)(ctx, tx, id)
		})
		commit("a true row of another history", dropped(func(c *schemas.Claim) []byte { c.History++; return byTag(c) }))
		commit("a true row after a batch", func(ctx context.Context, tx pgx.Tx, id int64) error {
			batch, err := claimOf(ctx, tx)
			if err == nil {
				err = writeClaim(ctx, tx, &batch, batch.MAC(evidencetest.TagKey))
			}
			if err != nil {
				return err
			}
			return dropped(byTag)(ctx, tx, id)
		})
		metrics := audit.NewMetrics()
		var alarms []string
		r.once(t, func(c *audit.Config) {
			c.Metrics = metrics
			c.OnAlarm(func(_ context.Context, reason string) error { alarms = append(alarms, reason); return nil })
		})
		var drops []string
		for _, record := range r.read(t, r.settings.System) {
			drops = append(drops, fmt.Sprint(record.Partition, " ", record.Header("lapse-op"), " ", record.Header("lapse-table"), " ", record.Header("lapse-policy")))
		}
		if slices.Sort(drops); !slices.Equal(drops, []string{"0 drop public.part sessions-30d", "1 drop public.part sessions-30d", "2 drop public.part sessions-30d"}) {
			t.Errorf("the system topic has %q", drops)
		}
		causes := map[string]string{}
		for _, record := range r.read(t, r.settings.User) {
			causes[rowKey(record.Header("lapse-table"), string(record.Key))] = record.Header("lapse-cause") + " " + record.Header("lapse-op")
		}
		for _, id := range unverified {
			if got := causes[elsewhereKey(id)]; got != "unverified delete" {
				t.Errorf("what was deleted after row %d is %q", id, got)
			}
		}
		r.dropRecorded(t)
		if got := gather(t, metrics); got["lapse_transactions_unverified_total"] != float64(len(unverified)) || got["lapse_own_batches_unverified_total"] != float64(len(alarms)) || len(alarms) != 3 {
			t.Errorf("%v, and %d alarms", got, len(alarms))
		}
	})
}

// dropRecorded wants the log to have one record of a drop, after that of its transaction.
func (r *rig) dropRecorded(t *testing.T) {
	t.Helper()
	former, found := "", 0
	for _, record := range r.read(t, r.settings.Log) {
		var l struct {
			Kind, Table, Root string
			Rows              json.RawMessage
			Oldest, Newest    time.Time
		}
		if err := json.Unmarshal(record.Value, &l); err != nil {
			t.Fatal(err)
		}
		if l.Kind == "drop" {
			found++
			if err := evidencetest.Schema(t, "log-drop").Validate(evidencetest.ParseJSON(t, record.Value)); err != nil {
				t.Error(err)
			}
			if got := fmt.Sprint(former, " ", l.Table, " ", l.Root, " ", string(l.Rows), " ", l.Newest.Sub(l.Oldest)); got != "transaction public.part public.whole 7 720h0m0s" {
				t.Errorf("the log has a drop: %s", got)
			}
		}
		former = l.Kind
	}
	if found != 1 {
		t.Errorf("the log has %d drops", found)
	}
}
