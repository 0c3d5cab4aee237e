package setup_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/internal/setup"
)

// uninstalls uninstalls over sessions of its own.
func (p *site) uninstalls() ([]string, error) {
	ctx := p.t.Context()
	owner, err := p.connect(ctx, setup.PlayOwner)
	if err != nil {
		return nil, err
	}
	defer func() { _ = owner.Close(context.WithoutCancel(ctx)) }()
	auditor, err := p.connect(ctx, setup.PlayAuditor)
	if err != nil {
		return nil, err
	}
	defer func() { _ = auditor.Close(context.WithoutCancel(ctx)) }()
	return setup.Uninstaller{
		Session: setup.Session{Conn: owner, Roles: p.roles, Log: quiet}, Auditor: auditor, Reason: "a test",
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
		if _, err := p.uninstalls(); !errors.Is(err, setup.ErrNotInstalled) {
			t.Errorf("the second time: got %v", err)
		}
		_, err = p.installer().Install(t.Context())
		p.must(err)
	})
}

func (p *site) isGone() {
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
	p.untilWhole(2, func(*statements) error {
		_, err := p.uninstalls()
		if errors.Is(err, setup.ErrNotInstalled) {
			return nil // the cut came after its last commit
		}
		return err
	})
	p.isGone()
}
