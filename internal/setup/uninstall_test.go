package setup_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/internal/setup/install"
	"lapse/internal/setup/site"
	"lapse/internal/setup/uninstall"
)

// uninstalls uninstalls over sessions of its own.
func (p *database) uninstalls() ([]string, error) {
	ctx := p.t.Context()
	owner, err := p.connect(ctx, install.PlayOwner)
	if err != nil {
		return nil, err
	}
	defer func() { _ = owner.Close(context.WithoutCancel(ctx)) }()
	auditor, err := p.connect(ctx, install.PlayAuditor)
	if err != nil {
		return nil, err
	}
	defer func() { _ = auditor.Close(context.WithoutCancel(ctx)) }()
	return uninstall.Uninstaller{
		Session: site.Session{Conn: owner, Roles: p.roles, Log: quiet}, Auditor: auditor, Slot: "lapse_" + p.db.Name, Reason: "a test", Login: p.connectLogin,
	}.Uninstall(ctx)
}

func TestUninstallLeavesRolesAndNothingElse(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newInstalled(t, db)
		p.applies(file(t, "", p.family()...))
		warnings, err := p.uninstalls()
		if err != nil || len(warnings) > 0 {
			t.Fatalf("got %q, %v", warnings, err)
		}
		p.isGone()
		if _, err := p.uninstalls(); !errors.Is(err, site.ErrNotInstalled) {
			t.Errorf("the second time: got %v", err)
		}
		_, err = p.installer().Install(t.Context())
		p.must(err)
	})
}

func (p *database) isGone() {
	p.t.Helper()
	for _, line := range p.state() {
		if !strings.HasPrefix(line, "role ") && !strings.HasPrefix(line, "member ") || strings.Contains(line, "deleter_N") {
			p.t.Errorf("left over is: %s", line)
		}
	}
}

func TestAnUninstallThatLosesItsConnectionAtAnyStatementIsTakenUp(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	p.applies(file(t, "", p.family()...))
	p.untilWhole(2, func(s *statements) error {
		_, err := p.uninstalls()
		if err == nil && len(s.all) >= s.cut {
			return errors.New("the commit that was cut was the owner's last; the slot is the auditor's")
		}
		if errors.Is(err, site.ErrNotInstalled) {
			return nil // the cut came after its last commit
		}
		return err
	})
	p.isGone()
}

// What is printed, run on one database, and what is executed on another leave the same.
func TestThePrintedWayBackEndsWhereTheExecutedOneDoes(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		set := func(db *pgtest.DB) *database {
			p := newInstalled(t, db)
			plain, parts := p.indexed("idx")
			db.Exec(t, `create table public.super (id int primary key, at timestamptz)`)
			_, err := p.makes(file(t, ", index: create", append(p.family(), plain, parts, "public.super")...))
			p.must(err)
			return p
		}
		executed, printed := set(db), set(pgtest.New(t, db.Major))
		before := printed.state()
		statements, err := uninstall.SQL(t.Context(), printed.admin, printed.roles, "lapse_"+printed.db.Name, false)
		printed.must(err)
		same(t, "printing changes nothing", printed.state(), before)
		for range 2 {
			for _, sql := range statements {
				db := printed.db.Connect(t)
				if err := run(t, db, sql+";"); err != nil {
					t.Errorf("%s: %v", sql, err)
				}
				printed.must(db.Close(t.Context()))
			}
		}
		warnings, err := executed.uninstalls()
		if err != nil || len(warnings) > 0 {
			t.Fatalf("got %q, %v", warnings, err)
		}
		same(t, "printed and executed", printed.state(), executed.state())
		for _, p := range []*database{printed, executed} {
			p.isGone()
			if got := append(p.acls(), ask[[]string](p, made)...); len(got) > 0 {
				t.Errorf("left is %q", got)
			}
		}
		if _, err := uninstall.SQL(t.Context(), printed.admin, printed.roles, "lapse_"+printed.db.Name, false); !errors.Is(err, site.ErrNotInstalled) {
			t.Errorf("the second time: got %v", err)
		}
		drops, err := uninstall.DropRolesSQL(t.Context(), printed.admin, printed.roles)
		printed.must(err)
		for _, sql := range drops {
			printed.must(run(t, printed.db.Connect(t), sql))
		}
	})
}

// Two databases of a cluster may share a deleter: one goes, the other goes on.
func TestUninstallLeavesTheDeleterThatAnotherDatabaseNeeds(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	other := newSite(t, pgtest.New(t, p.db.Major))
	other.roles = p.roles
	_, err := other.installer().Install(t.Context())
	p.must(err)
	for _, s := range []*database{p, other} {
		s.db.Exec(t, `create table public.super (id int primary key, at timestamptz)`)
		s.applies(file(t, "", "public.super"))
	}
	before := other.state()
	_, err = p.uninstalls()
	p.must(err)
	same(t, "the other database", other.state(), before)
	if ask[bool](p, `select to_regnamespace('lapse') is not null`) {
		t.Error("the catalog is still there")
	}
	_, err = other.uninstalls()
	p.must(err)
	if ask[bool](p, `select exists (select from pg_roles where rolname = $1)`, p.roles.Deleter(10)) {
		t.Error("the deleter is still there")
	}
}
