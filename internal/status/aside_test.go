package status

import (
	"testing"
	"time"
)

func TestAShardThatIsPutAsideSaysWhoIsInTheWay(t *testing.T) {
	t.Parallel()
	a := Aside{Shards: 2, SQLStates: []string{"55P03", "57014", "XX001"}, Next: time.Unix(0, 0)}
	want := "2 shards put aside (SQLSTATE 55P03, another session holds a lock: see pg_locks; " +
		"SQLSTATE 57014, not even one row is found in time: `lapse plan` names the index; SQLSTATE XX001), next try 1970-01-01T00:00:00Z"
	if got := a.text(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
