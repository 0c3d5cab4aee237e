package expiry

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the same zones on every machine

	"lapse/internal/yamldoc"
)

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
