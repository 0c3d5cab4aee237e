package change

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// RestateAll writes the state of every policy that is not dropped once more, with reason, in the caller's transaction, which must hold the gates
// (LockGates). The log that the auditor reads from there then contains what is in force. Armed policies become arming: they delete again when
// the auditor has passed the position that lapse.advance_arming records later. RestateAll returns those.
func RestateAll(ctx context.Context, tx pgx.Tx, reason string) (arming []schemas.PolicyID, err error) {
	rows, err := tx.Query(ctx, `
		update lapse.gate set state = 'arming', arming_lsn = null where state in ('armed', 'arming') returning policy_id`)
	if err == nil {
		arming, err = pgx.CollectRows(rows, pgx.RowTo[schemas.PolicyID])
	}
	if err == nil {
		_, err = tx.Exec(ctx, `
			insert into lapse.policy_state (policy_id, version, state, reason)
			select g.policy_id, g.version, g.state, $1 from lapse.gate g where g.state <> 'dropped' order by g.policy_id`, reason)
	}
	if err != nil {
		return nil, fmt.Errorf("restate the policies: %w", err)
	}
	return arming, nil
}
