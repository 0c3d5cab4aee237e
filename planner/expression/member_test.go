package expression

import (
	"fmt"
	"testing"

	"lapse/internal/pgtest"
)

// A login may act as the owner without having its rights: a member that does not inherit them, or by a deleter that is one.
func TestAnExpressionIsReadByAMemberThatInheritsNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		deleter := db.NewRole(t, "deleter")
		membership := map[string]string{
			"member": "alter role %s noinherit; grant " + s.app + " to %[1]s",
			"by_way": "alter role " + deleter + " noinherit; grant " + s.app + " to " + deleter + "; grant " + deleter + " to %s",
			"closed": "alter role %s noinherit; grant " + s.app + " to %[1]s; alter default privileges for role %[1]s revoke execute on functions from public",
		}
		if db.Major >= 16 {
			membership["option"] = "grant " + s.app + " to %s with inherit false, set true"
		}
		for name, sql := range membership {
			role := db.NewRole(t, name)
			s.superuser(t, fmt.Sprintf(sql+"; grant usage on schema shop to %[1]s", role))
			e, problem, err := Read(t.Context(), s.connect(t, role), s.oid(t, "shop.r"), `status = 'closed' and feels = 'ok'`, Boolean)
			if err != nil || problem != "" || len(e.Columns) != 2 {
				t.Errorf("%s: %+v %q %v", name, e, problem, err)
			}
		}
	})
}
