package page

import (
	"fmt"

	"lapse/internal/status"
)

// stage is one step of a deletion's way: from the executor, through the write-ahead log and the audit, into the topics.
type stage struct {
	Name   string
	Grade  grade
	Figure string // the number that matters most
	Unit   string
	Lines  []string
}

// pipeline is the whole way.
func pipeline(s *status.Status, p *Page) []stage {
	return []stage{executorStage(s), logStage(s), auditStage(s), topicsStage(s, p)}
}

func executorStage(s *status.Status) stage {
	runs := 0
	for i := range s.Executors {
		if s.Executors[i].Silent == 0 {
			runs++
		}
	}
	at := stage{Name: "Executor", Grade: gradeWell, Figure: fmt.Sprint(runs), Unit: "running", Lines: []string{s.ExecutorsText()}}
	switch {
	case len(s.Unattended) > 0:
		at.Grade = gradeAct
	case runs == 0 || runs < len(s.Executors):
		at.Grade = gradeLook
	case s.Executors[0].State != "running":
		at.Grade = gradeLook
	}
	return at
}

func logStage(s *status.Status) stage {
	at := stage{Name: "Write-ahead log", Grade: gradeIdle, Figure: "-", Unit: "no slot reads it"}
	if a := &s.Audit; a.Exists {
		at.Grade, at.Figure, at.Unit = gradeWell, status.Size(a.Behind), "not confirmed yet"
		at.Lines = []string{status.Size(a.Held) + " kept for the slot"}
		headroom := "the slot has no limit: max_slot_wal_keep_size"
		if a.Headroom != nil {
			headroom = status.Size(*a.Headroom) + " until the slot is lost"
			if *a.Headroom < a.Held {
				at.Grade = gradeLook
			}
		}
		at.Lines = append(at.Lines, headroom)
		if a.Lost {
			at.Grade = gradeAct
		}
	}
	return at
}

func auditStage(s *status.Status) stage {
	a := &s.Audit
	at := stage{Name: "Audit", Lines: []string{a.Text(s.At)}}
	switch {
	case !a.Required:
		at.Grade, at.Figure = gradeIdle, "off"
	case !a.Exists || a.Lost:
		at.Grade, at.Figure = gradeAct, "no slot"
	case !a.Active:
		at.Grade, at.Figure = gradeAct, "stopped"
	default:
		at.Grade, at.Figure = gradeWell, "reading"
	}
	if a.Required {
		at.Lines = append(at.Lines, fmt.Sprintf("history %d", a.History))
	}
	if s.Witnesses != "" {
		at.Lines = append(at.Lines, "witnesses: "+s.Witnesses)
	}
	return at
}

func topicsStage(s *status.Status, p *Page) stage {
	at := stage{Name: "Topics", Grade: gradeIdle, Figure: "none"}
	if !s.Audit.Required {
		return at
	}
	at.Figure, at.Unit = "-", "this process publishes nothing"
	at.Lines = []string{"in " + p.Topics.Place, p.Topics.System, p.Topics.User, p.Topics.Log}
	if p.Published == nil {
		return at
	}
	n := p.Published()
	at.Grade, at.Figure, at.Unit = gradeWell, fmt.Sprint(n.System+n.User+n.Unverified), "events published by this process"
	at.Lines = []string{
		"in " + p.Topics.Place,
		fmt.Sprintf("%s: %d by policies", p.Topics.System, n.System),
		fmt.Sprintf("%s: %d by others", p.Topics.User, n.User),
		p.Topics.Log + ": the log",
	}
	if n.Unverified > 0 {
		at.Grade = gradeAct
		at.Lines = append(at.Lines, fmt.Sprintf("%d do not verify", n.Unverified))
	}
	return at
}
