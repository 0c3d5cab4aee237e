package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"lapse/bench/internal/measure"
)

// side is one of the two binaries.
type side struct {
	name   string // before or after
	binary string
}

// prefix is what the side's roles begin with: both have theirs in one cluster.
func (s side) prefix() string { return s.name + "_" }

// policyName is the one policy.
const policyName = "bench"

// place is where a side works: a folder for keys and files, a database, and what lapse.yaml says of the audit.
type place struct{ dir, url, settings string }

// install makes Lapse in the database, with a policy for shop.sessions that is armed.
func (s side) install(ctx context.Context, at place, batch int) error {
	err := s.lapse(at).Install(ctx, s.settings(at), fmt.Sprintf(`policies:
  - name: %s
    table: shop.sessions
    expire: {column: at, after: 30 days}
    state: armed
    batch: %d
`, policyName, batch))
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// timing is how long one `lapse run --now` took.
type timing struct {
	took   time.Duration
	cutOff bool
}

// run deletes what is due, or as much of it as fits into limit.
func (s side) run(ctx context.Context, at place, limit time.Duration) (timing, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun := time.Now()
	spent, err := s.lapse(at).Run(limited, s.settings(at), "run", "--now", policyName, "--json")
	p := timing{took: time.Since(begun), cutOff: limited.Err() != nil}
	switch {
	case ctx.Err() != nil:
		return p, ctx.Err()
	case p.cutOff:
		return p, nil
	case err != nil:
		return p, err
	}
	var summary struct {
		Policies []struct{ Outcome string } // of a lapse before its results had an envelope
		Result   struct {
			Policies []struct{ Outcome string }
		}
	}
	if err := json.Unmarshal(spent.Output, &summary); err != nil {
		return p, fmt.Errorf("read what lapse run printed: %w", err)
	}
	policies := append(summary.Policies, summary.Result.Policies...)
	if len(policies) != 1 || policies[0].Outcome != "finished" {
		return p, fmt.Errorf("the run did not finish: %s", spent.Output)
	}
	return p, nil
}

// audit brings all that is in the slot into Kafka.
func (s side) audit(ctx context.Context, at place) (measure.Spent, error) {
	return s.lapse(at).Run(ctx, s.settings(at), "audit", "--once")
}

func (s side) lapse(at place) measure.Lapse { return measure.Lapse{Binary: s.binary, Dir: at.dir} }

// settings are those of lapse.yaml at a place.
func (s side) settings(at place) string {
	return fmt.Sprintf("database: %s\nroles: {prefix: %s}\n%s", at.url, s.prefix(), at.settings)
}
