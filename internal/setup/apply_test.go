package setup_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/internal/setup/apply"
	"lapse/internal/setup/install"
	"lapse/internal/setup/site"
	"lapse/internal/yamldoc"
	"lapse/planner/change"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/replication"
	"lapse/schemas"
)

// Two policies whose cascades reach one child, and a third one.
func (p *database) family() []string {
	a := p.table("a", `create table {}.child (id int primary key, t int references {}.t on delete cascade); create index on {}.child (t)`)
	owner, _, _ := strings.Cut(a, ".")
	p.db.Exec(p.t, fmt.Sprintf(`set role %[1]s; create table %[1]s.u (id int primary key, at timestamptz not null);
		create index on %[1]s.u (at, id);
		alter table %[1]s.child add u int references %[1]s.u on delete cascade; create index on %[1]s.child (u)`, owner))
	return []string{a, owner + ".u", p.table("b")}
}

func TestApplyJoinsEachTableOnceAndLocksNoneThatIsPublished(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := newInstalled(t, db)
		tables := p.family()
		counted := func(f *policyfile.File) *statements {
			t.Helper()
			s := &statements{}
			p.trace = s
			p.applies(f)
			p.trace = nil
			return s
		}
		owner, _, _ := strings.Cut(tables[0], ".")
		first := counted(file(t, "", tables...))
		for _, table := range append(tables, owner+".child") {
			schema, name, _ := strings.Cut(table, ".")
			if n := first.with("lock table " + schema + "." + name + " in"); n != 1 {
				t.Errorf("%s was locked %d times", table, n)
			}
			if n := first.with("alter publication lapse_deletes add table only " + schema + "." + name); n != 1 {
				t.Errorf("%s was joined %d times", table, n)
			}
		}
		if n := first.with("alter publication"); n != 4 {
			t.Errorf("%d statements change a publication, want 4", n)
		}
		same := counted(file(t, "", tables...))
		if n := same.with("lock table") + same.with("alter publication") + same.with("grant"); n != 0 {
			t.Errorf("where nothing changes, %d statements lock or change something", n)
		}
		other := counted(file(t, ", every: 7 minutes", tables...))
		if n := other.with("lock table "+owner) + other.with("alter publication") + other.with("lock table lapse.deleter"); n != 0 {
			t.Errorf("other versions of published tables: %d statements lock a table or change a publication", n)
		}
		if ask[int](p, `select min(version) from lapse.gate`) != 2 {
			t.Error("there are no other versions")
		}
		t.Logf("statements: %d for three new policies, %d for no change, %d for three versions", len(first.all), len(same.all), len(other.all))
	})
}

//lapse:long
func TestAnApplyThatLosesItsConnectionAtAnyStatementIsTakenUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	p := newInstalled(t, db)
	f := file(t, ", state: armed", p.family()...)
	p.applies(f)
	want := p.state()

	p = newInstalled(t, pgtest.New(t, db.Major))
	f = file(t, ", state: armed", p.family()...)
	p.untilWhole(3, func(s *statements) error { return p.tries(f, s) })
	same(t, "in the end", p.state(), want)
	if n := ask[int](p, `select count(*) from lapse.policy`); n != 3 {
		t.Errorf("%d versions were written, want 3", n)
	}
}

// tries applies a file over a session of its own, whose statements count once it writes.
func (p *database) tries(f *policyfile.File, s *statements) error {
	conn, err := p.connect(p.t.Context(), install.PlayOwner)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(p.t.Context()) }()
	a := &apply.Applier{Session: site.Session{Conn: conn, Roles: p.roles, Log: quiet}, AuditRequired: true, Prune: true, Login: p.connectLogin}
	cut := s.cut
	s.cut = 0
	changes, err := a.Difference(p.t.Context(), f)
	if err != nil {
		return err
	}
	s.cut = cut
	s.all = nil // nothing was written yet
	if err := a.Apply(p.t.Context(), changes); err != nil {
		return err
	}
	for _, c := range changes {
		if len(c.Left) > 0 {
			return errors.New(c.Left[0])
		}
	}
	return nil
}

//lapse:long
func TestDroppingPoliciesLeavesNothingOfTheirs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	p := newInstalled(t, db)
	empty := p.state()
	tables := p.family()
	p.applies(file(t, "", tables...))
	if changes := p.applies(file(t, "", tables[:1]...)); len(changes[0].Leave) != 1 || len(changes[1].Leave)+len(changes[0].Leave) != 2 {
		t.Errorf("the child is needed by the policy that stays: %v, %v", changes[0].Leave, changes[1].Leave)
	}
	if n := ask[int](p, `select count(*) from lapse.deleter`); n != 1 {
		t.Errorf("%d deleters are on record, want 1", n)
	}
	p.untilWhole(1, func(s *statements) error { return p.tries(file(t, ""), s) })
	var left []string
	for _, line := range p.state() {
		if !strings.HasPrefix(line, "policy ") {
			left = append(left, line)
		}
	}
	var was []string
	for _, line := range empty {
		if !strings.Contains(line, "_a") && !strings.Contains(line, "_b") { // the roles of the tables came later
			was = append(was, line)
		}
	}
	for _, line := range left {
		if strings.Contains(line, "deleter_N") {
			t.Errorf("left over is %s", line)
		}
	}
	for _, line := range was {
		if strings.HasPrefix(line, "member ") && !contains(left, line) {
			t.Errorf("missing is %s", line)
		}
	}
	if n := ask[int](p, `select count(*) from pg_proc where pronamespace = 'lapse'::regnamespace and proname ~ '^(delete|find|survey|due)_[0-9]+_'`); n != 0 {
		t.Errorf("%d functions are left", n)
	}
	if n := ask[int](p, `select count(*) from pg_publication_rel r join pg_publication p on p.oid = r.prpubid where p.pubname not in ('lapse_ledger', 'lapse_catalog')`); n != 0 {
		t.Errorf("%d tables are still published", n)
	}
}

func contains(lines []string, line string) bool {
	for _, other := range lines {
		if other == line {
			return true
		}
	}
	return false
}

// What the parser, the planner and the publications have to say of different policies is said together, each with its place.
func TestAllThatIsWrongInAFileIsSaidWhateverFindsIt(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	good, child := p.table("good"), p.table("child", `create table {}.c (t int references {}.t on delete cascade); create index on {}.c (t)`)
	parsed, err := policyfile.Parse("policies.yaml", []byte(fmt.Sprintf(`policies:
  - { name: a, table: %s, expire: { column: at, after: 30 days } }
  - { name: b, table: %s, expire: { column: at, after: 30 days } }
  - { name: c, table: shop.c, expire: { column: at, after: 30 days }, batch: 0 }
  - { name: d, table: shop.d, expire: { column: at, after: 30 days } }
`, good, child)))
	if err == nil {
		t.Fatal("the parser takes it")
	}
	changes, err := p.applier().Difference(t.Context(), parsed)
	var identity *replication.IdentityError
	if changes != nil || !errors.As(err, &identity) {
		t.Fatalf("got %v, %v, want an IdentityError among the errors", changes, err)
	}
	for _, want := range []string{
		"policies.yaml:3:23: policy b: ", "policies.yaml:4:78: policy c: batch must be", "policies.yaml:5:23: policy d: there is no table shop.d",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// What is wrong with a table is asked in one site, for the table, its partitions and what a cascade reaches.
func TestDifferenceRefusesWhatCannotBePublishedAndWritesNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := newInstalled(t, db)
		good := p.table("good")
		before := p.state()
		for name, c := range map[string]struct{ sql, want string }{
			"child":    {`create table {}.c (t int references {}.t on delete cascade); create index on {}.c (t)`, "has no primary key"},
			"full":     {`alter table {}.t replica identity full`, "replica identity"},
			"nothing":  {`alter table {}.t replica identity nothing`, "replica identity"},
			"deferred": {`alter table {}.t drop constraint t_pkey; alter table {}.t add primary key (id) deferrable`, "deferrable"},
			"nokey":    {`alter table {}.t drop constraint t_pkey`, "no primary key"},
		} {
			table := p.table(name, c.sql)
			_, err := p.applier().Difference(t.Context(), file(t, "", good, table))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "nothing of the file was applied") {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
			var identity *replication.IdentityError
			var entry yamldoc.Errors
			if !errors.As(err, &identity) && !errors.As(err, &entry) {
				t.Errorf("%s: the error %v is of no kind that says what to do", name, err)
			}
		}
		var now []string
		for _, line := range p.state() {
			if !strings.HasPrefix(line, "role ") {
				now = append(now, line)
			}
		}
		for _, line := range now {
			if !contains(before, line) {
				t.Errorf("after the refusals there is %s", line)
			}
		}
	})
}

// A partition that was made since is one that the deleter of a superuser's table has no right on, and it is no new version.
func TestApplyGivesTheRightsThatAPartitionMadeSinceLacks(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	p.db.Exec(t, `create table public.days (id int, at timestamptz not null, primary key (id, at)) partition by range (at);
		create table public.d1 partition of public.days for values from ('2020-01-01') to ('2021-01-01')`)
	f := file(t, "", "public.days")
	p.applies(f)
	p.db.Exec(t, `create table public.d2 partition of public.days for values from ('2021-01-01') to ('2022-01-01')`)
	changes := p.applies(f)
	if !changes[0].Grant || !changes[0].Applied || changes[0].Kind != change.Unchanged {
		t.Errorf("got %+v", changes[0])
	}
	if changes = p.applies(f); changes.Write() {
		t.Errorf("the second time: %+v", changes[0])
	}
}

// Restating takes the gates and no lock on a table.
func TestPausingAndArmingLockNoTable(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	table := p.table("a")
	p.applies(file(t, "", table))
	holder := p.db.Connect(t)
	if _, err := holder.Exec(t.Context(), `begin; lock table `+table+` in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	s := p.session()
	for _, to := range []schemas.State{schemas.Paused, schemas.Arming} {
		policies, err := record.LoadInForce(t.Context(), s.Conn)
		p.must(err)
		c := change.Pause(&policies[0])
		if to == schemas.Arming {
			c = change.Arm(&policies[0])
		}
		p.must(s.Restate(t.Context(), &c, "a test"))
		if got := ask[schemas.State](p, `select state from lapse.gate`); got != to {
			t.Errorf("in force is %s, want %s", got, to)
		}
	}
	if ask[bool](p, `select arming_lsn is null from lapse.gate`) {
		t.Error("nobody has written which position the auditor must pass")
	}
}

// Only its owner may publish a table. Who applies without a superuser is told before anything is written.
func TestATableThatTheLoginMayNotPublishIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	login, other := p.db.NewRole(t, "teller"), p.table("other")
	owner, _, _ := strings.Cut(other, ".")
	p.db.Exec(t, `create table public.days (id int primary key, at timestamptz not null)`,
		"grant "+schemas.Identifier(p.roles.Owner)+" to "+login)
	conn := p.db.ConnectAs(t, login)
	a := &apply.Applier{Session: site.Session{Conn: conn, Roles: p.roles, Log: quiet}, AuditRequired: true}
	for table, want := range map[string]string{
		"public.days": `table public.days belongs to postgres, a superuser, and only its owner may publish it, and Lapse does not change that by itself: have a superuser run: alter table public.days owner to ROLE`,
		other:         fmt.Sprintf("table %s belongs to %s, and only its owner may publish it, and this login may not change that: have a superuser run: grant %[2]s to %s", other, owner, login),
	} {
		if _, err := a.Difference(t.Context(), file(t, "", table)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "nothing of the file was applied") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
