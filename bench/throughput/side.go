package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
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

func (p place) file(name string) string { return filepath.Join(p.dir, name) }

// install makes Lapse in the database, with a policy for shop.sessions that is armed. Keys and policy file go into the folder.
func (s side) install(ctx context.Context, at place, batch int) error {
	keys, file := at.file("keys"), at.file("policies.yaml")
	if err := errors.Join(os.RemoveAll(at.dir), os.MkdirAll(at.dir, 0o700)); err != nil {
		return err
	}
	policy := fmt.Sprintf(`policies:
  - name: %s
    table: shop.sessions
    expire: {column: at, after: 30 days}
    state: armed
    batch: %d
`, policyName, batch)
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return err
	}
	if _, err := s.lapse(ctx, at, "init", "--keys", keys); err != nil {
		return err
	}
	_, err := s.lapse(ctx, at, "apply", "--yes", "-f", file)
	return err
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
	output, err := s.lapse(limited, at, "run", "--now", policyName, "--json")
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
	if err := json.Unmarshal(output, &summary); err != nil {
		return p, fmt.Errorf("read what lapse run printed: %w", err)
	}
	policies := append(summary.Policies, summary.Result.Policies...)
	if len(policies) != 1 || policies[0].Outcome != "finished" {
		return p, fmt.Errorf("%s: the run did not finish: %s", s.name, output)
	}
	return p, nil
}

// audit brings all that is in the slot into Kafka, and says how long the command took.
func (s side) audit(ctx context.Context, at place) (time.Duration, error) {
	begun := time.Now()
	_, err := s.lapse(ctx, at, "audit", "--once")
	return time.Since(begun), err
}

// lapse runs a command of the binary at a place. When ctx ends it is killed.
func (s side) lapse(ctx context.Context, at place, args ...string) ([]byte, error) {
	config := at.file("lapse.yaml")
	text := fmt.Sprintf("database: %s\nslot: lapse_bench\nkeys: %s\nroles: {prefix: %s}\n%s", at.url, at.file("keys"), s.prefix(), at.settings)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, s.binary, args...)
	// The login is a superuser: the databases are throw-away.
	cmd.Env = []string{"LAPSE_CONFIG=" + config, "HOME=" + at.dir, "LAPSE_SUPERUSER=allow"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: lapse %s: %w\n%s", s.name, args[0], err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
