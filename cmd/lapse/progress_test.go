package main

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lapse/internal/backoff"
)

// many comes to a policy each second, of so many, and to none when something is said.
func many(ctx context.Context, a *app, of int) {
	p := a.progress("policy")
	defer p.end()
	_ = backoff.Sleep(ctx, time.Second/2)
	for i := range of {
		p.at("counting", i+1, of)
		_ = backoff.Sleep(ctx, time.Second)
	}
}

func TestProgressIsSaidAfterTwoSecondsEverySoOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out, said bytes.Buffer
		a := &app{out: &out, err: &said, patient: true, log: slog.New(slog.NewTextHandler(&said, nil))}
		many(t.Context(), a, 1)
		if said.Len() > 0 {
			t.Errorf("in one second it said %q", &said)
		}
		many(t.Context(), a, 14)
		if got := strings.Join(regexp.MustCompile(`policy=\d+ of=14`).FindAllString(said.String(), -1), ", "); got != "policy=2 of=14, policy=7 of=14, policy=12 of=14" || out.Len() > 0 {
			t.Errorf("it said %q", &said)
		}
	})
}

func TestProgressIsOneLineOnATerminalThatIsGoneAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		many(t.Context(), &app{err: &screen, patient: true, shows: true}, 4)
		if got := screen.String(); !strings.Contains(got, "counting policy 3 of 4"+clearLine+"counting policy 4 of 4") || strings.Contains(got, "\n") || !strings.HasSuffix(got, clearLine) {
			t.Errorf("the screen got %q", got)
		}
	})
}

func TestNobodyIsToldHowFarAShortCommandIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		many(t.Context(), &app{err: &screen, shows: true}, 4)
		many(t.Context(), &app{err: &screen, patient: true, shows: true}, 1)
		if screen.Len() > 0 {
			t.Errorf("the screen got %q", &screen)
		}
	})
}
