package tables

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/site"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// Quarantined is a row that could not be deleted. Its key is personal data: show it only to a person who asked for it, and never log it.
type Quarantined struct {
	Policy     schemas.PolicyName `json:"policy"`
	Table      string             `json:"table"` // or partition
	Key        RowKey             `json:"key"`
	SQLState   string             `json:"sqlstate"`
	Relation   string             `json:"constraint_table,omitempty"`
	Constraint string             `json:"constraint,omitempty"`
	Column     string             `json:"column,omitempty"`  // that may not be null
	Trigger    string             `json:"trigger,omitempty"` // in which the error was raised, and its function
	Function   string             `json:"trigger_function,omitempty"`
	Tries      int                `json:"tries"`
	Since      time.Time          `json:"since"`
	Tried      time.Time          `json:"tried"`
	NextTry    time.Time          `json:"next_try"`
	Finds      string             `json:"find_referring_rows,omitempty"` // a query, where a foreign key blocks the rows
}

// RowKey is a row's key: its columns, and their values as texts.
type RowKey struct {
	Columns []string
	Values  []string
}

// String is column=value, comma separated.
func (k RowKey) String() string {
	parts := make([]string, len(k.Values))
	for i := range k.Values {
		parts[i] = k.Columns[i] + "=" + k.Values[i]
	}
	return strings.Join(parts, ", ")
}

// MarshalJSON writes an object in the columns' order.
func (k RowKey) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for i := range k.Values {
		for _, part := range []string{k.Columns[i], k.Values[i]} {
			quoted, err := json.Marshal(part)
			if err != nil {
				return nil, err
			}
			text = append(append(text, quoted...), ':')
		}
		text[len(text)-1] = ','
	}
	text[len(text)-1] = '}'
	return text, nil
}

// UnknownKeysError says how many of the given keys are not in quarantine. It does not repeat them.
type UnknownKeysError struct {
	Policy  schemas.PolicyName
	Unknown int
	Named   int
	Columns []string // of the policy's key
	Width   int      // the number of values of an unknown key, if possible of one that does not match the number of columns
}

func (e *UnknownKeysError) Error() string {
	if e.Width != len(e.Columns) {
		return fmt.Sprintf(`policy %s: a key of its table has %d columns, (%s), and one that was named has %d: nothing was changed; of several columns it is a JSON array of texts in that order, such as --key '["4711","7"]'`,
			e.Policy, len(e.Columns), strings.Join(e.Columns, ", "), e.Width)
	}
	what := fmt.Sprintf("%d of the %d keys are", e.Unknown, e.Named)
	switch {
	case e.Named == 1:
		what = "the key is"
	case e.Unknown == 1:
		what = fmt.Sprintf("1 of the %d keys is", e.Named)
	}
	return fmt.Sprintf("policy %s: %s not in quarantine: nothing was changed; `lapse quarantine list %s` shows those that are", e.Policy, what, e.Policy)
}

// Quarantine lists the rows in quarantine of a policy, or of all policies in force if it is "", in the order of their next tries.
func Quarantine(ctx context.Context, s *site.Session, policy schemas.PolicyName) ([]Quarantined, error) {
	inForce, err := namedOrAll(ctx, s, policy)
	if err != nil {
		return nil, err
	}
	all := []Quarantined{}
	queries := map[[2]string]string{}
	for i := range inForce {
		rows, err := quarantinedRows(ctx, s, &inForce[i])
		if err != nil {
			return nil, err
		}
		for j := range rows {
			r := &rows[j]
			what := [2]string{r.Relation, r.Constraint}
			if _, known := queries[what]; !known && r.Constraint != "" {
				if queries[what], err = run.Referring(ctx, s.Conn, &inForce[i], r.Relation, r.Constraint); err != nil {
					return nil, err
				}
			}
			r.Finds = queries[what]
		}
		all = append(all, rows...)
	}
	return all, nil
}

// namedOrAll returns the policy in force of that name, or all if it is "".
func namedOrAll(ctx context.Context, s *site.Session, policy schemas.PolicyName) ([]record.InForce, error) {
	inForce, err := record.LoadInForce(ctx, s.Conn)
	if err != nil || policy == "" {
		return inForce, err
	}
	for i := range inForce {
		if inForce[i].Name == policy {
			return inForce[i : i+1], nil
		}
	}
	unknown := &UnknownPolicyError{Policy: policy}
	for i := range inForce {
		unknown.Known = append(unknown.Known, string(inForce[i].Name))
	}
	return nil, unknown
}

// UnknownPolicyError names a policy that is not in force.
type UnknownPolicyError struct {
	Policy schemas.PolicyName
	Known  []string // those that are
}

func (e *UnknownPolicyError) Error() string {
	return fmt.Sprintf("there is no policy %q in force", e.Policy)
}

func quarantinedRows(ctx context.Context, s *site.Session, p *record.InForce) ([]Quarantined, error) {
	rows, err := s.Conn.Query(ctx, `
		select coalesce(format('%I.%I', n.nspname, c.relname), 'relation ' || q.leaf || ', which is gone'), q.key, q.sqlstate, coalesce(q.relation, ''),
		       coalesce(q.constraint_name, ''), coalesce(q.column_name, ''), coalesce(q.trigger_name, ''), coalesce(q.trigger_function, ''), q.tries, q.entered_at, q.tried_at, q.retry_at
		  from lapse.quarantine q
		  left join pg_class c on c.oid = q.leaf
		  left join pg_namespace n on n.oid = c.relnamespace
		 where q.policy_id = $1
		 order by q.retry_at, q.key`, p.ID)
	if err != nil {
		return nil, fmt.Errorf("list the rows in quarantine: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Quarantined, error) {
		r := Quarantined{Policy: p.Name, Key: RowKey{Columns: p.KeyNames()}}
		return r, row.Scan(&r.Table, &r.Key.Values, &r.SQLState, &r.Relation, &r.Constraint, &r.Column, &r.Trigger, &r.Function, &r.Tries, &r.Since, &r.Tried, &r.NextTry)
	})
	if err != nil {
		return nil, fmt.Errorf("list the rows in quarantine: %w", err)
	}
	return all, nil
}

// RetryQuarantined lets the next run retry rows: those with one of keys, or all if there are none. Their counts stay. It returns how many
// there are. Durable when it returns.
func RetryQuarantined(ctx context.Context, s *site.Session, policy schemas.PolicyName, keys [][]string) (int64, error) {
	return changeQuarantine(ctx, s, policy, keys, `update lapse.quarantine q set retry_at = least(q.retry_at, clock_timestamp()) where q.policy_id = $1`)
}

// ForgiveQuarantined removes rows from the quarantine: the next run finds them as if it had never tried them, because it also starts its
// scan at the beginning.
func ForgiveQuarantined(ctx context.Context, s *site.Session, policy schemas.PolicyName, keys [][]string) (int64, error) {
	return changeQuarantine(ctx, s, policy, keys, `with behind as (delete from lapse.low_water l where l.policy_id = $1) delete from lapse.quarantine q where q.policy_id = $1`)
}

func changeQuarantine(ctx context.Context, s *site.Session, policy schemas.PolicyName, keys [][]string, change string) (changed int64, err error) {
	inForce, err := namedOrAll(ctx, s, policy)
	if err != nil {
		return 0, err
	}
	p := &inForce[0]
	err = s.Locked(ctx, "change the quarantine of policy "+string(policy), func(tx pgx.Tx) error {
		changed = 0
		if len(keys) == 0 {
			tag, err := tx.Exec(ctx, change, p.ID)
			changed = tag.RowsAffected()
			return err
		}
		unknown, width := 0, 0
		for _, key := range keys {
			tag, err := tx.Exec(ctx, change+` and q.key = $2`, p.ID, key)
			if err != nil {
				return err
			}
			if changed += tag.RowsAffected(); tag.RowsAffected() == 0 {
				if unknown++; unknown == 1 || len(key) != len(p.KeyNames()) {
					width = len(key)
				}
			}
		}
		if unknown > 0 {
			return &UnknownKeysError{Policy: policy, Unknown: unknown, Named: len(keys), Columns: p.KeyNames(), Width: width}
		}
		return nil
	})
	return changed, err
}
