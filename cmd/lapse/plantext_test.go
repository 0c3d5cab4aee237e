package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/planner/database"
	"lapse/planner/survey"
)

func TestThePlanOfAGentlePolicySaysHowLongItTakesBesideAnApplication(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		survey survey.Survey
		want   string
	}{
		{
			survey.Survey{Gentle: true, Estimate: 4 * time.Second, Beside: 100 * time.Second, RowsPerSecond: 250, SpeedFrom: survey.Measured},
			"about 4s at 250 rows per second (measured, at gentle pace) | about 1m40s while an application runs, which gentle pace leaves most of the time",
		},
		{
			survey.Survey{Gentle: true, Estimate: time.Millisecond, Beside: 25 * time.Millisecond, RowsPerSecond: 25000, SpeedFrom: survey.Stated},
			"less than a second at 25000 rows per second (stated, at gentle pace)",
		},
		{
			survey.Survey{Estimate: 10 * time.Second, Beside: 10 * time.Second, RowsPerSecond: 50, SpeedFrom: survey.Rated},
			"about 10s at 50 rows per second (rate)",
		},
	} {
		var out strings.Builder
		printer := surveyor{app: &app{out: &out}}
		printer.printTime(&c.survey)
		var lines []string
		for line := range strings.Lines(out.String()) {
			lines = append(lines, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "takes")))
		}
		if got := strings.Join(lines, " | "); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestThePlanOfManyPartitionsSaysInHowManyRowsCanBeDue(t *testing.T) {
	t.Parallel()
	parts := make([]database.Relation, 8)
	for i := range parts {
		parts[i].Name = fmt.Sprint("p", i)
	}
	for _, c := range []struct {
		likely  int
		verbose bool
		want    string
	}{
		{0, false, "none of 8 partitions can have due rows"},
		{2, false, "2 of 8 partitions can have due rows: p0, p1"},
		{7, false, "7 of 8 partitions can have due rows: p0, p1, p2, p3, p4, 2 more"},
		{7, true, "7 of 8 partitions can have due rows: p0, p1, p2, p3, p4, p5, p6"},
		{8, false, "8"},
	} {
		var out strings.Builder
		printer := surveyor{app: &app{out: &out, verbose: c.verbose}}
		printer.printWay(&survey.Survey{Shards: parts, Likely: parts[:c.likely], Better: "why:" + strings.Repeat("\n    create index;", 20)})
		if !strings.HasSuffix(strings.TrimRight(out.String(), "\n"), "  "+c.want) {
			t.Errorf("got %s\nwant %s", &out, c.want)
		}
		if n := strings.Count(out.String(), "create index"); (n == 20) != c.verbose || strings.Contains(out.String(), "11 statements more, with --verbose") == c.verbose {
			t.Errorf("verbose is %t:\n%s", c.verbose, &out)
		}
	}
}
