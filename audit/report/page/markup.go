package page

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// scripts is how many script elements a page of any build has: they hold data.
const scripts = 3

// foreign says what is in a page that no build of Lapse writes: what runs, loads, or shows or hides something of its own. Words and styles may differ
// from build to build, and so are not looked at. "" if there is nothing.
func foreign(e xml.StartElement) string {
	if slices.Contains([]string{"link", "base", "img", "iframe", "frame", "object", "embed", "form", "audio", "video", "template", "noscript", "textarea", "xmp"}, strings.ToLower(e.Name.Local)) {
		return "the element " + e.Name.Local
	}
	for _, a := range e.Attr {
		switch name := strings.ToLower(a.Name.Local); {
		case strings.HasPrefix(name, "on"), name == "src", name == "srcset", name == "style", name == "hidden", name == "action",
			name == "href" && !strings.HasPrefix(a.Value, "#"), name == "http-equiv" && a.Value != "Content-Security-Policy":
			return "the attribute " + a.Name.Local + " of " + e.Name.Local
		}
	}
	return ""
}

// checkMarkup refuses a page with something that no build writes.
func checkMarkup(page []byte) error {
	for _, bad := range []string{"<!--", "<![CDATA["} { // a browser and the comparison would read these differently
		if bytes.Contains(page, []byte(bad)) {
			return fmt.Errorf("no lapse wrote it like this: it has %s", bad)
		}
	}
	if n := bytes.Count(bytes.ToLower(page), []byte("<script")); n != scripts {
		return fmt.Errorf("no lapse wrote it like this: it has %d script elements, not %d that hold data", n, scripts)
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
