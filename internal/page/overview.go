package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"lapse/internal/status"
	"lapse/schemas"
)

// overview is the page at /.
type overview struct {
	frame
	Status   *status.Status // nil if nothing is known
	Headline string
	Grade    grade
	Needing  []policyRow
	Pipeline []stage
	Policies []policyRow
	Year     *chart // nil if not counted yet
}

// frame is the part that all pages share.
type frame struct {
	freshness
	Title, Database string
}

// grade says how urgently something needs a person. The page shows its word next to the color.
type grade string

const (
	gradeWell grade = "ok"
	gradeLook grade = "look" // it may need a person
	gradeAct  grade = "act"  // it needs a person
	gradeIdle grade = "idle" // it does nothing on purpose
)

// policyRow is a row of the table.
type policyRow struct {
	Name       schemas.PolicyName
	Href       string
	Table      string
	State      string
	Grade      grade
	Last, Rows string
	Lag, Next  string
	Quarantine string
	Remarks    []string
	Spark      *spark // nil if not counted yet
}

func (p *Page) overview(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), Patience)
	defer cancel()
	view := overview{frame: frame{Title: "Lapse: " + p.Database, Database: p.Database}}
	if view.Status, view.freshness = p.known(ctx); view.Status == nil {
		p.show(w, r, http.StatusServiceUnavailable, "overview.tmpl", view)
		return
	}
	days := p.days.get(ctx, daysPatience).Value
	view.fill(p, days)
	p.show(w, r, http.StatusOK, "overview.tmpl", view)
}

// api is the status of the overview as JSON.
func (p *Page) api(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), Patience)
	defer cancel()
	s, f := p.known(ctx)
	text, err := p.JSON(s, f.Trouble)
	if err != nil {
		p.Logger.Error("the status cannot be written as JSON", "error", err)
		http.Error(w, "the status cannot be written: the log of the process says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if s == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(text) // an error means that the reader is gone
}

// known returns the status, nil if nothing is known, and how old it is.
func (p *Page) known(ctx context.Context) (*status.Status, freshness) {
	found := p.status.get(ctx, Patience)
	if found.Value == nil {
		return nil, freshnessOf(cmp.Or(found.Err, errSlow), found.At, found.At)
	}
	s := *found.Value
	s.Witnesses = p.witnessesText(ctx)
	return &s, freshnessOf(found.Err, found.At, s.At)
}

// witnessesText is the line about witnesses. The page does not wait until the log has been read for it.
func (p *Page) witnessesText(ctx context.Context) string {
	if p.Witnesses == nil {
		return ""
	}
	found := p.witnesses.get(ctx, 0)
	return cmp.Or(found.Value, "the log is being read for what they have cosigned")
}

// fill sets all parts. days is nil if nothing is counted yet.
func (v *overview) fill(p *Page, days *deleted) {
	s, today := v.Status, int64(-1)
	if days != nil {
		all := days.all()
		v.Year = yearChart(days.First, all, days.Uncounted, "Rows deleted under all policies")
		if last := daysShown - 1; !days.Uncounted[last] {
			today = all[last]
		}
	}
	v.Pipeline = pipeline(s, p, today)
	for i := range s.Policies {
		row := rowOf(&s.Policies[i], s)
		if days != nil {
			row.Spark = sparkOf(days.Policies[row.Name])
		}
		v.Policies = append(v.Policies, row)
		if row.Grade == gradeAct {
			v.Needing = append(v.Needing, row)
		}
	}
	v.Headline, v.Grade = headline(s, len(v.Needing), v.Trouble != "")
}

// headline answers the first question of someone who opens the page: is all well? old says that nothing newer is known.
func headline(s *status.Status, needing int, old bool) (text string, g grade) {
	switch {
	case needing == 1:
		return "One policy needs a person", gradeAct
	case needing > 1:
		return fmt.Sprintf("%d policies need a person", needing), gradeAct
	case len(s.Unattended) > 0:
		return "No executor runs, and policies are late", gradeAct
	case s.Alarmed():
		return "The auditor has stopped every deletion: a batch does not verify", gradeAct
	case s.Audit.Required && (!s.Audit.Exists || s.Audit.Lost):
		return "The audit has no slot, and nothing is deleted", gradeAct
	case s.Audit.Required && s.Audit.Revoked:
		return "The auditor waits for a person, and nothing is deleted", gradeAct
	case s.Audit.NeedsPerson():
		return "The audit's slot is nearly lost, and nothing is deleted", gradeAct
	case len(s.Policies) == 0:
		return "No policy is in force: lapse apply -f FILE adds some", gradeIdle
	case s.Audit.Required && !s.Audit.Active:
		return "Nobody audits", gradeLook
	case s.Paused != nil || s.Suspended != "":
		return "Nothing is deleted", gradeLook
	case len(s.Running()) == 0:
		return "No executor runs", gradeLook
	case old:
		return "Nothing newer is known: no policy needed a person then", gradeLook
	}
	return "No policy needs a person", gradeWell
}

func rowOf(p *status.Policy, s *status.Status) policyRow {
	row := policyRow{
		Name: p.Policy, Href: "/policies/" + url.PathEscape(string(p.Policy)), Table: p.Table, State: p.StateText(),
		Lag: p.LagText(), Next: p.NextText(s.At), Remarks: p.Remarks(), Grade: gradeOf(p),
	}
	row.Last, row.Rows = p.LastText(s.At)
	if p.Quarantine != nil {
		row.Quarantine = p.Quarantine.String()
	}
	return row
}

func gradeOf(p *status.Policy) grade {
	switch {
	case p.NeedsPerson():
		return gradeAct
	case p.State == schemas.Observing || p.State == schemas.Paused:
		return gradeIdle
	case len(p.Stays) > 0 || p.Person() != "" || slices.ContainsFunc([]string{"silent", "stopped", "waiting"}, func(does string) bool { return strings.Contains(p.StateText(), does) }):
		return gradeLook
	}
	return gradeWell
}
