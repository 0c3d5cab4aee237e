package importer

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"lapse/planner/expiry"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// definition is the part of a CREATE TABLE or ALTER TABLE after the table's name.
type definition struct {
	table string // the name as in a policy
	clause
}

// definitions reads another database's DDL, statement by statement. what says what it should contain; asWritten says that unquoted names keep
// their capital letters in that database.
func definitions(text, what string, asWritten bool) ([]definition, error) {
	parts, ok := statements(text)
	if !ok {
		return nil, errors.New("read DDL: a quotation mark or a comment is not closed, or there is a character that SQL does not have")
	}
	var all []definition
	for _, part := range parts {
		tokens, _ := scan(part)
		c := clause{text: part, tokens: tokens}
		if c.take("create", "table") || c.take("alter", "table") {
			_ = c.take("if", "not", "exists") || c.take("if", "exists") || c.take("only")
			if d, ok := c.defined(asWritten); ok {
				all = append(all, d)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no CREATE TABLE or ALTER TABLE with %s in the text", what)
	}
	return all, nil
}

// defined reads the table's name.
func (c *clause) defined(asWritten bool) (d definition, ok bool) {
	var names []string
	for {
		t := c.next()
		name := t.name()
		if name == "" {
			return d, false
		}
		if asWritten {
			name = t.spelling()
		}
		if names = append(names, name); !c.take(".") {
			break
		}
	}
	if len(names) == 1 {
		names = append([]string{"public"}, names...)
	}
	return definition{tableName(names[len(names)-2], names[len(names)-1]), clause{text: c.text, tokens: c.tokens[c.at:]}}, true
}

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// spelling is a name with its capital letters.
func (t token) spelling() string {
	if t.kind == word {
		return t.text
	}
	return t.name()
}

// tableName is a table's name as in a policy.
func tableName(schema, name string) string {
	part := func(name string) string {
		if plainName.MatchString(name) {
			return name
		}
		return schemas.Identifier(name)
	}
	return part(schema) + "." + part(name)
}

// elsewhere makes an item for another database's table.
func elsewhere(origin, text, table string, expire expiry.Entry) Item {
	i := Item{Origin: origin, Text: text, Policy: &policyfile.Policy{Name: policyName(lastName(table), "ttl"), Table: table, Expire: expire, Every: policyfile.DefaultEvery}}
	i.note("table and column have the names that they have there: write those of PostgreSQL, and see that the column is a timestamp with time zone")
	return i
}

// interval reads a number of units, as in INTERVAL 3 MONTH.
func interval(count, unit string) (period, bool) {
	n, err := strconv.ParseInt(strings.Trim(count, `'"`), 10, 32)
	sizes := map[string]period{
		"second": {us: second}, "minute": {us: 60 * second}, "hour": {us: 3600 * second}, "day": {days: 1}, "week": {days: 7}, "month": {months: 1},
		"quarter": {months: 3}, "year": {months: 12},
	}
	size, known := sizes[strings.TrimSuffix(strings.ToLower(unit), "s")]
	p := size.times(n)
	return p, err == nil && known && p.sensible()
}

// inDays converts hours of a period to days if there are enough: a day of Lapse's has 24 hours.
func (p period) inDays() period { return period{p.months, p.days + p.us/day, p.us % day} }

// seconds is a period of so many.
func seconds(n int64) (period, bool) {
	p := period{us: 0, days: n / 86400}
	p.us = n % 86400 * second
	return p, n >= 0 && p.sensible()
}

// after makes an entry from a column and a period.
func after(column string, p period) expiry.Entry {
	e := expiry.Entry{"column": column}
	if !p.isZero() {
		e["after"] = p.inDays().interval().String()
	}
	return e
}

// spelled reads a period in a person's notation: 30 days, 3 months, 1h30m, @1 day.
func spelled(text string) (p period, ok bool) {
	if p, ok = readPeriod(strings.TrimSpace(text)); ok {
		return p, p.sensible()
	}
	parts := regexp.MustCompile(`(\d+) *([A-Za-z]+)`).FindAllStringSubmatch(text, -1)
	if rest := regexp.MustCompile(`(\d+) *([A-Za-z]+)`).ReplaceAllString(text, ""); strings.Trim(rest, " ,") != "" || len(parts) == 0 {
		return p, false
	}
	short := map[string]string{"s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "hr": "hour", "d": "day", "w": "week", "mon": "month", "y": "year", "yr": "year"}
	for _, part := range parts {
		unit := strings.ToLower(part[2])
		if long, there := short[unit]; there {
			unit = long
		} else if long, there := short[strings.TrimSuffix(unit, "s")]; there {
			unit = long
		}
		more, ok := interval(part[1], unit)
		if !ok {
			return p, false
		}
		p = p.plus(more)
	}
	return p, p.sensible()
}
