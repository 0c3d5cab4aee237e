package setup

import (
	"context"
	"fmt"
	"strings"

	"lapse/schemas"
)

// equip gives the deleter its rights in schema lapse, and takes it down. The role is the catalog's owner afterwards.
func (e *equipping) equip(ctx context.Context) error {
	if err := e.as(ctx, schemas.Identifier(e.roles.Owner)); err != nil {
		return err
	}
	for _, sql := range e.equipment() {
		if _, err := e.tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	_, err := e.tx.Exec(ctx, `insert into lapse.deleter (role, owner) values ($1, $2) on conflict (role) do update set owner = excluded.owner`,
		e.name, e.t.OwnerOID)
	if err != nil {
		return fmt.Errorf("record %s: %w", e.name, err)
	}
	return nil
}

// equipment are the grants in schema lapse.
func (e *equipping) equipment() []string {
	name := schemas.Identifier(e.name)
	return []string{
		"grant usage on schema lapse to " + name,
		"grant select on " + schemas.CallerView + " to " + name,
		"grant execute on function " + strings.Join(schemas.DeleterFunctions(), ", ") + " to " + name,
	}
}
