package main

import (
	"encoding/json"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// compare holds what plan -f says against what apply and the first run do.
func (e *drawnSite) compare(rt *rapid.T, w *drawnWorld, tally map[string]int) {
	planned := e.says(rt, w.login, "plan", "--json", "-f", "drawn.yaml")
	applied := e.says(rt, w.login, "apply", "--json", "--yes", "-f", "drawn.yaml")
	// A login that only reads is told how much would go, and apply refuses to connect with it.
	reads := slices.ContainsFunc(planned.Warnings, func(w string) bool { return strings.Contains(w, "this login does not apply policies") })
	// What only this login lacks is one warning of the policy's plan.
	var plans []struct {
		Policy   string
		Warnings []string
	}
	if len(planned.Result) > 0 {
		if err := json.Unmarshal(planned.Result, &plans); err != nil {
			rt.Fatalf("read the plans: %v\n%s", err, planned.text)
		}
	}
	lacks := func(m mistake) bool {
		if !strings.Contains(m.Message, "and this login may not change that") && !strings.Contains(m.Message, ", a superuser, and only its owner may publish it") {
			return false
		}
		for _, p := range plans {
			if p.Policy == m.Policy && slices.Contains(p.Warnings, mayNotApply) {
				return true
			}
		}
		return false
	}
	denied, lacking := false, 0
	for _, m := range applied.Errors {
		if m.File == "" && strings.HasPrefix(m.Message, "nothing of the file was applied") {
			continue
		}
		if reads && strings.Contains(m.Message, "permission denied to set role") {
			denied = true
			continue
		}
		if lacks(m) {
			lacking++
			continue
		}
		if !slices.Contains(planned.Errors, m) {
			rt.Fatalf("apply says, and plan does not: %+v\n%s\nplan: %s", m, w, planned.text)
		}
	}
	if reads && !denied {
		rt.Fatalf("plan says that the login does not apply policies, and apply does not\n%s\napply: %s", w, applied.text)
	}
	if reads {
		tally["reads"]++
		return
	}
	if lacking > 0 && len(planned.Errors) == 0 {
		tally["lacks"]++
		return
	}
	refused := func(code int) bool { return code == exitFailed || code == exitInvalid }
	if refused(planned.Exit) != refused(applied.Exit) {
		rt.Fatalf("plan ends with %d, apply with %d\n%s\nplan: %s\napply: %s", planned.Exit, applied.Exit, w, planned.text, applied.text)
	}
	if applied.Exit == exitPerson && planned.Exit == exitDone {
		rt.Fatalf("apply wants a person, and plan does not\n%s\nplan: %s\napply: %s", w, planned.text, applied.text)
	}
	tally[map[bool]string{true: "refused", false: "applied"}[refused(applied.Exit)]]++
	if e.audit || applied.Exit != exitDone || planned.Exit != exitDone {
		return
	}
	tally["run"]++
	if run := e.says(rt, "", "run", "--once", "--json"); run.Exit != exitDone {
		rt.Fatalf("the first run ends with %d, and plan has not said why\n%s\n%s", run.Exit, w, run.text)
	}
}
