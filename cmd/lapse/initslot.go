package main

import (
	"context"
	"fmt"

	"lapse/audit/history"
	"lapse/internal/setup/install"
	"lapse/planner/database"
)

// goesOn says how the log continues with a slot that was made again, as far as that can be checked.
func (i *initialiser) goesOn(ctx context.Context, r *initReport) {
	const look = "lapse history shows whether the log and the database agree"
	if err := i.settings.RequireSink(); err != nil {
		r.Next = append(r.Next, "if the log and the database are one history, the log goes on with a gap that begins at its end; "+look)
		return
	}
	p, err := i.pastsAfterInit(ctx)
	switch {
	case err != nil:
		r.Warnings = append(r.Warnings, fmt.Sprintf("how the log goes on could not be checked: %v; %s", err, look))
	case p.needsPerson():
		r.Warnings = append(r.Warnings, p.verdict())
		r.Next = append(r.Next, look+", and what to type")
	case p.Outcome == history.OutcomeNew:
	case p.Outcome == history.OutcomePromoted || p.Outcome == history.OutcomeAccepted:
		r.Next = append(r.Next, fmt.Sprintf("lapse audit or lapse serve: the log goes on in the same topics; consumers are told that nothing above %s happened, "+
			"and of a gap from there to the slot", p.found.Fork))
	case p.found != nil:
		r.Next = append(r.Next, fmt.Sprintf("lapse audit or lapse serve: the log goes on in the same topics, with a gap from %s to the slot",
			p.found.LogEnd))
	}
}

func (i *initialiser) pastsAfterInit(ctx context.Context) (*historyView, error) {
	owner, err := i.connectAs(ctx, install.PlayOwner)
	if err != nil {
		return nil, err
	}
	defer database.Close(owner)
	return i.compareHistory(ctx, owner, i.settings, checkPinned)
}
