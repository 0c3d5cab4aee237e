package hold

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/schemas"
)

// A mistyped key in a legal hold holds nothing, and nobody notices until the row is deleted. So a person who places a hold learns which of its keys
// no row has. The comparison works as a draft's count does (see Draft), and covers rows that exist now: a hold may well be for rows still to
// come.

// Matches says which keys of a hold have rows.
type Matches struct {
	Given int `json:"keys,omitempty"` // the number of keys; 0 for a condition
	// Without are the numbers, from 1, of the keys that no row has. A condition that no row meets is number 0.
	Without []int  `json:"without_row"`
	Trouble string `json:"not_compared,omitempty"` // why nothing is known
}

// heldMatches is the name of the function that compares.
const heldMatches = "pg_temp.unmatched"

// Match compares a hold with the rows of its table. If it cannot, that is a Trouble, not an error: the hold is in force in any case. No key is in a
// statement's text or in the result.
func Match(ctx context.Context, d *database.Draft, h *Hold) (Matches, error) {
	m := Matches{Given: len(h.given), Without: []int{}}
	err := d.Count(ctx, func(tx *database.DraftTx) (err error) {
		m.Without, err = match(ctx, d, tx, h)
		return err
	})
	if refused := (*database.RefusedError)(nil); errors.As(err, &refused) {
		m.Trouble, err = refused.Text, nil
	} else if err != nil {
		if m.Trouble = database.Trouble(err); m.Trouble != "" {
			err = nil
		}
	}
	if err != nil {
		return m, fmt.Errorf("compare the hold with %s: %w", h.Table, err)
	}
	return m, nil
}

// match makes the function, gives it to the role that it must not exceed, and calls it once.
func match(ctx context.Context, d *database.Draft, tx *database.DraftTx, h *Hold) (without []int, err error) {
	text, err := h.matchText()
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "create table pg_temp.held_key (n int primary key, key text[]); grant select on pg_temp.held_key to public;\n"+text,
		pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, fmt.Errorf("make the function that compares: %w", err)
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "held_key"}, []string{"n", "key"}, pgx.CopyFromSlice(len(h.given), func(i int) ([]any, error) {
		return []any{int32(i + 1), h.given[i]}, nil // #nosec G115 -- at most mostKeys
	}))
	if err != nil {
		return nil, fmt.Errorf("hand the keys over: %w", err)
	}
	owner, err := database.OwnerOf(ctx, tx, h.TableOID, h.Table)
	if err != nil {
		return nil, err
	}
	if err := tx.Give(ctx, database.Giving{Function: heldMatches + "()", Name: h.Table, Owner: owner, Reads: []string{h.Table}, Deleter: d.Roles.Deleter}); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "analyze pg_temp.held_key; set transaction read only", pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, fmt.Errorf("begin to read: %w", err)
	}
	err = database.GivingWay(ctx, tx.Conn(), nil, func() error {
		return tx.QueryRow(ctx, "select "+heldMatches+"()", pgx.QueryExecModeDescribeExec).Scan(&without)
	})
	return without, err
}

// matchText is the script that makes the function.
func (h *Hold) matchText() (string, error) {
	where := "(" + h.Where + ") is not false"
	if h.Where == "" {
		equal := make([]string, len(h.Columns))
		for i, c := range h.Columns {
			equal[i] = fmt.Sprintf("t.%s operator(pg_catalog.=) (k.key[%d])::%s", schemas.Identifier(c.Name), i+1, h.bases[i])
		}
		where = strings.Join(equal, " and ")
	}
	if strings.Contains(where+h.Table, functions.BodyQuote) || strings.ContainsAny(h.Table, "\r\n") {
		return "", &database.RefusedError{Text: fmt.Sprintf("a name or the condition contains a line break or %s, which ends a function's body", functions.BodyQuote)}
	}
	return functions.DraftMatch(heldMatches, h.Table, h.TableOID, where, h.Where == "")
}
