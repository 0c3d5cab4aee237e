package page

import (
	"bytes"
	_ "embed" // the template and the styles
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"html/template"
	"strings"

	"lapse/audit/report"
)

var (
	//go:embed page.html.tmpl
	skeleton string
	//go:embed style.css
	styles string
)

// rendered is the template's data.
type rendered struct {
	*Document
	JSON, Witnessed template.JS
	Signature       template.HTML
}

// HTML writes a document as one file that runs no script and loads nothing. The file contains the report's canonical JSON and the signature, which
// may be empty.
func (d *Document) HTML(canonical []byte, signature string) ([]byte, error) {
	if bytes.ContainsAny(canonical, "<>&") || strings.ContainsAny(signature, "<>&") {
		return nil, errors.New("JSON or signature could end its element: neither is as it is written")
	}
	page, err := template.New("page").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(styles) }, //nolint:gosec // this package's own file
	}).Parse(skeleton)
	if err != nil {
		return nil, err
	}
	witnessed, err := json.Marshal(d.Witnesses) // Marshal escapes <, > and &
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = page.Execute(&b, rendered{d, template.JS(canonical), template.JS(witnessed), template.HTML(signature)}) //nolint:gosec // see above
	return b.Bytes(), err
}

// The texts around the embedded parts.
const (
	jsonBegins      = `<script type="application/json" id="report">`
	witnessesBegin  = `<script type="application/json" id="witnesses">`
	signatureBegins = `<script type="text/plain" id="signature">`
	scriptEnds      = `</script>`
	buildBegins     = `<meta name="generator" content="lapse `
	formBegins      = `<meta name="form" content="`
	metaEnds        = `" />`
)

// Embedded is what a page contains.
type Embedded struct {
	JSON      []byte // canonical, unless it was edited
	Build     string
	Form      string
	Signature string
	Witnesses []report.Witness
	unsigned  []byte // the page without the signature: the bytes that were signed
}

// Read takes a page apart. It checks nothing.
func Read(page []byte) (*Embedded, error) {
	text := string(page)
	canonical, err := between(text, jsonBegins, scriptEnds)
	if err != nil {
		return nil, err
	}
	witnessed, err := between(text, witnessesBegin, scriptEnds)
	if err != nil {
		return nil, err
	}
	signature, err := between(text, signatureBegins, scriptEnds)
	if err != nil {
		return nil, err
	}
	build, err := between(text, buildBegins, metaEnds)
	if err != nil {
		return nil, err
	}
	form, err := between(text, formBegins, metaEnds)
	if err != nil {
		return nil, err
	}
	at := strings.LastIndex(text, signatureBegins) + len(signatureBegins)
	e := &Embedded{JSON: []byte(canonical), Build: html.UnescapeString(build), Form: html.UnescapeString(form), Signature: signature, unsigned: []byte(text[:at] + text[at+len(signature):])}
	if err := json.Unmarshal([]byte(witnessed), &e.Witnesses); err != nil {
		return nil, fmt.Errorf("what it says of witnesses: %w", err)
	}
	return e, nil
}

// IsPage reports whether a file is meant to be a page.
func IsPage(file []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(file, " \t\r\n\ufeff"), []byte("<"))
}

// between requires a single begin, and returns the text from there to the next end.
func between(text, begins, ends string) (string, error) {
	_, after, found := strings.Cut(text, begins)
	if !found || strings.Contains(after, begins) {
		return "", fmt.Errorf("it is no report that lapse has written: %s is not there once", begins)
	}
	inside, _, found := strings.Cut(after, ends)
	if !found {
		return "", errors.New("it is no report that lapse has written: it is cut off")
	}
	return inside, nil
}
