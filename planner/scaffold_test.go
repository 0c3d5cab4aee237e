package planner

import (
	"path/filepath"
	"strings"
	"testing"

	"lapse/internal/fixture"
	"lapse/planner/expiry"
)

func goldenScaffolds() map[string]Scaffold {
	return map[string]Scaffold{
		"expires_at": {Schema: "app", Table: "sessions", Owner: "app", Option: ScaffoldExpiresAt, After: expiry.Interval{Days: 90}, Column: "expires_at"},
		"expires_at_refresh": {
			Schema: "App'x", Table: `Ta"ble`, Owner: "an owner", Option: ScaffoldExpiresAt, After: expiry.Interval{Months: 1, Days: 2}, Column: `due "at"`, Refresh: true,
			Present: []ScaffoldColumn{{Name: `due "at"`, Type: "timestamp with time zone", Made: true}}, Leaves: []string{`"App'x"."Ta""ble_1"`},
		},
		"ttl":         {Schema: "app", Table: "sessions", Owner: "app", Option: ScaffoldTTL, After: expiry.Interval{Days: 90}, Column: "expires_at", Leaves: []string{"app.sessions"}},
		"ttl_refresh": {Schema: "app", Table: "sessions", Owner: "app", Option: ScaffoldTTL, After: expiry.Interval{Days: 1}, Column: "expires_at", Refresh: true, Present: []ScaffoldColumn{{Name: "created_at", Type: "timestamp with time zone"}}},
		"sidecar": {
			Schema: "app", Table: "sessions", Owner: "app", Option: ScaffoldSidecar, After: expiry.Interval{Days: 90}, Column: "expires_at",
			Key: []ScaffoldColumn{{Name: "tenant", Type: `text collate pg_catalog."C"`}, {Name: "Id", Type: "bigint"}}, Writers: []string{"web", "public"}, Leaves: []string{"app.sessions"},
		},
		"sidecar_refresh": {
			Schema: "app", Table: "sessions", Owner: "app", Option: ScaffoldSidecar, After: expiry.Interval{Days: 90}, Column: "expires_at", Refresh: true,
			Key: []ScaffoldColumn{{Name: "id", Type: "bigint"}}, Registry: true,
		},
	}
}

// A DBA reads these files before running them.
func TestTheTextOfAScaffoldIsAPureFunctionOfTheTable(t *testing.T) {
	t.Parallel()
	for name, s := range goldenScaffolds() {
		var got strings.Builder
		for _, write := range []func() (string, error){
			s.SQL, s.BackfillSQL, func() (string, error) { return s.DropSQL(false) }, func() (string, error) { return s.DropSQL(true) },
		} {
			sql, err := write()
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString(sql + "\n")
		}
		fixture.WantFile(t, *update, filepath.Join("testdata", "scaffold", name+".sql"), got.String())
	}
}

func TestAScaffoldIsRefusedThatWouldNotBeWhatItSays(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Scaffold){
		"whole seconds":               func(s *Scaffold) { s.Option, s.After = ScaffoldTTL, expiry.Interval{Months: 1} },
		"for something else":          func(s *Scaffold) { s.Option, s.Column = ScaffoldTTL, "ttl_seconds" },
		"which has none":              func(s *Scaffold) { s.Option = ScaffoldSidecar },
		"a column of the primary key": func(s *Scaffold) { s.Key = []ScaffoldColumn{{Name: "expires_at"}} },
		"a line break":                func(s *Scaffold) { s.Table = "a\nb" },
		"which ends":                  func(s *Scaffold) { s.Column = "a$lapse$" },
	} {
		s := goldenScaffolds()["expires_at"]
		change(&s)
		if sql, err := s.SQL(); err == nil || !strings.Contains(err.Error(), want) || sql != "" {
			t.Errorf("got %v, want a refusal with %q", err, want)
		}
	}
}

// PostgreSQL cuts longer names off, so that two tables would share a function.
func TestWhatAScaffoldMakesOfALongNameIsItsTablesAlone(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("ä", 31)
	a, b := Scaffold{Table: name}, Scaffold{Table: name + "b"}
	for _, of := range []func(*Scaffold) string{
		(*Scaffold).RegistryName, func(s *Scaffold) string { return derived("lapse_expire_", s.Table, "") },
	} {
		if of(&a) == of(&b) || len(of(&a)) > longestName || len(of(&b)) > longestName || strings.ToValidUTF8(of(&a), "") != of(&a) {
			t.Errorf("%q (%d bytes) and %q", of(&a), len(of(&a)), of(&b))
		}
	}
}
