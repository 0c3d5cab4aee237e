package audit_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/evidencetest"
)

// The catalog's owner can have another digest written than the one that was signed.
func TestALedgerRowWithAnotherDigestThanWasSignedIsUnverified(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		ctx := t.Context()
		r.db.Exec(t, `alter table lapse.batch alter functions drop not null`,
			`alter table lapse.batch drop constraint batch_functions_check`,
			`create function public.forge() returns trigger language plpgsql as 'begin return new; end'`,
			`create trigger forge before insert on lapse.batch for each row execute function public.forge()`)
		for _, forged := range []string{
			`new.functions`,
			`set_byte(new.functions, 31, get_byte(new.functions, 31) # 1)`,
			`null`,
			`substring(new.functions from 1 for 31)`,
			`new.functions || '\x00'::bytea`,
			`''`,
		} {
			r.db.Exec(t, fmt.Sprintf(`create or replace function public.forge() returns trigger language plpgsql as
				$$begin new.functions := %s; return new; end$$`, forged))
			ids, err := w.rows(ctx, 2)
			if err != nil {
				t.Fatal(err)
			}
			err = w.commit(ctx, want, func(ctx context.Context, tx pgx.Tx) (outcome, error) {
				o, err := batch(ids, nil)(ctx, tx)
				if forged != `new.functions` {
					o = outcome{causes: causesOf(ids, "unverified"), verdict: "unclaimed"}
				}
				return o, err
			})
			if err != nil {
				t.Fatalf("%s: %v", forged, err)
			}
		}
		r.once(t)
		r.verify(t, want)
		if got := r.digests(t); !slices.Equal(got, []string{fmt.Sprintf("%x", testFunctions)}) {
			t.Errorf("the log names the functions %v, want those of the one claim that verifies, %x", got, testFunctions)
		}
	})
}

// digests are those in the log's claims.
func (r *rig) digests(t *testing.T) (digests []string) {
	t.Helper()
	for _, record := range r.readAll(t, r.settings.Log) {
		if record.Header("lapse-op") != "transaction" {
			continue
		}
		if claim, ok := evidencetest.ParseJSON(t, record.Value).(map[string]any)["claim"].(map[string]any); ok {
			digests = append(digests, fmt.Sprint(claim["functions"]))
		}
	}
	return digests
}
