package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/replication"
)

// alarmTimeout bounds one alarm.
const alarmTimeout = 10 * time.Second

// stopDeletions stops every deletion in the database if the deletion functions wrote a batch that does not verify, because that batch
// cannot be told from a forgery. It returns when the stop is durable, before the transaction's record is written.
//
//	crash before the stop is durable       the slot sends the transaction again, and stopDeletions is called again
//	crash before the record is in the log  the same; to stop what is stopped changes nothing
//	a person resumed in between            deletion is stopped once more: nothing shows that the transaction is an old one
func (r *relay) stopDeletions(ctx context.Context, tx *replication.Tx, account *evidence.Account) error {
	if account.OwnUnverified == nil {
		return nil
	}
	batch := *account.OwnUnverified
	r.log.Error("a batch of the deletion functions fits none of the tag keys; stopping every deletion in the database",
		"batch", batch.String(), "xid", tx.XID, "commit_lsn", tx.CommitLSN.String(), "look_at", alarmAdvice,
		"then", "lapse resume --all --reason TEXT")
	if r.alarm == nil {
		return nil
	}
	return r.stream.During(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, alarmTimeout)
		defer cancel()
		if err := r.alarm(ctx, alarmReason(tx, batch)); err != nil {
			return &alarmError{batch: batch, cause: err}
		}
		return nil
	})
}

// alarmAdvice says what to do about a batch that does not verify.
const alarmAdvice = "compare the key named tag of every executor with the auditor's; if they are the same, somebody else deletes " +
	"with the executor's login: change its password"

// alarmReason is what the database records of an alarm. Of what the batch's writer chose it contains only the batch's id.
func alarmReason(tx *replication.Tx, batch uuid.UUID) string {
	return fmt.Sprintf("batch %s, transaction %d at %s, was written as the deletion functions write one and fits none of the audit's tag "+
		"keys: its rows are published as unverified. %s", batch, tx.XID, tx.CommitLSN, alarmAdvice)
}
