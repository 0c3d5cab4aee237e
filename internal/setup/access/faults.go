package access

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/record"
	"lapse/schemas"
)

// DeleterFaults says what the deleter of a policy's table lacks, or must not have: a CircleError, GrantErrors with the statements that fix
// it, or what EnsureDeleter fixes. It does not depend on the calling login. It changes nothing and locks nothing.
func DeleterFaults(ctx context.Context, tx pgx.Tx, t Table, roles schemas.Roles) (faults []error, err error) {
	e := &equipping{tx: tx, t: t, roles: roles, name: roles.Deleter(t.OwnerOID)}
	d, err := e.find(ctx)
	if err != nil {
		return nil, err
	}
	d.MayGive = true // only apply needs that
	if d.Circle {
		return []error{&CircleError{t.Owner, t.Name, roles.Owner}}, nil
	}
	if excess := e.excess(&d); excess != nil {
		return []error{excess}, nil
	}
	missing, err := e.missing(ctx, &d)
	for _, m := range missing {
		faults = append(faults, &GrantError{SQL: m.sql, Why: m.why})
	}
	if err != nil || len(faults) > 0 {
		return faults, err
	}
	if d.Blind != "" {
		blind := &record.RowSecurityError{Deleter: e.name, Table: d.Blind}
		return []error{&GrantError{SQL: blind.Fix(), Why: blind.Problem()}}, nil
	}
	var refused *GrantError
	if errors.As(e.refusal(&d), &refused) {
		return []error{refused}, nil
	}
	if !d.ready() {
		return []error{fmt.Errorf("%s lacks rights in schema lapse", e.name)}, nil
	}
	return nil, nil
}

// ready reports that nothing is missing.
func (d *deleter) ready() bool {
	return len(d.lacks()) == 0
}

// lacks names what is missing.
func (d *deleter) lacks() (all []string) {
	for _, fact := range []struct {
		what string
		so   bool
	}{
		{"the role", d.Exists},
		{"an owner that does not own the catalog", !d.Circle},
		{"membership in the owner", d.Super || d.Member},
		{"freedom from other roles", d.Others == "" && d.Strangers == ""},
		{"freedom from attributes", !d.Powerful},
		{"a login that may become it", d.MayGive},
		{"a login that inherits", d.Inherits},
		{"rights in schema lapse", d.Equipped},
		{"its place in lapse.deleter", d.Recorded},
		{"rights in the table's schemas", len(d.Schemas) == 0},
		{"rights on the table", d.Refused == ""},
		{"sight of every row", d.Blind == ""},
	} {
		if !fact.so {
			all = append(all, fact.what)
		}
	}
	return all
}

// excess says what a deleter has but must not have.
func (e *equipping) excess(d *deleter) error {
	switch {
	case d.Others != "":
		return &GrantError{
			SQL: fmt.Sprintf("revoke %s from %s", d.Others, schemas.Identifier(e.name)),
			Why: fmt.Sprintf("%s deletes for %s alone, and is a member of %s", e.name, e.t.Owner, d.Others),
		}
	case d.Strangers != "":
		return &GrantError{
			// Cascade also revokes what they granted.
			SQL: fmt.Sprintf("revoke %s from %s cascade", schemas.Identifier(e.name), d.Strangers),
			Why: fmt.Sprintf("%s, which is not a member of %s, is a member of %s or may grant it, and could change its functions", d.Strangers, e.roles.Owner, e.name),
		}
	case d.Powerful:
		return &GrantError{
			SQL: fmt.Sprintf("alter role %s nologin nosuperuser nocreaterole nocreatedb noreplication", schemas.Identifier(e.name)),
			Why: fmt.Sprintf("%s has an attribute that a role for deleting needs none of", e.name),
		}
	}
	return nil
}

// refusal is a fault that no grant of this session can fix.
func (e *equipping) refusal(d *deleter) error {
	switch {
	case d.Refused != "" && d.RefusedOf != e.t.Owner:
		return &GrantError{
			SQL: fmt.Sprintf("alter table %s owner to %s", d.Refused, schemas.Identifier(e.t.Owner)),
			Why: fmt.Sprintf("partition %s belongs to %s and its root to %s", d.Refused, d.RefusedOf, e.t.Owner),
		}
	case d.Refused != "":
		return &GrantError{
			SQL: fmt.Sprintf("alter role %s inherit", schemas.Identifier(e.name)),
			Why: fmt.Sprintf("%s is a member of %s and does not inherit its rights", e.name, e.t.Owner),
		}
	case d.Blind != "":
		// The reader of this error does not have a role that only this transaction made.
		sql := "alter role " + schemas.Identifier(e.name) + " bypassrls"
		if e.made {
			sql = "create role " + schemas.Identifier(e.name) + " nologin bypassrls"
		}
		return &GrantError{
			SQL: sql,
			Why: fmt.Sprintf("row security applies to %s on %s, so that it would not see every row", e.name, d.Blind), Apart: true,
		}
	case !d.ready():
		return fmt.Errorf("role %s lacks what it was just given (%s): see \\du and \\dp for who took it", e.name, strings.Join(d.lacks(), ", "))
	}
	return nil
}
