package replication

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// lapse init makes no slot in place of one that it has made before, unless it is told to.
func TestALostSlotIsReportedWithTheWayOn(t *testing.T) {
	t.Parallel()
	s := &Stream{slot: "lapse_app"}
	state := func(code string) error { return &pgconn.PgError{Code: code} }
	for name, err := range map[string]error{
		"missing":               s.refused(state(schemas.SQLStateUndefinedObject)),
		"lost":                  s.refused(state(schemas.SQLStateNotInPrerequisiteState)),
		"lost while it is read": s.streamError(state(schemas.SQLStateNotInPrerequisiteState)),
		"publication missing":   s.streamError(state(schemas.SQLStateUndefinedObject)),
		"missing at a look":     CheckSlot(SlotState{Name: "lapse_app"}, "app"),
		"lost at a look":        CheckSlot(SlotState{Name: "lapse_app", Exists: true, Plugin: outputPlugin, Database: "app", WALStatus: "lost"}, "app"),
	} {
		if text := err.Error(); !strings.Contains(text, "lapse init --new-slot") || !strings.Contains(text, "the topics stay") {
			t.Errorf("%s: %s", name, text)
		}
		there := name != "missing" && !strings.HasSuffix(name, " at a look")
		if text := err.Error(); there != strings.Contains(text, "select pg_drop_replication_slot('lapse_app')") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
