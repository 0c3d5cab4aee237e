package expiry

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the same zones on every machine

	"lapse/internal/yamldoc"
)

// westernmost is how far behind UTC a clock may be.
const westernmost = 12 * time.Hour

// LoadZone takes UTC and names of places. Abbreviations are left out: PostgreSQL reads CET as a fixed offset, others as a
// zone with summer time.
func LoadZone(name string) (*time.Location, error) {
	if name != "UTC" && !strings.Contains(name, "/") {
		return nil, fmt.Errorf("%s is not the name of a place: write for instance Europe/Berlin, or UTC", yamldoc.Quote(name))
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("there is no time zone %s", yamldoc.Quote(name))
	}
	return zone, nil
}

// east is the most that a zone is ahead of UTC; negative for a zone west of it. Summer time is in January or in July.
func east(name string) time.Duration {
	zone, err := LoadZone(name)
	if name == "" || err != nil {
		return 0
	}
	most := -westernmost
	for year := 1970; year < 2040; year++ {
		for _, month := range []time.Month{time.January, time.July} {
			_, offset := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).In(zone).Zone()
			most = max(most, time.Duration(offset)*time.Second)
		}
	}
	return most
}
