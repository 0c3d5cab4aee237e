package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"lapse/audit/evidence"
	"lapse/audit/report"
	"lapse/audit/tree"
)

func (a *app) reportCommand() *cobra.Command {
	r := reporter{verifier: &verifier{app: a, recent: recentBatches}}
	var from, to, last, month, one string
	cmd := &cobra.Command{
		Use:   "report (--last 30d | --month 2026-10 | --from TIME [--to TIME])",
		Short: "Write what the log says of a period: what was deleted, by whom, and what is not known",
		Long: `Reads the log from its beginning, verifies it up to the two checkpoints that bound the period, and writes a report: a verdict for each policy, the
numbers that must be zero, what was deleted, and what nobody knows. It says nothing that is not in the log, so that the same two checkpoints give the same
JSON to everybody.

The log is read from its topic, or from a folder that lapse events --export has written, or that keeps the topics (--dir). The log's public key is taken as in
lapse verify. The period has its beginning and not its end, in UTC; it must be over in the log: an auditor that runs takes it half a minute further.

A page (-o report.html) is signed where the key named log is at hand. A CSV has one table, so that -o report.csv writes the verdicts there, and each other
table beside it. --redacted names nobody and says no number from 1 to 4; --certificate is one page for the records. lapse verify checks each page.

A policy's verdict is the worst of its findings: fail, not_assessed, warn, pass. Where one fails: exit 3. A period that the log cannot answer for: exit 2.`,
		Example: `  lapse report --last 30d
  lapse report --from begin
  lapse report --month 2026-10 -o report.html -o report.csv
  lapse report --month 2026-10 --redacted -o published.html
  lapse report --month 2026-10 --certificate --policy sessions-30d -o certificate.html
  lapse report --last 1d --certificate --policy sessions-30d --run 0198f1d0-0000-7000-8000-000000000002 -o certificate.html
  lapse report --month 2026-10 -o report.json --public-key app.example.com/lapse+1f2e3d4c+AWVhc3R...
  lapse report --dir ./evidence --from 2026-10-01 --to 2026-11-01 --policy sessions-30d -o report.json`,
		Args: noArgs,
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) (err error) {
		if r.ask, err = readPeriod(from, to, last, month); err != nil {
			return err
		}
		if err := r.checkEdition(month); err != nil {
			return err
		}
		if err := r.takeRunAndFiles(one); err != nil {
			return err
		}
		return r.run(cmd.Context())
	})
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "the period begins at this `time`; begin: where the log does")
	flags.StringVar(&to, "to", "", "and ends before this `time` (default: as far as the log has come)")
	flags.StringVar(&last, "last", "", "the period has this `length`, such as 30d, 12h or 4w, up to where the log has come")
	flags.StringVar(&month, "month", "", "the period is this `month`, such as 2026-10")
	flags.StringArrayVar(&r.only, "policy", nil, "only this `policy`; may be repeated")
	flags.StringArrayVarP(&r.outs, "output", "o", nil, "write the report into this `file`, in the form of its ending: .html, .csv (the other tables beside it) or .json; may be repeated")
	flags.BoolVar(&r.redacted, "redacted", false, "without names, and without numbers from 1 to 4; of one --month and all policies")
	flags.BoolVar(&r.certificate.wanted, "certificate", false, "one page for the records, of one --policy or of a --matter")
	flags.StringVar(&r.certificate.matter, "matter", "", "with --certificate: of the holds for this `matter`")
	flags.StringVar(&one, "run", "", "with --certificate and --policy: of this `run`, as events and lapse run --json name it")
	flags.StringVar(&r.dir, "dir", "", "the `folder` that lapse events --export has written, or that keeps the topics")
	flags.StringVar(&r.public, "public-key", "", "the log's public `key`: name, hash and key with plus signs between them, or a file with it")
	flags.StringArrayVar(&r.known, "known", nil, "a `file` with a checkpoint of this log that was seen before, or of an anchor; may be repeated")
	flags.StringArrayVar(&r.by.named, "witness", nil, "a witness's public `key`; may be repeated (default: those of lapse.yaml)")
	flags.Var(&r.by.quorum, "quorum", "how many witnesses must have cosigned a checkpoint (default: as in lapse.yaml)")
	a.jsonFlag(cmd)
	return cmd
}

// takeRunAndFiles reads the run that a certificate is of; empty: of none. It wants each file to have the ending of a form.
func (r *reporter) takeRunAndFiles(one string) (err error) {
	for _, name := range r.outs {
		if _, err := reportForm(name); err != nil {
			return err
		}
	}
	if one == "" {
		return nil
	}
	if r.oneRun, err = uuid.Parse(one); err != nil || !r.certificate.wanted || r.certificate.matter != "" {
		return wrongUsage("--run %s: want a run, such as 0198f1d0-0000-7000-8000-000000000002, with --certificate and --policy", one)
	}
	return nil
}

// reporter makes reports.
type reporter struct {
	*verifier
	ask  period
	only []string
	outs []string

	oneRun      uuid.UUID // the certificate's run; zero if it is not of a run
	redacted    bool
	certificate certificateOf
}

// period is the requested period. Without an end it ends where the log does.
type period struct {
	from, to time.Time
	last     time.Duration
	begin    bool // it begins with the log
}

// logBegin is the value of --from that means the log's beginning.
const logBegin = "begin"

// readPeriod reads the flags that define the period.
func readPeriod(from, to, last, month string) (p period, err error) {
	given := 0
	for _, text := range []string{last, month, from} {
		if text != "" {
			given++
		}
	}
	if given != 1 || to != "" && from == "" {
		return p, wrongUsage("say which period: --last 30d, --month 2026-10, or --from and --to")
	}
	switch {
	case last != "":
		p.last, err = readLength(last)
	case month != "":
		if p.from, err = time.Parse("2006-01", month); err != nil {
			return p, wrongUsage("--month %s: want a month such as 2026-10", month)
		}
		p.to = p.from.AddDate(0, 1, 0)
	case from == logBegin:
		p.begin = true
		p.to, err = readMoment("--to "+to, to)
	default:
		if p.from, err = readMoment("--from "+from, from); err == nil {
			p.to, err = readMoment("--to "+to, to)
		}
		if err == nil && !p.to.IsZero() && !p.from.Before(p.to) {
			err = wrongUsage("--from %s and --to %s: there is nothing between them", from, to)
		}
	}
	return p, err
}

// readLength parses a length of time: days, weeks, or a duration in Go's notation.
func readLength(text string) (time.Duration, error) {
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		number, is := strings.CutSuffix(text, unit)
		if n, err := strconv.Atoi(number); is && err == nil && n > 0 && n < 10_000 {
			return time.Duration(n) * length, nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return d, nil
	}
	return 0, wrongUsage("--last %s: want a length such as 30d, 4w or 12h", text)
}

// reported is the result of `lapse report`.
type reported struct {
	Verifies   bool             `json:"verifies"`
	Fault      *foundFault      `json:"fault"` // the first fault; null if the log verifies
	From       string           `json:"from"`
	To         string           `json:"to"`
	Log        string           `json:"log"`
	PublicKey  string           `json:"public_key"`
	Opening    int64            `json:"opening"` // the size of the checkpoint before the period; 0 for none
	Closing    int64            `json:"closing"`
	Policies   []reportedPolicy `json:"policies"`
	Files      []string         `json:"files"`
	Witnesses  []seenBy         `json:"witnesses"`
	Cosigned   int64            `json:"cosigned"`
	NotChecked []string         `json:"not_checked"`
}

type reportedPolicy struct {
	Policy   string   `json:"policy"`
	Table    string   `json:"table"`
	Verdict  string   `json:"verdict"`
	Deleted  int64    `json:"deleted"` // rows of the policy's table
	Findings []string `json:"findings"`
}

// madeReport is a report, and what else was found in the log.
type madeReport struct {
	report    *report.Report
	canonical []byte
	publicKey string // the key that verified the log
	witnesses []report.Witness
	redacted  *report.Redacted // nil if it is not redacted; otherwise canonical is its JSON
	of        certificateOf
}

func (r *reporter) run(ctx context.Context) error {
	v := &verified{Witnesses: []seenBy{}, NotChecked: []string{shows, "the events' numbers and commitments against the log's records: lapse verify --dir does that for an export"}}
	result := &reported{Policies: []reportedPolicy{}, Files: []string{}, Witnesses: []seenBy{}}
	made, err := r.make(ctx, v)
	result.PublicKey, result.Witnesses, result.Cosigned, result.NotChecked = v.PublicKey, v.Witnesses, v.Cosigned, v.NotChecked
	var found *tree.Fault
	var unanswered *report.PeriodError
	switch {
	case errors.As(err, &found):
		result.Fault = faultOf(found)
		err = errNeedsPerson
	case errors.As(err, &unanswered):
		return invalid(err)
	case err != nil:
		return err
	default:
		result.Verifies = true
		if err = r.edit(made); err != nil {
			return err
		}
		if err = r.write(result, made); err != nil {
			return err
		}
		if result.failed() {
			err = errNeedsPerson
		}
	}
	if r.asJSON {
		return errors.Join(r.printJSON(result), err)
	}
	return errors.Join(r.printReport(result, found), err)
}

// make reads the log twice, and once more to find the end of a period that has none.
func (r *reporter) make(ctx context.Context, v *verified) (*madeReport, error) {
	log, err := r.openReported(ctx, v)
	if err != nil {
		return nil, err
	}
	defer log.close()
	q := report.Question{From: r.ask.from, To: r.ask.to, Only: r.only, Run: r.oneRun}
	if q.To.IsZero() || r.ask.begin {
		var ends report.Ends
		if err := log.pass(ctx, "looking for the end of", ends.Record, ends.Checkpoint); err != nil {
			return nil, err
		}
		if q.To.IsZero() {
			q.To = ends.Last()
		}
		if q.To.IsZero() {
			return nil, &report.PeriodError{What: "no checkpoint signs a heartbeat of the log yet: an auditor writes both within half a minute"}
		}
		if r.ask.begin {
			q.From = ends.First()
		}
		if r.ask.last > 0 {
			q.From = q.To.Add(-r.ask.last)
		}
	}
	bounds, err := report.NewBounds(q)
	if err != nil {
		return nil, err
	}
	for again := true; again; {
		if err := log.pass(ctx, "verifying", bounds.Record, bounds.Checkpoint); err != nil {
			return nil, err
		}
		if again = bounds.Misdated(); again {
			bounds = bounds.Again()
		}
	}
	log.tell(v)
	if err := bounds.End(); err != nil {
		return nil, err
	}
	count := bounds.Count()
	if err := log.pass(ctx, "counting", count.Record, nil); err != nil {
		return nil, err
	}
	made := &madeReport{publicKey: v.PublicKey}
	if made.report, err = count.Report(); err != nil {
		return nil, err
	}
	made.report.Log.Name = log.name
	for _, w := range v.Witnesses {
		seen := report.Witness{Name: w.Name, Records: w.Records}
		if w.At != nil {
			seen.At = report.At(*w.At)
		}
		made.witnesses = append(made.witnesses, seen)
	}
	made.canonical, err = made.report.Canonical()
	return made, err
}

// write writes the files, and fills in the printed result.
func (r *reporter) write(result *reported, made *madeReport) error {
	of := made.report
	result.From, result.To, result.Log, result.Closing = string(of.Period.From), string(of.Period.To), of.Log.Name, of.Log.Closing.Records
	if of.Log.Opening != nil {
		result.Opening = of.Log.Opening.Records
	}
	for i := range of.Policies {
		p := &of.Policies[i]
		line := reportedPolicy{Policy: p.Name, Table: p.Table, Verdict: string(p.Verdict), Deleted: p.Deleted.Rows + p.Deleted.Soft, Findings: []string{}}
		for j := range p.Findings {
			line.Findings = append(line.Findings, findingText(&p.Findings[j]))
		}
		result.Policies = append(result.Policies, line)
	}
	for _, name := range r.outs {
		form, err := reportForm(name)
		if err != nil {
			return err
		}
		files, err := form(r.app, name, made)
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		result.Files = append(result.Files, files...)
	}
	return nil
}

func (r *reported) failed() bool {
	for i := range r.Policies {
		if r.Policies[i].Verdict == string(report.Fail) {
			return true
		}
	}
	return false
}

// findingText describes a finding in one line.
func findingText(f *report.Finding) string {
	text := string(f.Grade) + ": " + strings.ToLower(f.About.Title()[:1]) + f.About.Title()[1:]
	switch {
	case f.Count > 0:
		return fmt.Sprintf("%s (%d)", text, f.Count)
	case f.Why != "":
		return text + ": " + f.Why.Text()
	}
	return text
}

// printReport prints the result as text.
func (r *reporter) printReport(of *reported, found *tree.Fault) error {
	var lines []string
	if found != nil {
		lines = append(lines, "does not verify: "+found.Error(), "no report was made")
	} else {
		lines = append(lines, fmt.Sprintf("report of %s from %s to %s, up to record %d", of.Log, of.From, of.To, of.Closing), "key         "+of.PublicKey)
		for i := range of.Policies {
			p := &of.Policies[i]
			lines = append(lines, fmt.Sprintf("%-12s %s, on %s: %s deleted", p.Verdict, p.Policy, p.Table, counted(p.Deleted, "row")))
			for _, finding := range p.Findings {
				lines = append(lines, "             "+finding)
			}
		}
		if len(of.Policies) == 0 {
			lines = append(lines, "there was no policy")
		}
		for _, name := range of.Files {
			lines = append(lines, "written     "+name)
		}
	}
	for _, what := range of.NotChecked {
		lines = append(lines, "not checked: "+what)
	}
	_, err := fmt.Fprintln(r.out, strings.Join(lines, "\n"))
	return err
}

// taker processes the leaves of a log.
type taker func(leaf int64, r *evidence.LogRecord)
