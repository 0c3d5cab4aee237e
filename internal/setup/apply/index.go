package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
	"lapse/planner/database"
	"lapse/planner/index"
	"lapse/schemas"
)

// The applying login makes a policy's index as the table's owner, CONCURRENTLY, in a session of its own, before the policy's version is
// written. The index is put on record first:
//
//	crash before the record       nothing exists
//	crash before it is made       a record without an index; the next apply makes the index, or deletes the record
//	crash while it is made        the server continues, or leaves an invalid index; the next apply waits for the first,
//	                              and drops and makes again the second
//	crash between two partitions  the index of the root is invalid; the next apply continues with the next partition
//
// Making and dropping wait for transactions that use the table, but sessions that read or write rows do not wait for them.

// IndexProgress is the progress of making an index.
type IndexProgress struct {
	Index       string // schema.index, quoted
	Phase       string // in PostgreSQL's words
	Done, Total int64  // of what the phase counts; zero where it counts nothing
	Ended       bool   // the last report on this index
}

// String is the line for a person.
func (p IndexProgress) String() string {
	if p.Total == 0 {
		return fmt.Sprintf("index %s: %s", p.Index, p.Phase)
	}
	return fmt.Sprintf("index %s: %s, %d %%", p.Index, p.Phase, 100*p.Done/p.Total)
}

const (
	progressPause = time.Second
	// cancelPatience is how long canceling an index may take.
	cancelPatience = 10 * time.Second
)

// build makes what is missing of a policy's index.
func (w *applying) build(ctx context.Context, c *Change) error {
	b, err := w.indexing(ctx, c.Resolved.TableOID)
	if err != nil {
		return err
	}
	defer database.Close(b.conn)
	finished := map[string]bool{} // another session finished it meanwhile
	for _, step := range c.Resolved.Build {
		if finished[step.Index()] && step.Does != index.AttachPartition {
			continue
		}
		var err error
		switch step.Does {
		case index.DropLeftover:
			finished[step.Index()], err = b.leftover(ctx, &step)
		case index.CreateOnLeaf:
			err = b.record(ctx, c, &step, func() error { return b.alone(ctx, &step) })
		case index.CreateOnRoot:
			err = b.record(ctx, c, &step, func() error { return b.briefly(ctx, &step) })
		case index.AttachPartition:
			err = b.briefly(ctx, &step)
		}
		if err != nil {
			return fmt.Errorf("make index %s: %w", step.Index(), b.refused(err, &step))
		}
	}
	return nil
}

// checkIndex says what keeps this login from making the policy's index: it must be able to act as the table's owner.
func (a *Applier) checkIndex(ctx context.Context, c *Change) (problems []error, err error) {
	if a.Conn == nil || len(c.Resolved.Build) == 0 {
		return nil, nil
	}
	var made []string
	for _, step := range c.Resolved.Build {
		if step.Does == index.CreateOnLeaf || step.Does == index.CreateOnRoot {
			made = append(made, step.Schema)
		}
	}
	var owner, login, name string
	var acts bool
	var closed []string
	err = a.Conn.QueryRow(ctx, `
		select o.rolname::text, session_user::text, c.oid::regclass::text,
		       pg_has_role(session_user, o.oid, case when current_setting('server_version_num')::int >= 160000 then 'set' else 'member' end),
		       (select coalesce(array_agg(n.nspname::text order by n.nspname), '{}') from pg_namespace n
		         where n.nspname = any ($2) and not (has_schema_privilege(o.oid, n.oid, 'usage') and has_schema_privilege(o.oid, n.oid, 'create')))
		  from pg_class c join pg_roles o on o.oid = c.relowner where c.oid = $1`, c.Resolved.TableOID, made).Scan(&owner, &login, &name, &acts, &closed)
	if err != nil {
		return nil, fmt.Errorf("ask who may make the index of policy %s: %w", c.Policy, err)
	}
	if !acts {
		problems = append(problems, stranger(owner, login, name, nil))
	}
	for _, schema := range closed {
		problems = append(problems, closedSchema(owner, schema, nil))
	}
	return problems, nil
}

// stranger is the error of a login that may not act as the table's owner.
func stranger(owner, login, table string, cause error) error {
	return &access.GrantError{
		SQL:   fmt.Sprintf("grant %s to %s", schemas.Identifier(owner), schemas.Identifier(login)),
		Why:   fmt.Sprintf("%s may not make an index of %s, which belongs to %s", login, table, owner),
		Cause: cause, Login: true,
	}
}

// closedSchema is the error of a schema in which the table's owner may not make an index.
func closedSchema(owner, schema string, cause error) error {
	return &access.GrantError{
		SQL:   fmt.Sprintf("grant usage, create on schema %s to %s", schemas.Identifier(schema), schemas.Identifier(owner)),
		Why:   fmt.Sprintf("%s, the table's owner, may not make an index in schema %s", owner, schema),
		Cause: cause,
	}
}

// indexing is a session that makes and drops indexes of one table.
type indexing struct {
	*Applier
	conn  *pgx.Conn
	owner string // of the table
	super bool   // the owner is a superuser
}

// indexing opens the session, as the table's owner. PostgreSQL runs code of the owner during index creation with the owner's rights only,
// and this session has no others.
func (a *Applier) indexing(ctx context.Context, relation uint32) (*indexing, error) {
	if a.Login == nil {
		return nil, errors.New("make an index: there is no session to make it in")
	}
	conn, err := a.Login(ctx)
	if err != nil {
		return nil, err
	}
	b := &indexing{Applier: a, conn: conn}
	if err := b.open(ctx, relation); err != nil {
		database.Close(conn)
		return nil, err
	}
	return b, nil
}

func (b *indexing) open(ctx context.Context, relation uint32) error {
	var login, name string
	err := b.conn.QueryRow(ctx, `
		select o.rolname::text, o.rolsuper, session_user::text, c.oid::regclass::text
		  from pg_class c join pg_roles o on o.oid = c.relowner where c.oid = $1`, relation).Scan(&b.owner, &b.super, &login, &name)
	if err != nil {
		return fmt.Errorf("look for the owner of the table: %w", err)
	}
	const noBound = "select set_config('transaction_timeout', '0', false) where current_setting('transaction_timeout', true) is not null" // from 17 on
	for _, sql := range []string{"set statement_timeout = 0", "set lock_timeout = 0", noBound, "set role " + schemas.Identifier(b.owner)} {
		_, err := b.conn.Exec(ctx, sql)
		if state := schemas.StateOf(err); state == schemas.SQLStateInsufficientPrivilege {
			return stranger(b.owner, login, name, err)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// refused adds to an error what to do.
func (b *indexing) refused(err error, step *index.Step) error {
	switch schemas.StateOf(err) {
	case schemas.SQLStateInsufficientPrivilege:
		return closedSchema(b.owner, step.Schema, err)
	case schemas.SQLStateDuplicateTable:
		return fmt.Errorf("%w: somebody made one of that name meanwhile: apply again", err)
	}
	return err
}

// record records an index, makes it, and records its oid.
func (b *indexing) record(ctx context.Context, c *Change, step *index.Step, create func() error) error {
	_, err := b.Conn.Exec(ctx, `
		insert into lapse.made_index (relation, schema, name, policy) values ($1, $2, $3, $4)
		on conflict (relation, name) do update set policy = excluded.policy, index = null, made_at = default`,
		step.Relation, step.Schema, step.Name, string(c.Policy))
	if err != nil {
		return fmt.Errorf("put it on record: %w", err)
	}
	if err := create(); err != nil {
		return err
	}
	_, err = b.Conn.Exec(ctx, `
		update lapse.made_index m set index = i.indexrelid
		  from pg_index i join pg_class x on x.oid = i.indexrelid
		 where m.relation = $1 and m.name = $2 and i.indrelid = m.relation and x.relname = m.name`, step.Relation, step.Name)
	if err != nil {
		return fmt.Errorf("put it on record: %w", err)
	}
	return nil
}

// leftover drops an invalid index of ours, once no session makes it any more. finished: it became valid meanwhile.
func (b *indexing) leftover(ctx context.Context, step *index.Step) (finished bool, err error) {
	var ours bool
	if err := b.Conn.QueryRow(ctx, `select exists (select from lapse.made_index m where m.relation = $1 and m.name = $2)`,
		step.Relation, step.Name).Scan(&ours); err != nil {
		return false, fmt.Errorf("look whether it is Lapse's: %w", err)
	}
	if !ours {
		return false, fmt.Errorf("an index of this name is there that is not valid and that Lapse did not make: %s", step.SQL)
	}
	s := &site.Session{Conn: b.conn, Roles: b.Roles, Log: b.Log}
	var there bool
	err = s.Locked(ctx, "wait for the session that makes index "+step.Index(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "lock table "+step.Table+" in share update exclusive mode"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `
			select count(*) > 0, coalesce(bool_or(i.indisvalid), false)
			  from pg_index i join pg_class x on x.oid = i.indexrelid where i.indrelid = $1 and x.relname = $2`,
			step.Relation, step.Name).Scan(&there, &finished)
	})
	if err != nil || finished || !there {
		return finished, err
	}
	return false, b.alone(ctx, step)
}

// briefly runs a statement for which others may have to wait, with a short lock_timeout.
func (b *indexing) briefly(ctx context.Context, step *index.Step) error {
	s := &site.Session{Conn: b.conn, Roles: b.Roles, Log: b.Log}
	return s.Locked(ctx, step.SQL, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, step.SQL)
		return err
	})
}

// alone runs a long statement outside a transaction, and reports its progress. If ctx ends it cancels the statement, and returns when that
// is confirmed.
func (b *indexing) alone(ctx context.Context, step *index.Step) error {
	done := make(chan struct{})
	var result error // to be read once done is closed
	go func() {
		defer close(done)
		_, result = b.conn.Exec(context.WithoutCancel(ctx), step.SQL)
	}()
	ticks := time.NewTicker(progressPause)
	defer ticks.Stop()
	for {
		select {
		case <-done:
			if b.Indexing != nil {
				b.Indexing(IndexProgress{Index: step.Index(), Ended: true})
			}
			return result
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), b.cancel(ctx, done))
		case <-ticks.C:
			b.tell(ctx, step)
		}
	}
}

func (b *indexing) cancel(ctx context.Context, done <-chan struct{}) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
	defer stop()
	if err := b.conn.PgConn().CancelRequest(ctx); err != nil {
		return fmt.Errorf("tell the server to give up: %w", err)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.New("the server makes the index still: the next apply waits for it")
	}
}

// tell reads the progress from the server. The session that makes the index is the login's, so only a role with its rights sees it.
func (b *indexing) tell(ctx context.Context, step *index.Step) {
	if b.Indexing == nil {
		return
	}
	p := IndexProgress{Index: step.Index()}
	err := pgx.BeginFunc(ctx, b.Conn, func(tx pgx.Tx) error {
		if err := access.Become(ctx, tx, ""); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `
			select p.phase, case when p.blocks_total > 0 then p.blocks_done else p.tuples_done end,
			       case when p.blocks_total > 0 then p.blocks_total else p.tuples_total end
			  from pg_stat_progress_create_index p where p.pid = $1 and p.phase is not null`, b.conn.PgConn().PID()).Scan(&p.Phase, &p.Done, &p.Total)
	})
	if err == nil { // not listed yet, or done
		b.Indexing(p)
	}
}
