package page

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"lapse/audit/report"
	"lapse/internal/plaintext"
)

// shown is a value of a page, with its place in the JSON.
type shown struct{ from, text string }

// CompareValues compares the values on a page of any build with the page's JSON: numbers, names, instants and verdicts. It does not compare
// sentences and styles, which only the page's own build can write again, but refuses what no build writes.
func CompareValues(page, canonical []byte) error {
	if err := checkMarkup(page); err != nil {
		return err
	}
	var in any
	d := json.NewDecoder(bytes.NewReader(canonical))
	d.UseNumber()
	if err := d.Decode(&in); err != nil {
		return fmt.Errorf("its JSON: %w", err)
	}
	return eachValue(page, func(s shown) error {
		value, ok := lookUp(in, s.from)
		if s.from == "" {
			return fmt.Errorf("it shows the number %q, and does not say where its JSON has it", s.text)
		}
		if !ok || !says(s.text, value) {
			return fmt.Errorf("it shows %q where its JSON has %v: %s", s.text, value, s.from)
		}
		return nil
	})
}

// lookUp follows a JSON pointer. A step may be a range of a list, such as 3-7: lookUp then adds up the values.
func lookUp(in any, pointer string) (any, bool) {
	steps := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, step := range steps {
		switch x := in.(type) {
		case map[string]any:
			value, ok := x[step]
			if !ok {
				return nil, false
			}
			in = value
		case []any:
			if first, last, is := strings.Cut(step, "-"); is {
				return addUp(x, first, last, strings.Join(steps[i+1:], "/"))
			}
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(x) {
				return nil, false
			}
			in = x[n]
		default:
			return nil, false
		}
	}
	return in, true
}

// addUp adds up the values at a place in items of a list.
func addUp(list []any, first, last, pointer string) (any, bool) {
	from, err := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	if err != nil || err2 != nil || from < 0 || from > to || to >= len(list) {
		return nil, false
	}
	var sum int64
	for i := from; i <= to; i++ {
		value, _ := lookUp(list[i], pointer)
		number, is := value.(json.Number)
		n, err := number.Int64()
		if !is || err != nil {
			return nil, false
		}
		sum += n
	}
	return json.Number(strconv.FormatInt(sum, 10)), true
}

// says reports whether a text shows a value: a number may have commas and a noun; an instant may be cut to the second.
func says(text string, value any) bool {
	switch x := value.(type) {
	case json.Number:
		n, err := x.Int64()
		number, of, _ := strings.Cut(text, " ")
		return err == nil && strings.ReplaceAll(number, ",", "") == string(x) &&
			(slices.Contains([]string{"", "keys", "more"}, of) || text == seconds(report.Number(n), "").Text) || err == nil && n > 0 && text == step(n)
	case string:
		if text == plaintext.Line(x) || text == gradeWords[report.Grade(x)] && text != "" {
			return true
		}
		return !report.Instant(x).Time().IsZero() && text == moment(report.Instant(x))
	case map[string]any: // a figure without number, or a time between bounds
		var f report.Figure
		var l report.Lateness
		again, err := json.Marshal(x)
		if err != nil || json.Unmarshal(again, &f) != nil || json.Unmarshal(again, &l) != nil {
			return false
		}
		return text == figure(f, "").Text || l != (report.Lateness{NotAssessed: f.NotAssessed}) && text == lateness(l, "").Text
	}
	return false
}

// eachValue passes every value of a page that names its place, and every number in a table that does not.
func eachValue(page []byte, take func(s shown) error) error {
	d := xml.NewDecoder(bytes.NewReader(page))
	d.Entity = xml.HTMLEntity
	var value, cell strings.Builder
	var from string
	var m markup
	inValue, inNumber := 0, false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return m.end()
		}
		if err != nil {
			return fmt.Errorf("its markup is not what lapse writes: %w", err)
		}
		if err := m.see(token); err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.StartElement:
			switch {
			case inValue > 0:
				inValue++
			case attribute(t, "data-json") != "":
				inValue, from = 1, attribute(t, "data-json")
				value.Reset()
			case t.Name.Local == "td":
				inNumber = strings.HasPrefix(attribute(t, "class"), "n")
				cell.Reset()
			}
		case xml.EndElement:
			switch {
			case inValue > 0:
				if inValue--; inValue == 0 {
					err = take(shown{from, value.String()})
				}
			case t.Name.Local == "td" && inNumber && strings.ContainsAny(cell.String(), "0123456789"):
				err = take(shown{"", cell.String()})
			}
		case xml.CharData:
			if inValue > 0 {
				value.Write(t)
			} else {
				cell.Write(t)
			}
		}
		if err != nil {
			return err
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}
