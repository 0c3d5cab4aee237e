package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"lapse/audit/history"
)

// advise adds the commands to run next.
func (p *historyView) advise() {
	going := p.Outcome == history.OutcomeStraight || p.Outcome == history.OutcomeGap || p.Outcome == history.OutcomePromoted
	if l := p.Log; going && l.Heartbeat != nil && p.Database.Started.After(*l.Heartbeat) {
		p.Next = append(p.Next, "the audit first watches for two minutes whether another copy's auditor writes the log: "+
			"the server was started since the last heartbeat in it")
	}
	if p.found != nil && p.Outcome != history.OutcomeGap && len(p.found.Lacking) > 0 {
		p.Next = append(p.Next, strings.Join(p.found.Lacking, " and ")+" lacks records that it had acknowledged: the audit writes a gap")
	}
	switch p.Outcome {
	case history.OutcomeBent:
		p.adviseToAccept()
	case history.OutcomeGap, history.OutcomePromoted, history.OutcomeAccepted, history.OutcomeNew:
		p.Next = append(p.Next, "nothing: the audit continues by itself when it runs (lapse audit, lapse serve)")
	case outcomePending:
		p.Next = append(p.Next, "wait for two minutes, or see what the auditor's /readyz says; then: lapse history")
	}
}

func (p *historyView) adviseToAccept() {
	if p.found != nil && p.found.ForeignTail {
		p.Next = append(p.Next, "find out who can write to the topics, and stop that; then, to go on above the event with a new history: "+
			"lapse history accept --reason TEXT")
		return
	}
	p.Next = append(p.Next,
		"if this database is the one to go on with: lapse history accept --reason TEXT",
		"if it is not: point database: in lapse.yaml at the one that is")
	if p.found != nil {
		p.Next = append(p.Next, "if it is a copy that runs next to the original: give it topics of its own (topics: in lapse.yaml)")
	}
}

// verdict is the outcome as a sentence.
func (p *historyView) verdict() string {
	switch p.Outcome {
	case history.OutcomeNew:
		return "there is no log yet: the audit will begin it"
	case history.OutcomeStraight:
		if p.Log == nil {
			return "this server is the one that was accepted (audit: off: there is no log to compare with)"
		}
		return "the log and the database are one history"
	case history.OutcomeGap:
		return "the log and the database are one history, and " + p.Why + ": the audit writes a gap"
	case history.OutcomePromoted:
		return "this server was promoted without the end of the log, which is within failover_tolerance: the audit writes a rewind"
	case history.OutcomeAccepted:
		return fmt.Sprintf("history %d was accepted: the audit writes a rewind to %s", p.History.Number, p.Fork)
	case outcomeRead:
		return "the log and the database are one history: an auditor reads the slot, and it compares before it reads"
	case outcomePending:
		return "an auditor has the slot, and has not reported yet whether the log and the database are one history"
	case history.OutcomeBent:
		if p.Log == nil {
			return "nobody has accepted this database as it is: " + p.Why + "; nothing is deleted"
		}
		return "the log and the database are not one history: " + p.Why + "; nothing is published, confirmed or deleted"
	default:
		return "the audit cannot start: " + p.Why
	}
}

// printHistory prints both sides, the verdict, and the commands to run next.
func (a *app) printHistory(p *historyView) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	p.printSides(w)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s: %s\n", p.Outcome, p.verdict())
	for _, next := range p.Next {
		fmt.Fprintf(a.out, "next: %s\n", next)
	}
	return nil
}

func (p *historyView) printSides(w io.Writer) {
	fmt.Fprintf(w, "history\t%d, since %s, by %s: %s\n", p.History.Number, instant(&p.History.At), p.History.By, onOneLine(p.History.Reason))
	fmt.Fprintf(w, "database\treaches %s; last heartbeat %s\n\ttimeline %d; system %s\n\tserver started %s\n",
		p.Database.Reaches, instant(p.Database.Heartbeat), p.Database.Timeline, p.Database.System, instant(&p.Database.Started))
	if s := p.Slot; s != nil {
		at := s.State
		if s.At != "" {
			at = "is at " + s.At
		}
		fmt.Fprintf(w, "slot\t%s %s\n", s.Name, at)
	}
	switch l := p.Log; {
	case l == nil:
	case l.Reaches == "":
		fmt.Fprintf(w, "log\t%s is empty\n", l.Topic)
	default:
		fmt.Fprintf(w, "log\t%s reaches %s; last heartbeat %s\n", l.Topic, l.Reaches, instant(l.Heartbeat))
	}
	if p.Fork != "" && p.Outcome != history.OutcomeStraight {
		fmt.Fprintf(w, "the same\tup to %s\n", p.Fork)
	}
	if l := p.Lost; l != nil && l.Transactions+l.Heartbeats > 0 {
		fmt.Fprintf(w, "lost\tabove that the log has what this database lacks: %s\n", p.Lost)
	}
}

// String formats the counts.
func (l *lostSide) String() string {
	parts := []string{counted(l.Transactions, "transaction")}
	for _, cause := range causes() {
		if n := l.Events[cause]; n > 0 {
			parts = append(parts, counted(n, cause+" event"))
		}
	}
	return strings.Join(append(parts, counted(l.Heartbeats, "heartbeat")), ", ")
}

// instant formats a time; nil is "never".
func instant(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}
