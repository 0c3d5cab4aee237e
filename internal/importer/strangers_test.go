package importer

import (
	"flag"
	"os"
	"testing"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
)

var update = flag.Bool("update", false, "write the golden files")

// What becomes of jobs as strangers write them is in testdata/strangers.yaml, for a person to read.
func TestJobsOfStrangersAreImported(t *testing.T) {
	t.Parallel()
	ddl, err := os.ReadFile("testdata/strangers.ddl.sql")
	must(t, err)
	jobs, err := os.ReadFile("testdata/strangers.sql")
	must(t, err)
	s := newSite(t, pgtest.New(t, pgtest.Newest(t)), "postgres", string(ddl))
	s.usual.Zone, s.usual.assumedZone = utc, true
	items, err := cronText(t.Context(), s.Server, string(jobs))
	must(t, err)
	f := Text("pg_cron", items)
	fixture.WantFile(t, *update, "testdata/strangers.yaml", string(f.Text))
	if f.Found != 13 || f.Policies != 10 || f.Lost != 5 {
		t.Errorf("%d of %d are policies, and of %d something is said", f.Policies, f.Found, f.Lost)
	}
}
