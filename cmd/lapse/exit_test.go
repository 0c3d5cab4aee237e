package main

import (
	"errors"
	"fmt"
	"testing"

	"lapse/audit/export"
	"lapse/executor/guard"
	"lapse/internal/config"
	"lapse/internal/setup/access"
	"lapse/internal/yamldoc"
	"lapse/replication"
	"lapse/schemas"
)

func TestEachKindOfErrorHasItsExitCode(t *testing.T) {
	_, noExport := export.Open(t.Context(), t.TempDir())
	for _, c := range []struct {
		name string
		err  error
		code int
	}{
		{"done", nil, 0},
		{"anything else", errors.New("the server went away"), 1},
		{"nothing may be deleted", &guard.Refusal{}, 1},
		{"a grant is missing", &access.GrantError{}, 1},
		{"told to stop", errSignalled, 1},
		{"wrong usage", wrongUsage("no"), 2},
		{"input that cannot be used", invalid(errors.New("no")), 2},
		{"a folder that is no export", noExport, 2},
		{"mistakes in lapse.yaml or in the policy file", yamldoc.Errors{}, 2},
		{"a table that cannot be published", &replication.IdentityError{}, 2},
		{"a missing key", config.ErrNoKey, 2},
		{"no brokers", config.ErrNoBrokers, 2},
		{"a short key", schemas.ErrKeyTooShort, 2},
		{"something for a person", errNeedsPerson, 3},
	} {
		if got := exitCode(c.err); got != c.code {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.code)
		}
		if c.err == nil {
			continue
		}
		if got := exitCode(fmt.Errorf("in a layer: %w", c.err)); got != c.code {
			t.Errorf("%s, wrapped: exit code %d, want %d", c.name, got, c.code)
		}
	}
}
