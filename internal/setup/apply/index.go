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

// An index that a policy asks for is made by the applying login as the table's owner, CONCURRENTLY, in a session of its own,
// before the policy's version is written. It is put on record first:
//
//	crash before the record       nothing is there
//	crash before it is made       a record of nothing; the next apply makes the index, or forgets the record
//	crash while it is made        the server goes on, or leaves an index that is not valid; the next apply waits for the one,
//	                              and drops and makes again the other
//	crash between two partitions  the index of the root is not valid; the next apply goes on with the next partition
//
// Making and dropping wait for transactions that use the table, and nobody who reads or writes rows waits behind them.

// IndexProgress is how far an index has come.
type IndexProgress struct {
	Index       string // schema.index, quoted
	Phase       string // in PostgreSQL's words
	Done, Total int64  // of what the phase counts; zero where it counts nothing
	Ended       bool   // nothing more will be told of this index
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
	// cancelPatience is how long an index that is not wanted any more may take to say so.
	cancelPatience = 10 * time.Second
)

// build makes what a policy's index lacks.
func (w *applying) build(ctx context.Context, c *Change) error {
	b, err := w.indexing(ctx, c.Resolved.TableOID)
	if err != nil {
		return err
	}
	defer database.Close(b.conn)
	finished := map[string]bool{} // somebody made it while we looked
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

// checkIndex says what keeps this login from making the policy's index: it makes it as the table's owner, who must be able to.
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
		Cause: cause,
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

// indexing is a session in which indexes of one table are made and dropped.
type indexing struct {
	*Applier
	conn  *pgx.Conn
	owner string // of the table
	super bool   // the owner is a superuser
}

// indexing opens the session, as the table's owner. Code of the owner that runs while an index is made has only the owner's
// rights: PostgreSQL sees to that, and this session can do no more.
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
	for _, sql := range []string{"set statement_timeout = 0", "set lock_timeout = 0", "set role " + schemas.Identifier(b.owner)} {
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

// refused says what to do about an error.
func (b *indexing) refused(err error, step *index.Step) error {
	switch schemas.StateOf(err) {
	case schemas.SQLStateInsufficientPrivilege:
		return closedSchema(b.owner, step.Schema, err)
	case schemas.SQLStateDuplicateTable:
		return fmt.Errorf("%w: somebody made one of that name meanwhile: apply again", err)
	}
	return err
}

// record puts an index on record, has it made, and notes which it is.
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

// leftover drops an index of ours that is not valid, once nobody makes it any more. finished says that it became valid while we
// waited.
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

// briefly runs a statement that others may have to wait behind: only for a moment.
func (b *indexing) briefly(ctx context.Context, step *index.Step) error {
	s := &site.Session{Conn: b.conn, Roles: b.Roles, Log: b.Log}
	return s.Locked(ctx, step.SQL, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, step.SQL)
		return err
	})
}

// alone runs a statement that takes long, outside a transaction, and tells how far it is. If ctx ends, the server is told to
// give up, and has said so when alone returns.
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

// tell asks the server how far it is. The session that makes the index is the login's, and only who has its rights sees it.
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
	if err == nil { // it is not there yet, or done
		b.Indexing(p)
	}
}
