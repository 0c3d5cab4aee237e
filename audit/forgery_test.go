package audit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/audit"
	"lapse/internal/evidencetest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// said is the tag as a deletion function writes it into the WAL. Any login can write it too.
const said = `select pg_logical_emit_message(true, 'lapse', '{"transaction_tag":"RowDeletionPolicy","is_system_transaction":true,"policy":"sessions-30d"}')`

// scripted deletes as a user who runs statements around it; DELETE stands for the deletion.
func scripted(cause string, statements ...string) func([]int64) transaction {
	return func(ids []int64) transaction {
		return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
			for _, sql := range statements {
				if sql == "DELETE" {
					sql = fmt.Sprintf(`delete from sessions where id = any ('%s')`, strings.NewReplacer("[", "{", "]", "}", " ", ",").Replace(fmt.Sprint(ids)))
				}
				if _, err := tx.Exec(ctx, sql); err != nil {
					return outcome{}, fmt.Errorf("%s: %w", sql, err)
				}
			}
			return outcome{causes: causesOf(ids, cause), verdict: "unclaimed"}, nil
		}
	}
}

// unforced is what a superuser does who lets no trigger of the ledger stop him.
const unforced, forced = `set local session_replication_role = replica`, `set local session_replication_role = origin`

// copied inserts a row of the ledger again, in place of the former, with changes.
func copied(row string, changes ...string) []string {
	statements := []string{
		unforced, `create temp table copy on commit drop as ` + row,
		`delete from lapse.batch b using copy where b.batch = copy.batch`, forced,
	}
	for _, change := range changes {
		statements = append(statements, `update copy set `+change)
	}
	return append(statements, `insert into lapse.batch select * from copy`)
}

// signedFor is a batch whose claim names something else than this transaction, truly signed: a clone's, or a former history's.
func signedFor(fix func(*schemas.Claim)) func([]int64) transaction {
	return func(ids []int64) transaction {
		return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
			claim, err := claimOf(ctx, tx)
			if err != nil {
				return outcome{}, err
			}
			fix(&claim)
			if err := writeClaim(ctx, tx, &claim, claim.MAC(evidencetest.TagKey)); err != nil {
				return outcome{}, err
			}
			_, err = tx.Exec(ctx, deleteSessions, ids)
			return outcome{causes: causesOf(ids, "unverified"), verdict: "unclaimed"}, err
		}
	}
}

// rolledBack is a true batch that was rolled back, and its row inserted in the next transaction.
func rolledBack(t *testing.T, w *writer, fix func(*schemas.Claim)) func([]int64) transaction {
	var claim schemas.Claim
	aborted := errors.New("rolled back")
	err := pgx.BeginFunc(t.Context(), w.conn, func(tx pgx.Tx) (err error) {
		if claim, err = claimOf(t.Context(), tx); err == nil {
			err = writeClaim(t.Context(), tx, &claim, claim.MAC(evidencetest.TagKey))
		}
		return errors.Join(err, aborted)
	})
	if !errors.Is(err, aborted) {
		t.Fatal(err)
	}
	mac := claim.MAC(evidencetest.TagKey)
	return func(ids []int64) transaction {
		return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
			here, err := claimOf(ctx, tx)
			if err != nil {
				return outcome{}, err
			}
			if claim.XID == here.XID {
				return outcome{}, errors.New("the transaction id was given out again")
			}
			if fix != nil {
				fix(&here)
				claim.XID = here.XID
			}
			if err := writeClaim(ctx, tx, &claim, mac); err != nil {
				return outcome{}, err
			}
			_, err = tx.Exec(ctx, deleteSessions, ids)
			return outcome{causes: causesOf(ids, "unverified"), verdict: "unclaimed"}, err
		}
	}
}

// triggered is a true batch in which a trigger of the table's acts, with more rights than any trigger of an owner's has.
func triggered(when, act string, instead func(ids []int64) map[string]string) func([]int64) transaction {
	return func(ids []int64) transaction {
		return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
			_, err := tx.Exec(ctx, fmt.Sprintf(`
				create function public.act() returns trigger language plpgsql as $f$ begin if old.id = %d then %s; end if; return old; end $f$;
				create trigger "Act" %s delete on sessions for each row execute function public.act()`, ids[0], act, when))
			if err != nil {
				return outcome{}, err
			}
			o, err := batch(ids, nil)(ctx, tx)
			if err == nil {
				_, err = tx.Exec(ctx, `drop trigger "Act" on sessions; drop function public.act()`)
			}
			maps.Copy(o.causes, instead(ids))
			o.verdict = "mismatch"
			return o, err
		}
	}
}

// again writes the batch's own row a second time, under another name.
const again = `insert into lapse.batch select (jsonb_populate_record(b, jsonb_build_object('batch', gen_random_uuid()))).*
	from lapse.batch b where b.xid = pg_current_xact_id()`

// notesOf are the rows that go with sessions by cascade.
func notesOf(ids []int64, cause string) map[string]string {
	causes := causesOf(ids, cause)
	for _, id := range ids {
		delete(causes, sessionKey(id))
	}
	return causes
}

// Whatever somebody writes into the WAL or the ledger, without the key no deletion of theirs is the system's. Each kind is
// counted for what it is.
func TestNoForgeryIsTheSystems(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		unverified := 0.0
		commit := func(name string, kind func([]int64) transaction) {
			t.Helper()
			ids, err := w.rows(t.Context(), 3)
			if err == nil {
				err = w.commit(t.Context(), want, func(ctx context.Context, tx pgx.Tx) (outcome, error) {
					o, err := kind(ids)(ctx, tx)
					if slices.Contains(slices.Collect(maps.Values(o.causes)), "unverified") {
						unverified++
					}
					return o, err
				})
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			t.Logf("sessions %d: %s", ids, name)
		}
		const thisOne = `xid = pg_current_xact_id()`
		commit("a true batch", system)
		committed := fmt.Sprintf(`select * from lapse.batch where batch = '%s'`, lastBatches(t, w.conn, 1)[0])
		for _, forgery := range []struct {
			name string
			kind func([]int64) transaction
		}{
			{"the tag before", scripted("user", said, "DELETE")},
			{"the tag last", scripted("user", "DELETE", said)},
			{"the tag twice", scripted("user", said, "DELETE", said)},
			{"the tag in a savepoint", scripted("user", `savepoint s`, said, "DELETE", `release s`)},
			{"the tag in a savepoint that is rolled back", scripted("user", `savepoint s`, said, `rollback to s`, "DELETE")},
			{"the tag without a transaction", scripted("user", strings.Replace(said, "true", "false", 1), "DELETE")},
			{"a result without a batch", scripted("user",
				`insert into lapse.batch_result (batch, picked, deleted, by_relation) values (gen_random_uuid(), 3, 3, '{}')`, "DELETE")},
			{"a row without the key", byHand},
			{"a row and a result without the key", foreign},
			{"a committed batch's row", scripted("unverified", append(copied(committed), "DELETE")...)},
			{"a committed batch's row, made to be of this transaction", scripted("unverified", append(copied(committed, thisOne), "DELETE")...)},
			{"the same with a name of its own", scripted("unverified", append(copied(committed, thisOne, `batch = gen_random_uuid(), started_at = now()`), "DELETE")...)},
			{"a rolled-back batch's row", rolledBack(t, w, nil)},
			{"a rolled-back batch's row, made to be of this transaction", rolledBack(t, w, func(*schemas.Claim) {})},
			{"a batch of another history", signedFor(func(c *schemas.Claim) { c.History++ })},
			{"a batch of another timeline", signedFor(func(c *schemas.Claim) { c.Timeline++ })},
			{"a batch of another database", signedFor(func(c *schemas.Claim) { c.DatabaseOID++ })},
			{"a batch of another system", signedFor(func(c *schemas.Claim) { c.SystemIdentifier++ })},
			{"a true batch after a delete", latecomer},
			{"a delete after a true batch", intruder},
			{"a trigger that deletes elsewhere", triggered("before", `delete from elsewhere where id = old.id`, func(ids []int64) map[string]string {
				return map[string]string{elsewhereKey(ids[0]): "unverified"}
			})},
			{"a trigger that writes a row before the first delete", triggered("before", again, func(ids []int64) map[string]string {
				return causesOf(ids, "unverified")
			})},
			{"a trigger that writes a row after the deletes", triggered("after", again, func(ids []int64) map[string]string {
				return notesOf(ids, "unverified")
			})},
			{"a trigger that writes a result", triggered("after", `insert into lapse.batch_result (batch, picked, deleted, by_relation)
				values (gen_random_uuid(), 3, 3, '{}')`, func(ids []int64) map[string]string { return notesOf(ids, "unverified") })},
		} {
			commit(forgery.name, forgery.kind)
		}
		users, origin := r.subscriber(t, w, commit)
		commit("a true batch at last", system)
		metrics := audit.NewMetrics()
		r.once(t, func(c *audit.Config) { c.Metrics = metrics })
		r.verify(t, want)
		r.cameFrom(t, origin, users)
		counted := gather(t, metrics)
		for name, n := range map[string]float64{
			"lapse_transactions_unverified_total": unverified, "lapse_reconciliation_mismatches_total": float64(want.verdicts["mismatch"]), "lapse_own_batches_unverified_total": 1,
		} {
			if counted[name] != n {
				t.Errorf("%s is %v, want %v", name, counted[name], n)
			}
		}
	})
}

// subscriber has deletions come over a subscription from a database that has the same rows: users', a true batch's of that
// database, and one after the row of a batch that was rolled back here. It returns the sessions that users deleted, and the
// origin that they come from.
func (r *rig) subscriber(t *testing.T, w *writer, commit func(name string, kind func([]int64) transaction)) (users []int64, origin string) {
	t.Helper()
	upstream := pgtest.New(t, r.db.Major)
	there := upstream.Connect(t)
	const slot = `select pg_create_logical_replication_slot(current_database()::name, 'pgoutput')`
	upstream.Exec(t, `create publication up for table sessions, notes, lapse.batch with (publish = 'insert, delete')`,
		`insert into sessions select generate_series(1, 10000)`, `insert into notes select id, n from sessions, generate_series(1, 2) n`, slot)
	r.db.Exec(t, fmt.Sprintf(`create subscription up connection '%s' publication up with (create_slot = false, slot_name = %s, copy_data = false)`,
		upstream.URL, schemas.Identifier(upstream.Name)))
	defer func() { // a database with a subscription cannot be dropped; the slot goes with its own
		r.db.Exec(t, `alter subscription up disable`, `alter subscription up set (slot_name = none)`, `drop subscription up`)
	}()
	// over commits upstream, and ends when it has come.
	over := func(do func([]int64) transaction) func([]int64) transaction {
		return func(ids []int64) transaction {
			return func(ctx context.Context, tx pgx.Tx) (seen outcome, err error) {
				err = pgx.BeginFunc(ctx, there, func(tx pgx.Tx) error {
					seen, err = do(ids)(ctx, tx)
					return err
				})
				if err != nil {
					return seen, err
				}
				eventually(t, "the deletion has come over the subscription", func() bool {
					var gone bool
					err := tx.QueryRow(ctx, `select not exists (select from sessions where id = any ($1))`, ids).Scan(&gone)
					return err == nil && gone
				})
				return seen, nil
			}
		}
	}
	for name, kind := range map[string]func([]int64) transaction{"a user's, over a subscription": user, "one after the tag, over a subscription": forger} {
		commit(name, func(ids []int64) transaction {
			users = append(users, ids...)
			return over(kind)(ids)
		})
	}
	commit("a batch of upstream's, signed with the same key", over(signedFor(func(*schemas.Claim) {})))
	commit("a rolled-back batch's row, over a subscription", over(rolledBack(t, w, nil)))
	err := w.conn.QueryRow(t.Context(), `select 'pg_' || oid from pg_subscription where subname = 'up'`).Scan(&origin)
	if err != nil {
		t.Fatal(err)
	}
	return users, origin
}

// cameFrom wants the events of these sessions to name their origin, and no others.
func (r *rig) cameFrom(t *testing.T, origin string, users []int64) {
	t.Helper()
	for _, record := range r.read(t, r.settings.User) {
		named := strings.Contains(string(record.Value), `"origin":"`+origin+`"`)
		of := slices.ContainsFunc(users, func(id int64) bool {
			return strings.Contains(string(record.Key), fmt.Sprintf(`{"id":"%d"}`, id)) || strings.Contains(string(record.Key), fmt.Sprintf(`{"session":"%d",`, id))
		})
		if named != of || !named && strings.Contains(string(record.Value), `"origin"`) {
			t.Errorf("of the origin %s: %v, want %v: %s", origin, named, of, record.Value)
		}
	}
}
