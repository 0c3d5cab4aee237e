package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
	"lapse/internal/setup/doctor"
)

// examined asks the doctor, over a new session: settings of databases and roles are for sessions to come.
func (p *database) examined(login string, logins access.Logins, offset time.Duration) []doctor.Finding {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.db.As(login)+"&search_path=pg_catalog,pg_temp")
	p.must(err)
	defer func() { _ = conn.Close(p.t.Context()) }()
	found, err := doctor.Doctor{
		Conn: conn, Roles: p.roles, Slot: "lapse_" + p.db.Name, Logins: logins, Now: func() time.Time { return time.Now().Add(offset) },
	}.Examine(p.t.Context())
	p.must(err)
	return found
}

// oneLogin is the warning that the login which deletes is for everything else too.
func oneLogin(f doctor.Finding) bool {
	return f.Check == "roles" && f.Grade == doctor.Warn && strings.HasPrefix(f.Text, "the login that deletes, ") && strings.Contains(f.Text, "can become the catalog's owner")
}

// usual are warnings of every server of the tests.
func usual(f doctor.Finding) bool {
	return oneLogin(f) || f.Grade == doctor.OK || slices.Contains([]string{"slot retention", "logical messages", "long transactions", "load", "slot", "version"}, f.Check) && f.Grade == doctor.Warn
}

func unusual(found []doctor.Finding) []doctor.Finding {
	return slices.DeleteFunc(slices.Clone(found), usual)
}

// fault is something wrong, and how the doctor names it.
type fault struct {
	plant, check, says string
	grade              doctor.Grade
}

// faults are those whose fix is SQL that takes effect without a restart. {} is the owner's role and schema, D the database.
var faults = []fault{
	{`alter database {D} set track_counts = off`, "track_counts", "batches cannot check", doctor.Fail},
	{`alter role {D}_executor set session_replication_role = replica`, "session_replication_role", "foreign keys are not checked", doctor.Fail},
	{
		`create function {}.f() returns trigger language plpgsql as 'begin return null; end'; create trigger spy after delete on {}.t for each row execute function {}.f()`,
		"policy {}-t", "trigger spy on {}.t", doctor.Fail,
	},
	{`create rule r as on delete to {}.t do also notify x`, "policy {}-t", "rule r on {}.t", doctor.Fail},
	{`create trigger spy before update on {}.s for each row execute function {}.f()`, "policy {}-s", "trigger spy on {}.s", doctor.Fail},
	{
		`alter table {}.s add unique (id, gone); create table {}.kid (id int, gone boolean, foreign key (id, gone) references {}.s (id, gone) on update cascade)`,
		"policy {}-s", "foreign key kid_id_gone_fkey of {}.kid uses the column that the policy sets", doctor.Fail,
	},
	{`drop index {}.t_at_id_idx`, "policy {}-t", "no index on {}.t begins with at", doctor.Warn},
	{`create table {}.child (t int references {}.t on delete set null)`, "policy {}-t", "no index serves foreign key child_t_fkey", doctor.Warn},
	{`alter table {}.t replica identity full`, "policy {}-t", "replica identity is full", doctor.Fail},
	{`alter table {}.parts_all set unlogged`, "policy {}-parts", "parts_all is unlogged", doctor.Fail},
	{`alter table {}.t enable row level security, force row level security`, "policy {}-t", "row security applies", doctor.Fail},
	{`grant delete, update on {}.t to {D}_executor; grant truncate on {}.parts_all to public`, "rights on tables", "without the deletion functions", doctor.Fail},
	{`grant {} to {D}_auditor`, "rights on tables", "without the deletion functions", doctor.Fail},
	{`alter role {D}_owner createrole createdb`, "attributes", "createrole createdb", doctor.Fail},
	{`alter role {D}_executor bypassrls replication`, "attributes", "bypassrls replication", doctor.Fail},
	{`grant {D}_executor to {}`, "roles", "no login of these settings", doctor.Warn},
	{`revoke {D}_owner from {D}_one`, "grants", "lack rights", doctor.Fail},
	{`alter database {D} set default_transaction_read_only = on`, "read only", "nothing can be deleted", doctor.Fail},
}

func TestTheDoctorNamesEveryPlantedFaultAndTheFixesAreEnough(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newInstalled(t, db)
		table := p.table("app", `create table {}.parts (id int, at timestamptz, primary key (id, at)) partition by range (at);
			create table {}.parts_all partition of {}.parts default; create index on {}.parts (at, id);
			create table {}.s (id int primary key, at timestamptz, gone boolean not null default false); create index on {}.s (at, id) where gone is not true;
			create table {}.far (s int references {}.s)`)
		owner := strings.TrimSuffix(table, ".t")
		login := db.NewRole(t, "one")
		db.Exec(t, fmt.Sprintf(`alter role %s replication; grant %s, %s, %s to %[1]s; grant pg_read_all_stats to %[1]s`, login, p.roles.Owner, p.roles.Executor, p.roles.Auditor))
		all := file(t, "", table, owner+".parts")
		all.Policies = append(all.Policies, file(t, ", action: { soft: { column: gone } }", owner+".s").Policies...)
		p.applies(all)
		logins := access.OneLogin(login)
		sound := p.examined(login, logins, 0)
		if found := unusual(sound); len(found) > 0 || !slices.ContainsFunc(sound, oneLogin) {
			t.Fatalf("a sound installation: %+v", sound)
		}
		fill := strings.NewReplacer("{D}", db.Name, "{}", owner).Replace
		for _, f := range faults {
			db.Exec(t, fill(f.plant))
		}
		found := p.examined("postgres", logins, 0)
		for _, f := range faults {
			if !slices.ContainsFunc(found, func(g doctor.Finding) bool {
				return g.Check == fill(f.check) && strings.Contains(g.Text, fill(f.says)) && g.Grade == f.grade && len(g.Fix) > 0
			}) {
				t.Errorf("%s: not found, or without its fix", fill(f.plant))
			}
		}
		// The fixes are run as they are printed. Some faults hide others: a table that is unlogged has no replica identity.
		for range 3 {
			person, err := pgx.Connect(t.Context(), db.URL)
			p.must(err)
			for _, f := range unusual(p.examined("postgres", logins, 0)) {
				for _, sql := range f.Fix {
					if err := run(t, person, sql+";"); err != nil {
						t.Errorf("%s: %s: %v", f.Check, sql, err)
					}
				}
			}
			p.must(person.Close(t.Context()))
		}
		if found := unusual(p.examined("postgres", logins, 0)); len(found) > 0 {
			t.Errorf("after the fixes: %+v", found)
		}
		if found := unusual(p.examined(login, logins, 0)); len(found) > 0 {
			t.Errorf("after the fixes, for the login: %+v", found)
		}
	})
}

// A column that an index or a due time is computed from is missed by whatever else the doctor asks of the table.
func TestTheDoctorNamesColumnsThatAreNotThosePoliciesWereAppliedTo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := newInstalled(t, db)
		changes := []string{`rename at to passed`, `alter at type timestamp`, `drop at, add at timestamptz`, `drop at`}
		var all []string
		for n := range changes {
			all = append(all, p.table(fmt.Sprintf("app%d", n)))
		}
		p.applies(file(t, "", all...))
		dropped := all[len(all)-1] // with the index that evidence: due asks for: it goes with its column
		db.Exec(t, fmt.Sprintf(`alter table %[1]s alter at set not null; create unique index due on %[1]s (at, id); alter table %[1]s replica identity using index due`, dropped))
		for n, change := range changes {
			db.Exec(t, "alter table "+all[n]+" "+change)
		}
		found := p.examined("postgres", access.OneLogin("postgres"), 0)
		for _, table := range all {
			if !slices.ContainsFunc(found, func(f doctor.Finding) bool {
				return f.Grade == doctor.Fail && strings.HasPrefix(f.Text, table+": at: ") && f.Advice != ""
			}) {
				t.Errorf("%s: not found: %+v", table, unusual(found))
			}
			if lost := slices.ContainsFunc(found, func(f doctor.Finding) bool {
				return f.Grade == doctor.Fail && strings.HasPrefix(f.Text, "the deletes of "+table+" cannot be published: ") && f.Advice+strings.Join(f.Fix, "") != ""
			}); lost != (table == dropped) {
				t.Errorf("%s lost its replica identity: %v: %+v", table, lost, unusual(found))
			}
		}
	})
}

func TestTheDoctorWorksWhereNothingIsInstalledAndForAnybody(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := newSite(t, db)
		nobody := db.NewRole(t, "nobody")
		for _, login := range []string{"postgres", nobody} {
			found := p.examined(login, access.OneLogin(login), 0)
			if doctor.Failed(found) || len(found) < 15 {
				t.Errorf("%s: %+v", login, found)
			}
		}
		_, err := p.installer().Install(t.Context())
		p.must(err)
		p.applies(file(t, "", p.table("app")))
		// A stranger is told what cannot be asked, and nothing fails to be said.
		if found := p.examined(nobody, access.OneLogin("postgres"), 0); !slices.ContainsFunc(found, func(f doctor.Finding) bool {
			return f.Check == "schema lapse" && f.Grade == doctor.Warn && strings.Contains(f.Text, "could not be checked")
		}) {
			t.Errorf("got %+v", found)
		}
		db.Exec(t, fmt.Sprintf(`do $$ begin execute format('grant %%I to %%I', (select pg_get_userbyid(relowner) from pg_class where oid = '%s_app.t'::regclass), '%s'); end $$`, db.Name, nobody))
		if found := p.examined("postgres", access.OneLogin(nobody), 0); !slices.ContainsFunc(found, func(f doctor.Finding) bool {
			return f.Check == "rights on tables" && f.Grade == doctor.Warn && strings.Contains(f.Text, "could delete from the tables of policies without the functions")
		}) {
			t.Errorf("got %+v", found)
		}
		if db.Major >= 15 { // another index as the replica identity would not help
			db.Exec(t, "create publication theirs for table "+db.Name+"_app.t where (at is not null)")
			if found := p.examined("postgres", access.OneLogin("postgres"), 0); !slices.ContainsFunc(found, func(f doctor.Finding) bool {
				return f.Grade == doctor.Fail && strings.Contains(f.Text, "a publication filters its rows") && strings.Contains(f.Advice, "alter publication theirs") && len(f.Fix) == 0
			}) {
				t.Errorf("got %+v", found)
			}
			db.Exec(t, "drop publication theirs")
		}
		for _, c := range []struct {
			plant, check, says string
			grade              doctor.Grade
			offset             time.Duration
		}{
			{"", "clock", "the executor deletes nothing", doctor.Fail, time.Hour},
			{"", "clock", "differ by", doctor.Warn, -3 * time.Second},
			{"create publication lapse_x; alter publication lapse_deletes set (publish = 'insert')", "publications", "lapse_deletes", doctor.Fail, 0},
			{"insert into lapse.halt (halted, reason) values (true, 'a test')", "paused", "a test", doctor.Warn, 0},
			{"create table test_blocked (id int references " + db.Name + "_app.t)", "policy " + db.Name + "_app-t", "has no delete action", doctor.Warn, 0},
			{"create table " + db.Name + "_app.cascaded (id int primary key references " + db.Name + "_app.t on delete cascade)", "policy " + db.Name + "_app-t", "cascaded is not published", doctor.Fail, 0},
			{"select pg_drop_replication_slot('lapse_" + db.Name + "')", "slot", "does not exist", doctor.Fail, 0},
			{"alter table " + db.Name + "_app.t rename to u", "paused", "is " + db.Name + "_app.u now", doctor.Fail, 0},
			{"update lapse.installation set schema_version = 4", "schema lapse", "which was never released", doctor.Fail, 0},
			{"alter schema lapse owner to postgres", "schema lapse", "belongs to", doctor.Fail, 0},
		} {
			if c.plant != "" {
				db.Exec(t, c.plant)
			}
			if c.check == "paused" && c.grade == doctor.Fail {
				db.Exec(t, "insert into lapse.halt (halted, reason) values (false, 'a test')")
			}
			found := p.examined("postgres", access.OneLogin("postgres"), c.offset)
			if !slices.ContainsFunc(found, func(f doctor.Finding) bool {
				return f.Check == c.check && f.Grade == c.grade && strings.Contains(f.Text+f.Advice, c.says)
			}) {
				t.Errorf("%s: got %+v", c.plant, found)
			}
		}
	})
}

// A database that was made from another one as its template has armed policies that are not its own.
func TestTheDoctorKnowsACopy(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	if found := p.examined("postgres", access.OneLogin("postgres"), 0); doctor.Failed(found) {
		t.Errorf("the original: %+v", found)
	}
	name := p.db.Name + "_copy"
	p.must(p.admin.Close(t.Context()))
	admin, err := pgx.Connect(t.Context(), strings.Replace(p.db.URL, "/"+p.db.Name, "/postgres", 1))
	p.must(err)
	defer func() { _ = admin.Close(t.Context()) }()
	_, err = admin.Exec(t.Context(), fmt.Sprintf("create database %s template %s", name, p.db.Name))
	p.must(err)
	defer func() { p.db.Exec(t, "drop database "+name+" with (force)") }()
	conn, err := pgx.Connect(t.Context(), strings.Replace(p.db.URL, "/"+p.db.Name, "/"+name, 1)+"&search_path=pg_catalog,pg_temp")
	p.must(err)
	defer func() { _ = conn.Close(t.Context()) }()
	found, err := doctor.Doctor{Conn: conn, Roles: p.roles, Slot: "lapse_" + p.db.Name, Logins: access.OneLogin("postgres"), Now: time.Now}.Examine(t.Context())
	p.must(err)
	if !slices.ContainsFunc(found, func(f doctor.Finding) bool {
		return f.Check == "copy" && f.Grade == doctor.Fail && strings.Contains(f.Text, p.db.Name)
	}) {
		t.Errorf("got %+v", found)
	}
}
