package main

import (
	"strings"
	"testing"
	"time"

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
