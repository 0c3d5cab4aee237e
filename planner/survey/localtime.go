package survey

import (
	"context"
	"fmt"
	"strings"
	"time"

	"lapse/planner/database"
	"lapse/planner/expiry"
)

// LocalTime says in which zone a column without a zone is read. If an application writes local time that is read in UTC, rows are deleted hours
// too early, or too late, and nothing else shows it.
type LocalTime struct {
	Column   string    `json:"column"`
	Zone     string    `json:"zone"`
	Stated   bool      `json:"stated"`   // the policy says zone
	Examples []Reading `json:"examples"` // two: the oldest and the newest due row, or else instants of this run
	Question string    `json:"question,omitempty"`
}

// Reading is a local time, and the instant that it is read as.
type Reading struct {
	Written string    `json:"written"`
	Read    time.Time `json:"read"`
}

// String is the line for a person.
func (l *LocalTime) String() string {
	var examples []string
	for _, e := range l.Examples {
		examples = append(examples, e.Written+" is "+e.Read.Format(time.RFC3339))
	}
	text := fmt.Sprintf("%s has no zone and is read in %s: %s", l.Column, l.Zone, strings.Join(examples, ", "))
	if !l.Stated {
		text += "; where that is wrong, write zone: in the policy"
	}
	return text
}

// zonesSQL reads the zones that are set for the server, this database or its roles. Our sessions are in UTC and do not see the server's own zone;
// initdb sets log_timezone to the same.
const zonesSQL = `
	select distinct z.name
	  from (select current_setting('log_timezone') as name
	        union all
	        select split_part(c.setting, '=', 2)
	          from pg_db_role_setting s
	         cross join lateral unnest(s.setconfig) c(setting)
	         where s.setdatabase in (0, (select d.oid from pg_database d where d.datname = current_database())) and c.setting ilike 'timezone=%') z
	 order by 1`

// localZones reads the zones that the application may write in, if the policy does not say.
func (s *surveyor) localZones(ctx context.Context, q database.Querier) error {
	m := expiry.LocalOf(s.definition.Expire)
	if m == nil || m.Zone != "" {
		return nil
	}
	rows, err := database.Collect[struct{ Name string }](ctx, q, zonesSQL)
	if err != nil {
		return fmt.Errorf("read the database's time zones: %w", err)
	}
	for _, r := range rows {
		if zone, err := time.LoadLocation(r.Name); err == nil {
			s.zones = append(s.zones, zone)
		}
	}
	return nil
}

// LocalTimeOf says how the policy's column is read; nil if it has a zone. The examples are of these instants, as far as there are any, otherwise of
// the day of at.
func LocalTimeOf(kind expiry.Kind, at time.Time, instants ...*time.Time) *LocalTime {
	m := expiry.LocalOf(kind)
	if m == nil {
		return nil
	}
	zone, layout := time.UTC, "2006-01-02 15:04:05"
	if m.Zone != "" {
		if there, err := expiry.LoadZone(m.Zone); err == nil {
			zone = there
		}
	}
	if m.Type == expiry.Date {
		layout = time.DateOnly
	}
	l := &LocalTime{Column: m.Column, Zone: zone.String(), Stated: m.Zone != ""}
	today := at.In(zone)
	midnight := time.Date(today.Year(), today.Month(), today.Day(), 0, 0, 0, 0, zone).UTC()
	yesterday := midnight.AddDate(0, 0, -1)
	for _, at := range append(instants, &midnight, &yesterday) {
		if at != nil && len(l.Examples) < 2 && (len(l.Examples) == 0 || !l.Examples[0].Read.Equal(*at)) {
			l.Examples = append(l.Examples, Reading{at.In(zone).Format(layout), *at})
		}
	}
	return l
}

// readLocal says how the column is read, and asks a question if the newest values contradict that.
func (s *surveyor) readLocal(f *found) {
	v := &s.survey
	v.Local = LocalTimeOf(s.definition.Expire, v.At, v.Oldest, v.Newest)
	if v.Local != nil && f.Ahead != nil {
		v.Local.Question = question(v.Local.Column, time.Duration(*f.Ahead*float64(time.Second)), v.At, s.zones)
	}
}

// lately is how recently the newest row must have been written to show the zone that it was written in.
const lately = 15 * time.Minute

// question is the question to ask if the newest value, read in UTC, is as far from the clock as one of the zones is from UTC; otherwise "".
func question(column string, ahead time.Duration, now time.Time, zones []*time.Location) string {
	for _, zone := range zones {
		_, seconds := now.In(zone).Zone()
		offset := time.Duration(seconds) * time.Second
		if offset == 0 || ahead <= offset-lately || ahead > offset+time.Minute {
			continue
		}
		harm := fmt.Sprintf("%v ahead of the clock: rows would go too late", offset)
		if offset < 0 {
			harm = fmt.Sprintf("%v behind the clock: rows would go too early", -offset)
		}
		return fmt.Sprintf("the newest values of %s are as if %s were its zone, which this database is set to, %s; write zone: %s if it is, and zone: UTC if not",
			column, zone, harm, zone)
	}
	return ""
}
