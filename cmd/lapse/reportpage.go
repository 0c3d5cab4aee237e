package main

import (
	"errors"
	"path/filepath"
	"strings"

	"lapse/audit/report/page"
	"lapse/audit/tree"
	"lapse/internal/config"
	"lapse/internal/durable"
)

// build identifies this program in a page. The same program always writes the same bytes.
func build() string {
	v := readVersions()
	name := v.Version
	if v.Commit != "" {
		name += " (" + v.Commit + ")"
	}
	if v.Changed {
		name += " with changes"
	}
	return name
}

// document is the content of a page or a CSV.
func (m *madeReport) document() (*page.Document, error) {
	switch {
	case m.redacted != nil:
		return page.NewRedacted(m.redacted, build()), nil
	case m.of.wanted:
		d, err := page.NewCertificate(m.report, build(), m.of.matter)
		return d, invalid(err)
	}
	return page.New(m.report, build(), m.witnesses), nil
}

// writeReportHTML writes the report as a page, and signs it if the log's key is available.
func writeReportHTML(a *app, name string, made *madeReport) ([]string, error) {
	d, err := made.document()
	if err != nil {
		return nil, err
	}
	key, err := a.logKey(made.report.Log.Name)
	if err != nil {
		return nil, err
	}
	var signer page.Signer
	if key != nil && key.Public() == made.publicKey {
		signer = key
	}
	text, err := d.Signed(made.canonical, signer)
	if err != nil {
		return nil, err
	}
	return []string{name}, durable.Write(name, text)
}

// logKey derives the key of the log of that name; nil if the key named log is not available.
func (a *app) logKey(name string) (*tree.Key, error) {
	s, err := a.settings()
	if err != nil {
		return nil, nil //nolint:nilerr // there are no settings on this machine
	}
	secret, err := s.Keys.Load(config.LogKey)
	if errors.Is(err, config.ErrNoKey) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := tree.NewKey(secret, name)
	return key, invalid(err)
}

// writeReportCSV writes one file for each table, since a CSV has one table: the verdicts to the named file, the others next to it.
func writeReportCSV(_ *app, name string, made *madeReport) ([]string, error) {
	d, err := made.document()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range d.CSV() {
		to := name
		if file.Name != "" {
			to = strings.TrimSuffix(name, filepath.Ext(name)) + "-" + file.Name + filepath.Ext(name)
		}
		if err := durable.Write(to, file.Content); err != nil {
			return names, err
		}
		names = append(names, to)
	}
	return names, nil
}

// certificateOf is the subject of a certificate, if one is requested.
type certificateOf struct {
	wanted bool
	matter string // empty for the policy
}

// checkEdition refuses flags that exclude each other.
func (r *reporter) checkEdition(month string) error {
	c := &r.certificate
	switch {
	case r.redacted && month == "":
		return wrongUsage("--redacted needs --month: two periods that overlap would give away what each leaves out")
	case r.redacted && len(r.only) > 0:
		return wrongUsage("--redacted is of all policies, so that all editions of a month are alike: leave --policy out")
	case r.redacted && c.wanted:
		return wrongUsage("a certificate names its policy, and a redacted report names none")
	case !c.wanted && c.matter != "":
		return wrongUsage("--matter is for --certificate")
	case c.wanted && c.matter == "" && len(r.only) != 1 || c.wanted && c.matter != "" && len(r.only) > 0:
		return wrongUsage("--certificate is of one --policy, or of a --matter")
	}
	for _, name := range r.outs {
		if c.wanted && filepath.Ext(name) != ".html" {
			return wrongUsage("-o %s: a certificate is a page, whose name ends with .html", name)
		}
	}
	return nil
}

// edit makes the requested edition of a document.
func (r *reporter) edit(made *madeReport) error {
	if made.of = r.certificate; !r.redacted {
		return nil
	}
	return made.redact()
}

// redact makes the edition for outsiders.
func (m *madeReport) redact() (err error) {
	if m.redacted, err = m.report.Redact(); err != nil {
		return invalid(err)
	}
	m.canonical, err = m.redacted.Canonical()
	return err
}
