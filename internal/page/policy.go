package page

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/plaintext"
	"lapse/internal/status"
	"lapse/planner/record"
	"lapse/schemas"
)

// runsShown and stepsShown are the numbers of runs and of past changes on a policy's page.
const (
	runsShown  = 20
	stepsShown = 200
)

// onePolicy is what the database has on one policy, beyond its status.
type onePolicy struct {
	Shown *status.Shown
	Past  status.Past
	Runs  []status.LastRun
	At    time.Time // the server's clock
}

// policyView is the page of one policy.
type policyView struct {
	frame
	Name        schemas.PolicyName
	Row         *policyRow // nil if the policy is not in force, or the status is not known
	Year        *chart     // nil if not counted yet
	Heading     string
	HeldVersion string
	Made        string
	Entry       string
	Meaning     []status.Meaning
	Functions   []functionView
	Runs        []runView
	Past        []stepView
}

// functionView is one of the functions. The page shows the one that deletes, and folds the others.
type functionView struct {
	Title, Text string
	Open        bool
}

// runView is a row of the table of runs.
type runView struct {
	Started, Took, Deleted, Cascaded, Batches, Ended string
	Notes                                            []string
}

// stepView is a row of the policy's past.
type stepView struct {
	At, Text string
	Details  []string
}

// policy returns the kept value of one policy; nil if no policy of that name is in force. So there are as many values as policies, and requests for
// invented names cost nothing.
func (p *Page) policy(name schemas.PolicyName, s *status.Status) *kept[*onePolicy] {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	is := func(name schemas.PolicyName) bool {
		return slices.ContainsFunc(s.Policies, func(p status.Policy) bool { return p.Policy == name })
	}
	if !is(name) {
		return nil
	}
	if k := p.policies[name]; k != nil {
		return k
	}
	for other := range p.policies {
		if !is(other) {
			delete(p.policies, other)
		}
	}
	k := &kept[*onePolicy]{ctx: p.ctx, fresh: statusFresh, limit: readLimit, read: func(ctx context.Context) (*onePolicy, error) {
		return read(ctx, p, func(ctx context.Context, conn *pgx.Conn) (*onePolicy, error) {
			return readPolicy(ctx, conn, p.Roles, name)
		})
	}}
	p.policies[name] = k
	return k
}

// readPolicy reads the policy from the database.
func readPolicy(ctx context.Context, conn *pgx.Conn, roles schemas.Roles, name schemas.PolicyName) (*onePolicy, error) {
	of, err := record.Load(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	one := &onePolicy{}
	if of == nil {
		return one, nil
	}
	one.Past = status.PastOf(of)
	if one.Shown, err = status.ReadShown(ctx, conn, roles, of, of.Version, true); err != nil {
		return nil, err
	}
	if one.Runs, err = status.ReadRuns(ctx, conn, name, runsShown); err != nil {
		return nil, err
	}
	return one, conn.QueryRow(ctx, "select clock_timestamp()").Scan(&one.At)
}

func (p *Page) showPolicy(w http.ResponseWriter, r *http.Request) {
	name := schemas.PolicyName(r.PathValue("name"))
	view := policyView{frame: frame{Title: "Lapse: no such policy", Database: p.Database}, Name: name}
	ctx, cancel := context.WithTimeout(r.Context(), Patience)
	defer cancel()
	whole := p.status.get(ctx, Patience)
	if whole.Value == nil {
		view.Title = "Lapse: " + p.Database
		view.freshness = freshnessOf(cmp.Or(whole.Err, errSlow), whole.At, whole.At)
		p.show(w, r, http.StatusServiceUnavailable, "policy.tmpl", view)
		return
	}
	keeps := p.policy(name, whole.Value)
	if keeps == nil {
		view.freshness = freshnessOf(whole.Err, whole.At, whole.Value.At)
		p.show(w, r, http.StatusNotFound, "policy.tmpl", view)
		return
	}
	one := keeps.get(ctx, Patience)
	view.Title = "Lapse: " + string(name)
	view.freshness = freshnessOf(cmp.Or(one.Err, whole.Err), whole.At, whole.Value.At)
	for i := range whole.Value.Policies {
		if is := &whole.Value.Policies[i]; is.Policy == name {
			row := rowOf(is, whole.Value)
			view.Row = &row
		}
	}
	if days := p.days.get(ctx, daysPatience); days.Value != nil {
		view.Year = yearChart(days.Value.First, days.Value.Policies[name], days.Value.Uncounted, "Rows deleted under "+string(name))
	}
	if one.Value != nil && one.Value.Shown != nil {
		view.fill(one.Value)
	}
	p.show(w, r, http.StatusOK, "policy.tmpl", view)
}

func (v *policyView) fill(one *onePolicy) {
	s := one.Shown
	v.Heading, v.HeldVersion, v.Made, v.Entry, v.Meaning = s.Title(), s.HeldVersionText(), s.Made(), s.Entry, s.Meaning
	for i := range s.Functions {
		f := &s.Functions[i]
		v.Functions = append(v.Functions, functionView{status.FunctionTitle(f), f.Comment + strings.TrimRight(f.Text, "\n"), i == 0})
	}
	for i := range one.Runs {
		v.Runs = append(v.Runs, runOf(&one.Runs[i], one.At))
	}
	past := one.Past.History
	for i := len(past) - 1; i >= max(0, len(past)-stepsShown); i-- {
		step := &past[i]
		v.Past = append(v.Past, stepView{step.At.UTC().Format(time.RFC3339), step.Text(), step.Details()})
	}
}

func runOf(r *status.LastRun, now time.Time) runView {
	started, rows := r.Text()
	view := runView{Started: started, Took: "-", Deleted: rows, Cascaded: plaintext.Number(r.Cascaded), Batches: plaintext.Number(r.Batches), Ended: r.Ended, Notes: r.Notes()}
	switch {
	case r.EndedAt != nil:
		view.Took = status.Short(r.EndedAt.Sub(r.Started))
	case r.Goes():
		view.Took = status.Short(now.Sub(r.Started)) + " so far"
	}
	return view
}
