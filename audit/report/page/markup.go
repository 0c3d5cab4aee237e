package page

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// What the pages of every build consist of. Words and styles may differ from build to build, and are not looked at.
var (
	elements = strings.Fields("a b body caption code dd defs desc details div dl dt figcaption figure footer g h1 h2 h3 head header html li line main " +
		"meta nav ol p pattern pre rect script section span style summary svg table tbody td text th thead title tr ul")
	attributes = strings.Fields("aria-hidden aria-label aria-labelledby charset class colspan content data-json fill height href http-equiv id lang name " +
		"patternTransform patternUnits role scope tabindex title type viewBox width x x1 x2 y y1 y2")
	cells = []string{"", "n", "n w", "t"} // classes of a td: n is a number
)

const (
	// scripts is how many script elements a page has: they hold data.
	scripts = 3
	// contentPolicy keeps a browser from running or loading anything.
	contentPolicy = "default-src 'none'; style-src 'unsafe-inline'"
)

// markup checks the markup of a page, token by token: it refuses what runs or loads something, and what a browser reads otherwise than the
// comparison of values does.
type markup struct{ styles, policies, doctypes int }

// unwritten is the error of a page that has what no build writes.
func unwritten(has string, args ...any) error {
	return fmt.Errorf("no lapse wrote it like this: it has "+has, args...)
}

// see refuses a token that no build writes.
func (m *markup) see(token xml.Token) error {
	switch t := token.(type) {
	case xml.ProcInst:
		return unwritten("<?")
	case xml.Directive:
		if m.doctypes++; m.doctypes > 1 || !strings.EqualFold(string(t), "doctype html") {
			return unwritten("<!%.20s", t)
		}
	case xml.StartElement:
		return m.element(t)
	}
	return nil
}

func (m *markup) element(e xml.StartElement) error {
	if e.Name.Space != "" || !slices.Contains(elements, e.Name.Local) {
		return unwritten("the element %.40q", e.Name.Local)
	}
	if e.Name.Local == "style" {
		m.styles++
	}
	policy := attribute(e, "http-equiv") != ""
	if policy {
		m.policies++
	}
	for _, a := range e.Attr {
		name, is := a.Name.Local, a.Value
		if a.Name.Space != "" || !slices.Contains(attributes, name) || name == "href" && !strings.HasPrefix(is, "#") || name == "fill" && !strings.HasPrefix(is, "url(#") ||
			name == "class" && e.Name.Local == "td" && !slices.Contains(cells, is) ||
			name == "http-equiv" && is != "Content-Security-Policy" || policy && name == "content" && is != contentPolicy {
			return unwritten("the attribute %.40q of %s as %.40q", name, e.Name.Local, is)
		}
	}
	return nil
}

// end refuses a page without its content security policy, or with a second style element.
func (m *markup) end() error {
	if m.policies != 1 || m.styles != 1 {
		return unwritten("%d content security policies and %d style elements, not one of each", m.policies, m.styles)
	}
	return nil
}

// checkMarkup refuses a page with something that no build writes and that is not in its tokens.
func checkMarkup(page []byte) error {
	for _, bad := range []string{"<!--", "<![CDATA["} { // a browser and the comparison would read these differently
		if bytes.Contains(page, []byte(bad)) {
			return unwritten("%s", bad)
		}
	}
	if n := bytes.Count(bytes.ToLower(page), []byte("<script")); n != scripts {
		return unwritten("%d script elements, not %d that hold data", n, scripts)
	}
	return nil
}

// Lacking compares two pages of the same JSON, and returns how many values page lacks that other shows, and the place of the first.
func Lacking(page, other []byte) (n int, first string, err error) {
	has := map[shown]int{}
	if err := eachValue(page, func(s shown) error { has[s]++; return nil }); err != nil {
		return 0, "", err
	}
	err = eachValue(other, func(s shown) error {
		if has[s]--; has[s] < 0 {
			if n++; n == 1 {
				first = s.from
			}
		}
		return nil
	})
	return n, first, err
}
