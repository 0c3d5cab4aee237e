package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lapse/internal/yamldoc"
)

// set is some of the numbers from 0 to 63.
type set uint64

func (s set) has(n int) bool { return s>>n&1 == 1 }

// cronField is one of the five.
type cronField struct {
	name        string
	least, most int
	words       []string // for the numbers from least on
	into        func(*Cron) *set
}

func cronFields() []cronField {
	return []cronField{
		{"minute", 0, 59, nil, func(c *Cron) *set { return &c.minutes }},
		{"hour", 0, 23, nil, func(c *Cron) *set { return &c.hours }},
		{"day of the month", 1, 31, nil, func(c *Cron) *set { return &c.days }},
		{
			"month", 1, 12,
			[]string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"},
			func(c *Cron) *set { return &c.months },
		},
		{"day of the week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, func(c *Cron) *set { return &c.weekdays }},
	}
}

// parseFields reads five fields. Where day of the month and day of the week both name some (neither begins with *), it is
// enough that one of them fits, as in every cron.
func parseFields(words []string) (Cron, error) {
	c := Cron{Fields: strings.ToLower(strings.Join(words, " "))}
	for i, f := range cronFields() {
		s, err := f.parse(strings.ToLower(words[i]))
		if err != nil {
			return Cron{}, err
		}
		*f.into(&c) = s
	}
	if c.weekdays.has(7) {
		c.weekdays |= 1
	}
	c.everyHour = strings.HasPrefix(words[1], "*")
	c.eitherDay = !strings.HasPrefix(words[2], "*") && !strings.HasPrefix(words[4], "*")
	return c, nil
}

// parse reads a list of numbers, ranges and steps.
func (f *cronField) parse(text string) (all set, err error) {
	for _, part := range strings.Split(text, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > f.most || stepText[0] == '+' {
				return 0, fmt.Errorf("%s: the step in %s must be a number from 1 to %d", f.name, yamldoc.Quote(part), f.most)
			}
		}
		from, to, err := f.span(span)
		if err != nil {
			return 0, err
		}
		if stepped && span != "*" && !strings.Contains(span, "-") {
			return 0, fmt.Errorf("%s: %s has a step and no range: write %s-%d/%d", f.name, yamldoc.Quote(part), span, f.most, step)
		}
		for n := from; n <= to; n += step {
			all |= 1 << n
		}
	}
	return all, nil
}

// span reads *, a number or a range.
func (f *cronField) span(text string) (from, to int, err error) {
	if text == "*" {
		return f.least, f.most, nil
	}
	first, last, isRange := strings.Cut(text, "-")
	if from, err = f.number(first); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return from, from, nil
	}
	if to, err = f.number(last); err != nil {
		return 0, 0, err
	}
	if to == 0 && f.most == 7 {
		to = 7 // fri-sun
	}
	if to < from {
		return 0, 0, fmt.Errorf("%s: %s goes backwards: write two ranges with a comma between them", f.name, yamldoc.Quote(text))
	}
	return from, to, nil
}

func (f *cronField) number(text string) (int, error) {
	if at := slices.Index(f.words, text); at >= 0 {
		return f.least + at, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.least || n > f.most || len(text) > 2 || text[0] == '+' {
		suggestion := ""
		if near := yamldoc.Nearest(text, f.words); near != "" {
			suggestion = fmt.Sprintf("; did you mean %s?", near)
		}
		return 0, fmt.Errorf("%s: %s is not a number from %d to %d%s", f.name, yamldoc.Quote(text), f.least, f.most, suggestion)
	}
	return n, nil
}
