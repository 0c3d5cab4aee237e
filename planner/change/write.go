package change

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

// ErrChangedMeanwhile says that somebody else has changed the policy since Difference: compare again.
var ErrChangedMeanwhile = errors.New("another session has changed the policy in the meantime: run `lapse apply` again")

// Write brings one change of Difference into force, in the caller's transaction: versions, functions, gate and state are committed together. The
// session must be a superuser or a member of the catalog's owner.
//
// Write locks the gate first. So when it returns, no batch runs under the former state, and none can begin. It drops the functions of versions
// that are neither in force nor held back: a caller that still has their name gets SQLSTATE 42883 or, if it waited at the gate, LP002.
// Nothing that takes long may follow in the transaction, because deletion waits for its end.
//
// The transaction runs as the catalog's owner, and as the login itself while functions are given to the deleter, which must exist: see
// access.EnsureDeleter. Write locks and checks nothing of the policy's table.
func Write(ctx context.Context, tx pgx.Tx, c *Change, roles schemas.Roles, reason string) (schemas.PolicyID, schemas.PolicyVersion, error) {
	if !c.Writes() {
		return c.ID, c.FromVersion, nil
	}
	w := &writer{tx: tx, c: c, roles: roles, reason: reason, id: c.ID, version: c.ToVersion, state: c.ToState}
	if err := w.write(ctx); err != nil {
		return 0, 0, err
	}
	return w.id, w.version, nil
}

type writer struct {
	tx      pgx.Tx
	c       *Change
	roles   schemas.Roles
	reason  string
	id      schemas.PolicyID
	version schemas.PolicyVersion // the version in force afterwards
	state   schemas.State         // the policy's state afterwards
	was     schemas.State         // its state when the gate is locked
}

func (w *writer) write(ctx context.Context) error {
	if err := w.lock(ctx); err != nil {
		return err
	}
	for _, v := range w.c.writes {
		if err := w.newVersion(ctx, v); err != nil {
			return err
		}
	}
	if err := w.setGate(ctx); err != nil {
		return err
	}
	if err := w.setState(ctx); err != nil {
		return err
	}
	if err := w.tidy(ctx); err != nil {
		return err
	}
	return w.dropFunctions(ctx)
}

// setState records the policy's state. A version that becomes held back while another continues does not change the state: clock and breaker
// keep comparing with the same runs.
func (w *writer) setState(ctx context.Context) error {
	if w.c.Kind != New && w.version == w.c.FromVersion && w.state == w.was && record.Live(w.state) {
		return nil
	}
	continues := !w.c.accepted && record.Live(w.was) && record.Live(w.state) // by an edit, see the column
	_, err := w.tx.Exec(ctx, `
		insert into lapse.policy_state (policy_id, version, state, reason, continues) values ($1, $2, $3, $4, $5)`, w.id, w.version, w.state, w.reason, continues)
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

// tidy records what holds cover, and removes what the version that comes into force cannot use.
func (w *writer) tidy(ctx context.Context) error {
	if _, err := w.tx.Exec(ctx, `select lapse.follow_holds()`); err != nil {
		return fmt.Errorf("record what holds are on: %w", err)
	}
	if err := w.keepBreaker(ctx); err != nil {
		return fmt.Errorf("keep the breaker: %w", err)
	}
	switch w.c.Kind {
	case Changed, Restated:
		return w.keepQuarantine(ctx)
	case New, Removed:
		if _, err := w.tx.Exec(ctx, `delete from lapse.quarantine where policy_id = $1`, w.id); err != nil {
			return fmt.Errorf("empty the quarantine: %w", err)
		}
		if _, err := w.tx.Exec(ctx, `delete from lapse.low_water where policy_id = $1`, w.id); err != nil {
			return fmt.Errorf("forget the low-water marks: %w", err)
		}
	}
	if w.c.Kind == Removed {
		// Unfinished shards stay undone: no executor works on them again.
		if _, err := w.tx.Exec(ctx, `select lapse.remove_shards(array(select s.id from lapse.shard s where s.policy_id = $1 and not s.done))`, w.id); err != nil {
			return fmt.Errorf("give up unfinished shards: %w", err)
		}
	}
	return nil
}

// keepBreaker keeps an open breaker open, and a yes that no run has used valid, under a version that lets no more rows fall due than the one
// that the breaker stopped: nobody is asked before it is in force. A run that a person allowed and that it cuts short asks again. A person who
// arms another version accepts what is due under that.
func (w *writer) keepBreaker(ctx context.Context) error {
	if w.c.accepted && record.Live(w.state) {
		_, err := w.tx.Exec(ctx, `delete from lapse.breaker where policy_id = $1 and version <> $2`, w.id, w.version)
		return err
	}
	i := slices.IndexFunc(w.c.writes, func(v *record.Version) bool { return v.Definition.Version == w.version })
	if i < 0 {
		return nil
	}
	// The lock is a statement of its own, as in lock: a run that open_run begins with the yes is seen afterwards.
	stopped, err := database.Collect[struct{ Is record.Version }](ctx, w.tx, `
		select `+record.VersionSQL+`
		  from lapse.breaker b
		  join lapse.policy p on p.id = b.policy_id and p.version = b.version
		 where b.policy_id = $1
		   for update of b`, w.id)
	if err != nil || len(stopped) == 0 || record.MoreFallDue(&stopped[0].Is, w.c.writes[i]) {
		return err
	}
	_, err = w.tx.Exec(ctx, `select lapse.ask_again(r.run) from lapse.run r where r.policy_id = $1 and r.accepted and r.outcome is null`, w.id)
	if err != nil {
		return err
	}
	_, err = w.tx.Exec(ctx, `
		update lapse.breaker b
		   set version = $2
		 where b.policy_id = $1
		   and (b.accepted is null
		        or b.accepted_at > coalesce((select max(r.started_at) from lapse.run r where r.policy_id = b.policy_id), '-infinity'))`, w.id, w.version)
	return err
}

// keepQuarantine removes rows from the quarantine whose key or table the next version does not share.
func (w *writer) keepQuarantine(ctx context.Context) error {
	_, err := w.tx.Exec(ctx, `
		delete from lapse.quarantine q
		 using lapse.policy former, lapse.policy next
		 where q.policy_id = $1 and former.id = $1 and former.version = $2 and next.id = $1 and next.version = $3
		   and (former.table_oid <> next.table_oid or former.spec -> 'key' <> next.spec -> 'key')`, w.id, w.c.FromVersion, w.version)
	if err != nil {
		return fmt.Errorf("take rows out of the quarantine: %w", err)
	}
	return nil
}

// LockGates switches the rest of the transaction to the catalog's owner and locks the gates: until the transaction ends, no batch runs, and none
// begins. It must precede any lock on a user's table, as in a batch.
func LockGates(ctx context.Context, tx pgx.Tx, roles schemas.Roles) error {
	if err := execute(ctx, tx, "set local role "+schemas.Identifier(roles.Owner)+"; lock table lapse.gate in exclusive mode"); err != nil {
		return fmt.Errorf("lock the gates: %w", err)
	}
	return nil
}

// lock locks the gates, which waits for running batches, and checks that the policy's gate is as Difference saw it. Locks are granted in order:
// later batches queue, so the wait is one batch.
func (w *writer) lock(ctx context.Context) error {
	if err := LockGates(ctx, w.tx, w.roles); err != nil {
		return err
	}
	if w.id == 0 {
		if err := w.tx.QueryRow(ctx, `select coalesce(max(p.id), 0) + 1 from lapse.policy p`).Scan(&w.id); err != nil {
			return fmt.Errorf("take the next number: %w", err)
		}
		return nil
	}
	var version, held schemas.PolicyVersion
	// The lock is a statement of its own: what is read afterwards is what was committed when the lock was granted.
	if err := w.tx.QueryRow(ctx, `select version, state, coalesce(held_back, 0) from lapse.gate where policy_id = $1`, w.id).Scan(&version, &w.was, &held); err != nil {
		return fmt.Errorf("read the gate: %w", err)
	}
	c := w.c
	unchanged := version == c.FromVersion && held == c.fromHeld && w.was == c.FromState
	switch {
	case c.Kind == New:
		unchanged = version == c.FromVersion && w.was == schemas.Dropped
	case c.FromState == schemas.Arming && w.was == schemas.Armed:
		unchanged = version == c.FromVersion && held == c.fromHeld // the executor finished arming meanwhile, which is no decision of a person
		if w.state == schemas.Arming && w.version == version {
			w.state = schemas.Armed
		}
	}
	if !unchanged {
		return ErrChangedMeanwhile
	}
	return nil
}

// newVersion writes a version and its functions. A version without an entry of its own gets that of the version that it continues.
func (w *writer) newVersion(ctx context.Context, next *record.Version) error {
	text, err := json.Marshal(next.Spec)
	if err != nil {
		return fmt.Errorf("write the spec: %w", err)
	}
	columns, err := json.Marshal(next.Definition.Columns())
	if err != nil {
		return fmt.Errorf("write the columns: %w", err)
	}
	joined, err := json.Marshal(next.Definition.Joined())
	if err != nil {
		return fmt.Errorf("write the relations: %w", err)
	}
	trusted, err := next.Spec.TrustedJSON()
	if err != nil {
		return err
	}
	entry, err := w.storable(ctx, next.Entry)
	if err != nil {
		return fmt.Errorf("write the entry: %w", err)
	}
	_, err = w.tx.Exec(ctx, `
		insert into lapse.policy (id, version, name, table_oid, table_name, columns, spec, reason, entry, former_entry, joined, trusted)
		select $1, $2, $3, $4, $5, $6::text::jsonb, $7::text::jsonb, $8, coalesce(nullif($9, ''), former.entry), former.entry,
		       $11::text::jsonb, $12::text::jsonb
		  from (select) one
		  left join lapse.policy former on former.id = $1 and former.version = $10`,
		w.id, next.Definition.Version, w.c.Policy, next.Table, next.Definition.Table, string(columns), string(text), w.reason,
		entry, w.c.FromVersion, string(joined), trusted)
	if schemas.StateOf(err) == schemas.SQLStateUniqueViolation {
		return ErrChangedMeanwhile
	}
	if err != nil {
		return fmt.Errorf("write version %d: %w", next.Definition.Version, err)
	}
	d := next.Definition
	d.ID = w.id
	create, give, err := functions.SQL(&d, w.roles)
	if err != nil {
		return err
	}
	if err := execute(ctx, w.tx, create+"set local role none"); err != nil {
		return fmt.Errorf("make the functions of version %d: %w", next.Definition.Version, err)
	}
	// Only the owner of the schema may grant the right to create in it, and only a member of both roles may give a function away. The login is a
	// member of both; the owner is not a member of a deleter, which has rights on tables.
	if w.tx.Conn().PgConn().ParameterStatus("is_superuser") != "on" {
		give = functions.AsMember(give, &d, w.roles)
	}
	if err := execute(ctx, w.tx, give+"set local role "+schemas.Identifier(w.roles.Owner)); err != nil {
		return fmt.Errorf("give the functions of version %d to their owner: %w", next.Definition.Version, err)
	}
	return nil
}

// storable converts the version's entry to characters that this database can store. If it is not UTF-8, a character, for instance in a comment,
// may not exist there; that is no reason to refuse a policy: then every non-ASCII character becomes a question mark.
func (w *writer) storable(ctx context.Context, entry string) (string, error) {
	entry = strings.ReplaceAll(entry, "\x00", "")
	err := expiry.Attempt(ctx, w.tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `select $1::text`, entry)
		return err
	})
	if !expiry.IsDataException(err) {
		return entry, err
	}
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return '?'
		}
		return r
	}, entry), nil
}

func (w *writer) setGate(ctx context.Context) error {
	var err error
	if next := w.c.Next; next != nil {
		_, err = w.tx.Exec(ctx, `
			insert into lapse.gate as g (policy_id, name, table_oid, version, state, held_back, soft, hold_version)
			select $1, $2, $3, $4, $5, nullif($6, 0), $7, coalesce(max(s.id), 0) from lapse.hold_state s where s.state = 'requested'
			on conflict (policy_id) do update
			   set table_oid = excluded.table_oid, version = excluded.version, state = excluded.state, held_back = excluded.held_back, soft = excluded.soft,
			       arming_lsn = case when g.version = excluded.version and g.state = excluded.state then g.arming_lsn end`,
			w.id, w.c.Policy, next.Table, w.version, w.state, w.c.HeldVersion, next.Definition.Soft != nil)
	} else {
		_, err = w.tx.Exec(ctx, `
			update lapse.gate g
			   set version = $2, state = $3, held_back = nullif($4, 0), arming_lsn = case when g.version = $2 and g.state = $3 then g.arming_lsn end
			 where g.policy_id = $1`, w.id, w.version, w.state, w.c.HeldVersion)
	}
	if schemas.StateOf(err) == schemas.SQLStateUniqueViolation {
		return ErrChangedMeanwhile
	}
	if err != nil {
		return fmt.Errorf("write the gate: %w", err)
	}
	return nil
}

// dropFunctions drops the functions of all versions that are neither in force nor held back. No batch runs in them: it would hold the gate.
func (w *writer) dropFunctions(ctx context.Context) error {
	keep := []schemas.PolicyVersion{w.version, w.c.HeldVersion}
	if w.state == schemas.Dropped {
		keep = keep[:0]
	}
	var drop string
	err := w.tx.QueryRow(ctx, `
		select coalesce(string_agg(format('drop function lapse.%I(%s);', f.proname, pg_get_function_identity_arguments(f.oid)), e'\n'), '')
		  from unnest('{delete,find,survey,due,drop}'::text[]) k(kind)
		 cross join lateral (
		   select f.oid, f.proname from pg_proc f -- by its index: there are as many functions as policies
		    where f.proname between (k.kind || '_' || $1::int || '_')::name and (k.kind || '_' || $1::int || '_a')::name and f.pronamespace = 'lapse'::regnamespace
		   offset 0) f
		 where f.proname ~ ('^' || k.kind || '_' || $1::int || '_[0-9]+$')
		   and substring(f.proname from '[0-9]+$') <> all ($2::int[]::text[])`, w.id, keep).Scan(&drop)
	if err == nil && drop != "" {
		err = execute(ctx, w.tx, drop)
	}
	if err != nil {
		return fmt.Errorf("drop the functions of former versions: %w", err)
	}
	return nil
}

// execute runs a script of several statements.
func execute(ctx context.Context, tx pgx.Tx, script string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, script).ReadAll()
	return err
}
