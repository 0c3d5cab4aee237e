package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/internal/config"
	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/schemas"
)

// openReader opens a session that reads the catalog with the fewest rights that the login has: those of the executor, else of the auditor,
// else of the catalog's owner.
func (a *app) openReader(ctx context.Context) (*pgx.Conn, *config.Settings, error) {
	s, err := a.settings()
	if err != nil {
		return nil, nil, err
	}
	conn, err := a.open(ctx, s, session{command: "lapse policy", to: s.Database.Executor})
	if err != nil {
		return nil, nil, err
	}
	if err := becomeReader(ctx, conn, s); err != nil {
		database.Close(conn)
		return nil, nil, err
	}
	return conn, s, nil
}

// becomeReader sets the session's role to the first of these roles that the login is a member of, and checks the installation.
func becomeReader(ctx context.Context, conn *pgx.Conn, s *config.Settings) error {
	roles := []string{s.Roles.Executor, s.Roles.Auditor, s.Roles.Owner}
	var role string
	err := conn.QueryRow(ctx, `
		select w.name
		  from unnest($1::text[]) with ordinality w(name, n)
		  join pg_roles r on r.rolname = w.name
		 where pg_has_role(session_user, r.oid, 'member')
		 order by w.n
		 limit 1`, roles).Scan(&role)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		login := conn.Config().User
		return fmt.Errorf("%q is a member of none of Lapse's roles: run lapse init, or have a superuser run: grant %s to %s",
			login, schemas.Identifier(s.Roles.Executor), schemas.Identifier(login))
	case err != nil:
		return fmt.Errorf("look for the login's roles: %w", err)
	}
	if _, err := conn.Exec(ctx, "set role "+schemas.Identifier(role)); err != nil {
		return fmt.Errorf("become %s: %w", role, err)
	}
	_, err = checkInstalled(ctx, conn, s)
	return err
}

// readPolicyRecord returns the record of a policy. It refuses a name that was never recorded.
func readPolicyRecord(ctx context.Context, conn *pgx.Conn, name string) (*record.Policy, error) {
	kept, err := record.Load(ctx, conn, schemas.PolicyName(name))
	if err != nil || kept != nil {
		return kept, err
	}
	known, err := record.Names(ctx, conn)
	if err != nil {
		return nil, err
	}
	return nil, unknownPolicy(name, known)
}
