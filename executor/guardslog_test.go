package executor

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"lapse/executor/guard"
)

// An auditor that starts is worth a line, and one that does not come to an end with it a warning, each once.
func TestAStartThatTakesLongIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g := newGuards(nil, nil, slog.New(slog.NewTextHandler(&log, nil)), newMetrics())
	is := func(verdict guard.Verdict, reason guard.Reason, detail string) {
		g.report("", &guard.Answer{Verdict: verdict, Refusal: guard.Refusal{Reason: reason, Detail: detail}})
	}
	is(guard.Go, "", "")
	is(guard.Wait, guard.AuditorStarting, "first")
	is(guard.Wait, guard.AuditorStarting, "second")
	is(guard.Refuse, guard.AuditorStarting, "third")
	is(guard.Refuse, guard.AuditorStarting, "fourth")
	is(guard.Go, "", "")
	is(guard.Go, "", "")
	is(guard.Refuse, guard.AuditBehind, "fifth")
	is(guard.Wait, guard.AuditBehind, "sixth") // moves again, and stops again: the same warning
	is(guard.Refuse, guard.AuditBehind, "seventh")
	is(guard.Wait, guard.AuditorStarting, "eighth")
	var got []string
	for line := range strings.Lines(log.String()) {
		level, rest, _ := strings.Cut(line[strings.Index(line, "level=")+6:], " ")
		_, detail, _ := strings.Cut(rest, "detail=")
		detail, _, _ = strings.Cut(strings.TrimSpace(detail), " ")
		got = append(got, strings.TrimSpace(level+" "+detail))
	}
	if want := "INFO first|WARN third|INFO|WARN fifth|INFO eighth"; strings.Join(got, "|") != want {
		t.Errorf("it logs %s, want %s\n%s", strings.Join(got, "|"), want, &log)
	}
}
