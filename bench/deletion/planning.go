package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"lapse/bench/internal/measure"
)

// planning is what the commands take that look at all policies.
type planning struct {
	Command   string  `json:"command"`
	Seconds   float64 `json:"seconds"`
	ServerCPU float64 `json:"server_cpu_seconds"`
	LapseCPU  float64 `json:"lapse_cpu_seconds"`
}

// planned makes Lapse in the database, applies the policies, and measures that and the plans before and after it.
func (p *plan) planned(ctx context.Context, s *server, policies string) (all []planning, err error) {
	settings, file := s.settings(installed, 1), filepath.Join(p.Dir, "policies.yaml")
	if err := p.lapse().Init(ctx, settings); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, []byte(policies), 0o600); err != nil {
		return nil, err
	}
	for _, of := range []struct {
		command string
		args    []string
	}{{"plan -f", []string{"plan", "-f", file}}, {"apply", []string{"apply", "--yes", "-f", file}}, {"plan", []string{"plan"}}} {
		before, err := measure.CPU(s.PID())
		if err != nil {
			return nil, err
		}
		spent, err := p.lapse().Run(ctx, settings, of.args...)
		if err != nil {
			return nil, err
		}
		after, err := measure.CPU(s.PID())
		if err != nil {
			return nil, err
		}
		all = append(all, planning{of.command, spent.Seconds, (after - before).Seconds(), spent.CPU.Seconds()})
	}
	return all, nil
}

// printPlanning writes what plans and apply took for the policies that idle.
func (r *report) printPlanning(out io.Writer) error {
	fmt.Fprintf(out, "\nPostgreSQL %s, plans and apply of the same policies: seconds, and milliseconds of a policy or partition\n\n", r.Server)
	return measure.Table(out, "POLICIES\tPARTITIONS\tCOMMAND\tSECONDS\tSERVER CPU S\tLAPSE CPU S\tMS EACH", func(w io.Writer) {
		for _, i := range r.Idle {
			for _, c := range i.Planning {
				fmt.Fprintf(w, "%d\t%d\t%s\t%.2f\t%.2f\t%.2f\t%.2f\n",
					i.Policies, i.Partitions, c.Command, c.Seconds, c.ServerCPU, c.LapseCPU, c.Seconds*1000/float64(max(i.Policies, i.Partitions)))
			}
		}
	})
}
