package page

import (
	"fmt"

	"lapse/internal/plaintext"
	"lapse/internal/status"
)

// stage is one step on a deletion's way from the executor, through the write-ahead log and the audit, to the topics.
type stage struct {
	Name   string
	Grade  grade
	Figure string // the most important number
	Unit   string
	Gauge  *gauge // nil for none
	Lines  []string
}

// gauge is a part of a whole.
type gauge struct {
	Percent int
	Label   string
}

// pipeline returns all stages. today is the number of rows deleted today, or less than 0 if it is unknown.
func pipeline(s *status.Status, p *Page, today int64) []stage {
	return []stage{executorStage(s, today), logStage(s), auditStage(s), topicsStage(s, p)}
}

func executorStage(s *status.Status, today int64) stage {
	runs := len(s.Running())
	at := stage{Name: "Executor", Grade: gradeWell, Figure: "-", Unit: "today's rows are being counted", Lines: []string{"executors: " + s.ExecutorsText()}}
	if today >= 0 {
		at.Figure, at.Unit = plaintext.Number(today), "rows deleted today"
	}
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
			at.Gauge = gaugeOf(a.Held, *a.Headroom)
			if *a.Headroom < a.Held {
				at.Grade = gradeLook
			}
		}
		at.Lines = append(at.Lines, headroom)
		if a.NeedsPerson() && !a.Revoked {
			at.Grade = gradeAct
		}
	}
	return at
}

// gaugeOf shows how much of the allowed amount is in use.
func gaugeOf(held, headroom int64) *gauge {
	whole := max(held, 0) + max(headroom, 0)
	if whole == 0 {
		return nil
	}
	percent := int(float64(max(held, 0)) / float64(whole) * 100)
	return &gauge{percent, fmt.Sprintf("%d %% of what the server may keep for the slot is kept", percent)}
}

func auditStage(s *status.Status) stage {
	a := &s.Audit
	at := stage{Name: "Audit", Lines: []string{a.Text(s.At)}}
	switch {
	case !a.Required:
		at.Grade, at.Figure = gradeIdle, "off"
	case !a.Exists || a.Lost:
		at.Grade, at.Figure = gradeAct, "no slot"
	case a.Revoked:
		at.Grade, at.Figure = gradeAct, "waiting"
	case !a.Active:
		at.Grade, at.Figure = gradeLook, "stopped"
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
	at.Grade, at.Figure, at.Unit = gradeWell, plaintext.Number(n.System+n.User+n.Unverified), "events published by this process"
	at.Lines = []string{
		"in " + p.Topics.Place,
		fmt.Sprintf("%s: %s by policies", p.Topics.System, plaintext.Number(n.System)),
		fmt.Sprintf("%s: %s by others", p.Topics.User, plaintext.Number(n.User)),
		p.Topics.Log + ": the log",
	}
	if n.Unverified > 0 {
		at.Grade = gradeAct
		at.Lines = append(at.Lines, fmt.Sprintf("%s do not verify", plaintext.Number(n.Unverified)))
	}
	return at
}
