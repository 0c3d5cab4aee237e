package executor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// askers makes a table of a role "other" with a policy q, two holds and a row in quarantine, and a table sessions of the application's with a
// policy p and a hold of its own. pry is a function that the application's code may call with a number and a question: a question that
// is answered leaves a session lock, which no rollback releases.
func askers(t *testing.T, db *pgtest.DB) (other string) {
	t.Helper()
	other = db.NewRole(t, "other")
	db.Exec(t, "grant create on schema public to "+other)
	db.Exec(t, "set role "+other+`; create table people (id bigint primary key, at timestamptz, name text);
		insert into people values (1, now() - interval '1 year', 'a'), (2, now() - interval '1 year', 'b')`)
	sessions(t, db, 5, 5)
	arm(t, db, policies(policy("p", "public.sessions"), policy("q", "public.people")))
	s := holdSession(t, db)
	placeHold(t, s, byWhere("public.people", "name = 'a'"))
	placeHold(t, s, byKeys("public.people", "2"))
	placeHold(t, s, byKeys("public.sessions", "3"))
	db.Exec(t, `insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at)
		select p.id, p.table_oid, sha256(''), '{2}', '23503', now() + interval '1 day' from lapse.policy p`,
		`create function public.pry(n int, question text) returns void language plpgsql as $f$
		 declare
		   answer text;
		 begin
		   execute question into answer;
		   if answer <> '' then
		     perform pg_advisory_lock(4711, n);
		   end if;
		 exception when others then
		   null;
		 end $f$`)
	return other
}

// questions are what a deleter can ask about policy id, its table and a hold on it.
func questions(p *record.InForce, hold schemas.HoldID) []string {
	return []string{
		fmt.Sprintf("select lapse.held_rows(%d, %d, %s)", p.ID, p.Version, schemas.CallerProof),
		fmt.Sprintf("select i.spared from lapse.inspect_leaf(%d, %d, %d, %s, %s) i", p.ID, p.Version, p.TableOID, schemas.Literal(p.TableName), schemas.CallerProof),
		fmt.Sprintf("select lapse.quarantined_keys(%d, %d, %d, now(), %s)::text", p.ID, p.Version, p.TableOID, schemas.CallerProof),
		fmt.Sprintf("select lapse.held_keys(%d, %s)::text", hold, schemas.CallerProof),
	}
}

// Looks have no transaction id and lock their table in ACCESS SHARE, so that its owner can plant an index between a look's checks and its
// statement, with a function that runs as the owner's deleter when the statement is planned. It learns what is kept of the owner's own
// rows, and nothing of others'.
func TestAnIndexPlantedInALookLearnsOfItsOwnersTablesOnly(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		askers(t, db)
		w := open(t, db, "p")
		list, err := record.LoadInForce(t.Context(), w.Control)
		if err != nil {
			t.Fatal(err)
		}
		p, q := find(list, "p"), find(list, "q")
		var body strings.Builder
		for n, question := range append(questions(p, 3), questions(q, 2)...) {
			fmt.Fprintf(&body, "perform public.pry(%d, %s);\n", n, schemas.Literal(question))
		}
		owned(t, db, `create function act(int) returns boolean language plpgsql immutable as $f$
			begin
			  if current_user like 'lapse\_deleter\_%' then `+body.String()+` end if;
			  return true;
			end $f$`)
		f, err := batch.FunctionsToFind(p, batch.NewCatalog(schemas.RolesFor(schemas.DefaultRolePrefix)))
		if err != nil {
			t.Fatal(err)
		}
		look, err := w.Session.FindDue(t.Context(), p, f, nil)
		if err == nil {
			err = run.Acquaint(t.Context(), w.Control, p, &look)
		}
		if err != nil {
			t.Fatal(err)
		}
		// The look waits for the last thing that it asks the catalog: it has found the leaf checked by then.
		hold := db.Connect(t)
		for _, sql := range []string{"begin", "lock table lapse.low_water in access exclusive mode"} {
			if _, err := hold.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		patient(t, w)
		done := make(chan error, 1)
		go func() {
			_, err := w.Session.FindDue(t.Context(), p, f, nil)
			done <- err
		}()
		eventually(t, "the look waits", func() bool {
			return one[bool](t, db, "select exists (select from pg_locks l where l.relation = 'lapse.low_water'::regclass and not l.granted)")
		})
		owned(t, db, "create index planted on sessions (note) where act(1)")
		if _, err := hold.Exec(t.Context(), "rollback"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		const answered = "select coalesce(string_agg(l.objid::text, ' ' order by l.objid), '-') from pg_locks l where l.locktype = 'advisory' and l.classid = 4711"
		if got := one[string](t, db, answered); got != "0 2 3" {
			t.Errorf("answered are questions %s, want those about the owner's own tables, 0 2 3: 1 sees the index", got)
		}
	})
}

// patient gives the session's statements minutes where they have a second or two, and a quarter of a second for a lock.
func patient(t testing.TB, w *work) {
	t.Helper()
	config := w.Batches.Config()
	_ = w.Batches.Close(t.Context())
	for _, name := range []string{"lock_timeout", "statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout"} {
		if _, is := config.RuntimeParams[name]; is {
			config.RuntimeParams[name] = "2min"
		}
	}
	var err error
	if w.Batches, err = pgx.ConnectConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// Code that runs as the deleter of a table with a policy can ask at any time, with the executor's login.
func TestADeleterIsAnsweredAboutItsOwnersTablesAndWhatTheirDeletionsReach(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		other := askers(t, db)
		roles := schemas.RolesFor(schemas.DefaultRolePrefix)
		deleter := one[string](t, db, "select role from lapse.deleter where owner = $1::regrole", appRole)
		db.Exec(t, `create function public.ask(question text) returns text language plpgsql security definer as $f$
			declare answer text; begin execute question into answer; return answer; end $f$`,
			"alter function public.ask(text) owner to "+deleter,
			fmt.Sprintf(`create function public.let_in(claim lapse.claim, mac bytea, work lapse.work) returns text language plpgsql security definer as $f$
				begin return (lapse.enter(claim, work, claim.policy_id, claim.policy_version, 1000, %s)).spared; end $f$`, schemas.CallerProof),
			"alter function public.let_in(lapse.claim, bytea, lapse.work) owner to "+deleter)
		list, err := record.LoadInForce(t.Context(), db.ConnectAs(t, roles.Executor))
		if err != nil {
			t.Fatal(err)
		}
		p, q := find(list, "p"), find(list, "q")
		conn := db.ConnectAs(t, roles.Executor)
		ask := func(question string) (state string) {
			t.Helper()
			var answer *string
			err := conn.QueryRow(t.Context(), "select public.ask($1)", question).Scan(&answer)
			if err == nil && (answer == nil || *answer == "") {
				t.Errorf("%s: no answer", question)
			}
			return schemas.StateOf(err)
		}
		if err := run.Acquaint(t.Context(), conn, p, &run.Look{Unkept: []uint32{p.TableOID}, Divided: true}); err != nil { // of a leaf that was not checked nothing is said
			t.Fatal(err)
		}
		for _, question := range questions(p, 3) {
			if state := ask(question); state != "" {
				t.Errorf("about its owner's table: %s: %s", question, state)
			}
		}
		refused := func(what string, questions ...string) {
			t.Helper()
			for _, question := range questions {
				if state := ask(question); state != schemas.SQLStateInsufficientPrivilege {
					t.Errorf("%s: %s: got %q, want a refusal", what, question, state)
				}
			}
		}
		refused("about another's table", questions(q, 2)...)

		// A proof is of one role, session and transaction.
		for what, proof := range map[string]string{
			"null": "null", "nothing": "''", "made up": "sha256('x')",
		} {
			refused("with a proof that is "+what, strings.ReplaceAll(questions(p, 3)[0], schemas.CallerProof, proof))
		}
		var stale string
		if err := conn.QueryRow(t.Context(), "select public.ask('select caller.proof from lapse.caller')").Scan(&stale); err != nil {
			t.Fatal(err)
		}
		refused("with the proof of an earlier transaction", strings.ReplaceAll(questions(p, 3)[0], schemas.CallerProof, schemas.Literal(stale)+"::bytea"))

		// What is given to another owner is not its former owner's any more.
		db.Exec(t, "alter table sessions owner to "+other)
		refused("about a table that its owner gave away", questions(p, 3)...)
		db.Exec(t, "alter table sessions owner to "+appRole)

		// The keys of a hold on another owner's table: to read the table is not enough, nor that a deletion would reach it.
		keys := questions(q, 2)[3]
		db.Exec(t, "grant select on people to "+deleter)
		refused("about a table that it may only read", keys)
		db.Exec(t, "revoke select on people from "+deleter, "alter table people add column session bigint references sessions on delete set null")
		refused("about a table that it cannot read", keys)
		db.Exec(t, "grant select on people to "+deleter)
		refused("about a table whose deletions take nothing along", keys)
		db.Exec(t, "alter table people drop column session, add column session bigint references sessions on delete cascade")
		if state := ask(keys); state != "" {
			t.Errorf("about a table that its deletions reach and that it may read: %s", state)
		}
		db.Exec(t, "revoke select on people from "+deleter)
		refused("about a table that its deletions reach, without the right to read it", keys)
		refused("about another's policy, whatever reaches its table", questions(q, 2)[:3]...)

		// With the lease of another owner's policy in hand it is not let in there either.
		w := open(t, db, "q")
		err = w.callForged(t, "public.let_in", func(*schemas.Claim) {}, 1)
		if state := schemas.StateOf(err); state != schemas.SQLStateInsufficientPrivilege {
			t.Errorf("with the lease of another owner's policy: got %v, want a refusal", err)
		}
	})
}
