package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"lapse/internal/status"
)

func TestWhatIsNotSeenIsShown(t *testing.T) {
	t.Parallel()
	const name = "a\u202eb\u200bc\u2066\u0085\x1b[2J\ufeff\u2028\U000e0041é漢"
	const shown = `a\u202eb\u200bc\u2066\u0085\u001b[2J\ufeff\u2028\udb40\udc41é漢`
	if got := onOneLine(name + "\n"); got != shown+`\u000a` {
		t.Errorf("on one line: %s", got)
	}
	var out, log bytes.Buffer
	a := &app{out: &result{to: &out}, err: &log}
	if _, err := a.out.Write([]byte(name + "\n\t")); err != nil || out.String() != shown+"\n\t" {
		t.Errorf("written: %q, %v", out.String(), err)
	}
	out.Reset()
	a.show("lapse plan", wrongUsage("there is no table %s", name))
	if want := "lapse plan: there is no table " + shown + "\nsee lapse plan --help\n"; log.String() != want {
		t.Errorf("an error: %q", log.String())
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(a.printJSON(status.Past{Policy: name}))
	must(a.answerJSON("lapse policy history", nil))
	var back struct{ Result struct{ Policy string } }
	if must(json.Unmarshal(out.Bytes(), &back)); back.Result.Policy != name || bytes.ContainsRune(out.Bytes(), '\u202e') {
		t.Errorf("as JSON: %s", out.String())
	}
	out.Reset()
	if _, err := a.raw().Write([]byte(name)); err != nil || out.String() != name {
		t.Errorf("raw: %q, %v", out.String(), err)
	}
}
