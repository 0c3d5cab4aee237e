package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/note"

	"lapse/audit/export"
	"lapse/audit/report"
	"lapse/audit/report/page"
	"lapse/audit/tree"
)

// verifiedReport is what `lapse verify` found about a report.
type verifiedReport struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Redacted bool   `json:"redacted"`
	Build    string `json:"build"`     // the lapse build that wrote the page; empty for JSON
	SameByte bool   `json:"same_page"` // this lapse makes the same page from its JSON
	FromLog  bool   `json:"from_log"`  // the log gives the same report
	Signed   bool   `json:"signed"`    // by the log's key
}

// reportChecker compares a report with itself, with the log's key, and with the log.
type reportChecker struct {
	*verifier
	name      string
	result    *verified
	full      *report.Report   // nil if it is redacted
	redacted  *report.Redacted // nil if it is not redacted
	canonical []byte
	log       string // the log's name
}

// longestReport bounds the size of a report: a year of a hundred policies takes 11 MB.
const longestReport = 256 << 20

// file checks a receipt or a report.
func (v *verifier) file(ctx context.Context, name, rowKey string) error {
	info, err := os.Stat(name)
	if err == nil && info.Size() > longestReport {
		err = fmt.Errorf("%s is larger than any report", name)
	}
	if err != nil {
		return invalid(err)
	}
	file, err := os.ReadFile(name)
	if err != nil {
		return invalid(err)
	}
	var is struct {
		Kind string `json:"kind"`
	}
	isJSON := json.Unmarshal(file, &is) == nil
	switch {
	case !isJSON && !page.IsPage(file):
		return invalid(fmt.Errorf("%s is neither a report (.html, .json) nor a receipt", name))
	case rowKey == "" && (!isJSON || is.Kind != ""):
		return v.report(ctx, name, file)
	}
	return v.receipt(name, rowKey)
}

// report checks a report: a page or its JSON.
func (v *verifier) report(ctx context.Context, name string, file []byte) error {
	c := &reportChecker{verifier: v, name: name, result: &verified{Witnesses: []seenBy{}, NotChecked: []string{shows}, Report: &verifiedReport{}}}
	r := c.result
	err := c.check(ctx, file)
	var found *tree.Fault
	var unanswered *report.PeriodError
	switch {
	case errors.As(err, &found):
		r.Fault = faultOf(found)
		err = errNeedsPerson
	case errors.As(err, &unanswered):
		return invalid(err)
	case err != nil:
		return err
	case !r.Report.FromLog && !r.Report.Signed:
		err = invalid(errors.New("the report agrees with itself only: compare it with the log (--dir, or where the topics are), or name the log's key with --public-key"))
	case !r.Report.SameByte && !r.Report.Signed:
		err = invalid(fmt.Errorf("each value in it is its JSON's; nobody has compared its words, and whether it shows each value, since lapse %s wrote it: use that one, or write the report again", r.Report.Build))
	default:
		r.Verifies = true
	}
	if v.asJSON {
		return errors.Join(v.printJSON(r), err)
	}
	return errors.Join(c.print(), err)
}

func (c *reportChecker) fault(what string, args ...any) error {
	return &tree.Fault{File: c.name, Leaf: -1, What: fmt.Sprintf(what, args...)}
}

func (c *reportChecker) check(ctx context.Context, file []byte) error {
	c.canonical = file
	var embedded *page.Embedded
	if page.IsPage(file) {
		var err error
		if embedded, err = page.Read(file); err != nil {
			return c.fault("%v", err)
		}
		c.canonical = embedded.JSON
	}
	if err := c.parse(); err != nil {
		return err
	}
	if embedded != nil {
		if err := c.page(file, embedded); err != nil {
			return err
		}
		if err := c.signature(embedded); err != nil {
			return err
		}
	} else {
		c.result.Report.SameByte = true // JSON has no page
		c.result.NotChecked = append(c.result.NotChecked, "who has signed it: only a page has a signature")
	}
	return c.compare(ctx)
}

// parse parses the canonical JSON.
func (c *reportChecker) parse() (err error) {
	var is struct {
		Schema int `json:"schema"`
	}
	if json.Unmarshal(c.canonical, &is) == nil && is.Schema != report.Schema {
		return invalid(fmt.Errorf("%s is a report of schema %d, and this lapse reads schema %d: use the one that wrote it", c.name, is.Schema, report.Schema))
	}
	of := c.result.Report
	var period report.Period
	if report.IsRedacted(c.canonical) {
		if c.redacted, err = report.ParseRedacted(c.canonical); err != nil {
			return c.fault("%v", err)
		}
		of.Redacted, period, c.log = true, c.redacted.Period, c.redacted.Log.Name
	} else {
		if c.full, err = report.Parse(c.canonical); err != nil {
			return c.fault("%v", err)
		}
		period, c.log = c.full.Period, c.full.Log.Name
	}
	of.From, of.To, c.result.Log = string(period.From), string(period.To), c.log
	return nil
}

// page compares a page with its JSON by making the page again. A page of another build may have other words; its values are
// compared one by one.
func (c *reportChecker) page(file []byte, e *page.Embedded) error {
	of := c.result.Report
	of.Build = e.Build
	var d *page.Document
	var err error
	if c.redacted != nil {
		d = page.NewRedacted(c.redacted, e.Build)
	} else if d, err = e.Again(c.full); err != nil {
		return c.fault("%v", err)
	}
	if len(e.Witnesses) > 0 {
		c.result.NotChecked = append(c.result.NotChecked, "what its first page says of witnesses: who made it says so; verify asks the log")
	}
	again, err := d.HTML(c.canonical, e.Signature)
	if err != nil {
		return c.fault("%v", err)
	}
	if of.SameByte = bytes.Equal(again, file); of.SameByte {
		return nil
	}
	if err := page.CompareValues(file, c.canonical); err != nil {
		return c.fault("%v", err)
	}
	if e.Build == build() {
		return c.fault("it is not the page that this lapse writes of its JSON: they differ from %s on", place(file, again))
	}
	c.result.NotChecked = append(c.result.NotChecked, "the words and looks of the page beside its values: another build wrote it, lapse "+e.Build)
	lacking, first, err := page.Lacking(file, again)
	if lacking > 0 {
		c.result.NotChecked = append(c.result.NotChecked, fmt.Sprintf("%s that this lapse shows and the page does not, such as %s", counted(uint64(lacking), "value"), first))
	}
	return err
}

// place is the position at which two texts begin to differ.
func place(a, b []byte) string {
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	return fmt.Sprintf("line %d", 1+bytes.Count(a[:at], []byte("\n")))
}

// signature checks who signed the report, if the log's key is known.
func (c *reportChecker) signature(e *page.Embedded) error {
	key, err := c.publicKey()
	if err != nil || key == nil {
		return err
	}
	switch err := e.CheckSignature(c.canonical, key); {
	case errors.Is(err, page.ErrUnsigned):
		c.result.NotChecked = append(c.result.NotChecked, "who has made it: it is not signed")
	case err != nil:
		return c.fault("%v", err)
	default:
		c.result.Report.Signed = true
	}
	return nil
}

// publicKey is the log's public key: the one that the user named, or that of the available key; nil without either.
func (c *reportChecker) publicKey() (note.Verifier, error) {
	if c.public == "" {
		key, err := c.logKey(c.log)
		if err != nil || key == nil {
			return nil, err
		}
		c.result.PublicKey = key.Public()
		return key.Verifier(), nil
	}
	return c.verifier.key(&export.Tree{Log: c.log}, c.result)
}

// compare makes the report again from the log, if there is one.
func (c *reportChecker) compare(ctx context.Context) error {
	if c.dir == "" {
		s, err := c.settings()
		if err != nil || s.RequireSink() != nil {
			c.result.NotChecked = append(c.result.NotChecked, "whether the log says the same: there is no log here; name an export with --dir")
			return nil //nolint:nilerr // no log is configured
		}
	}
	r := reporter{verifier: c.verifier, ask: period{from: report.Instant(c.result.Report.From).Time(), to: report.Instant(c.result.Report.To).Time()}}
	if c.full != nil {
		r.only = c.full.Only
		if run := c.full.Run; run != nil {
			r.oneRun, _ = uuid.Parse(run.Run) // of none the log says something else
		}
	}
	of := &verified{Witnesses: []seenBy{}}
	made, err := r.make(ctx, of)
	c.result.PublicKey, c.result.NotChecked = of.PublicKey, append(c.result.NotChecked, of.NotChecked...)
	if err != nil {
		return err
	}
	c.result.Witnesses, c.result.Cosigned, c.result.Records = of.Witnesses, of.Cosigned, made.report.Log.Closing.Records
	if c.redacted != nil {
		if err := made.redact(); err != nil {
			return err
		}
	}
	if !bytes.Equal(made.canonical, c.canonical) {
		return c.fault("it is not what the log says: %s", difference(made.canonical, c.canonical))
	}
	c.result.Report.FromLog = true
	return nil
}

// difference names the first value in which two reports differ.
func difference(log, file []byte) string {
	var a, b any
	if json.Unmarshal(log, &a) != nil || json.Unmarshal(file, &b) != nil {
		return "they are two texts"
	}
	at, was, is := firstDifference("", a, b)
	return fmt.Sprintf("at %s the log has %s, and the report %s", at, brief(was), brief(is))
}

func firstDifference(at string, a, b any) (where string, was, is any) {
	switch x := a.(type) {
	case map[string]any:
		y, same := b.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(x)) {
			if where, was, is = firstDifference(at+"/"+name, x[name], y[name]); where != "" {
				return where, was, is
			}
		}
		if same {
			return "", nil, nil
		}
	case []any:
		y, same := b.([]any)
		if same && len(x) == len(y) {
			for i := range x {
				if where, was, is = firstDifference(fmt.Sprintf("%s/%d", at, i), x[i], y[i]); where != "" {
					return where, was, is
				}
			}
			return "", nil, nil
		}
		return at, fmt.Sprintf("%d items", len(x)), fmt.Sprintf("%d items", len(y))
	default:
		if a == b {
			return "", nil, nil
		}
	}
	return at, a, b
}

// brief shortens a value to one line.
func brief(value any) string {
	text, err := encode(value)
	if err != nil || len(text) > 80 {
		return "something else"
	}
	return onOneLine(string(text))
}

func (c *reportChecker) print() (err error) {
	r := c.result
	of := r.Report
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintln(c.out, strings.TrimRight(fmt.Sprintf(format, args...), " "))
		}
	}
	kind := "report"
	if of.Redacted {
		kind = "redacted report"
	}
	switch {
	case r.Fault != nil:
		line("does not verify: %s", (&tree.Fault{File: r.Fault.File, Leaf: -1, What: r.Fault.What}).Error())
	case r.Verifies:
		line("verifies: %s of the log %s, from %s to before %s", kind, r.Log, of.From, of.To)
	default:
		line("not verified: %s of the log %s, from %s to before %s", kind, r.Log, of.From, of.To)
	}
	if r.Fault == nil && of.Build != "" {
		line("page        its values are those of its JSON%s", map[bool]string{true: "; this lapse writes the same page, byte for byte"}[of.SameByte])
	}
	if of.FromLog {
		line("log         says the same, up to its checkpoint of %s; key %s", counted(uint64(r.Records), "record"), r.PublicKey)
	}
	if of.Signed {
		line("signed      report and page, by the log's key %s", r.PublicKey)
	}
	for _, text := range r.witnessLines() {
		line("%s", text)
	}
	for _, what := range r.NotChecked {
		line("not checked: %s", what)
	}
	return err
}
