package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/page"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Delete and audit in one process, until stopped",
		Long: `Runs the executor and the auditor side by side and serves the status page at /, and /healthz, /readyz and /metrics. If either
of them cannot continue without a person, both are stopped in order and the process exits with 1: the next process reads again what is not
confirmed. With audit: off only the executor runs.`,
		Example: `  lapse serve --config lapse.yaml
  lapse serve --http 127.0.0.1:7432 --log-format json`,
		Args: noArgs,
	}
	cmd.RunE = a.untilStopped(new(bool), func(cmd *cobra.Command) error {
		s, err := a.settings()
		if err != nil {
			return err
		}
		return a.serve(cmd.Context(), s)
	})
	cmd.Flags().StringVar(&a.overrides.HTTP, "http", "", "serve HTTP at this `address` (default: http: of lapse.yaml, then 127.0.0.1:7432)")
	return cmd
}

func (a *app) serve(ctx context.Context, s *config.Settings) error {
	var auditor *auditor // nil if there is none
	executor, done, err := a.newExecutor(s, func() string { return auditor.awaits() })
	if err != nil {
		return err
	}
	defer done()
	parts := []part{executorPart(executor)}
	ready := []readiness{{"executor", executor.Ready, executor.Paused}}
	measured := executor.Metrics().Collectors()
	installed, err := a.awaitInstallation(ctx, s, sessionOf(s, executor), false)
	if err != nil {
		return err
	}
	if err := checkKeys(s, installed, config.TagKey); err != nil {
		return err
	}
	if s.Audit == config.AuditOff {
		a.log.Warn("audit: off: rows are deleted without evidence")
	} else {
		if auditor, err = a.newAuditor(ctx, s, false); err != nil {
			return err
		}
		parts = append(parts, auditor.part())
		ready = append(ready, auditor.readiness())
		measured = append(measured, auditor.Collectors()...)
	}
	shown, err := a.newPage(ctx, s, auditor)
	if err != nil {
		return err
	}
	web, err := a.webPart(ctx, s.HTTP, ready, measured, shown)
	if err != nil {
		return err
	}
	return runParts(ctx, a.log, append(parts, web...)...)
}

// webPart is the HTTP server as a part, or nothing if no address is configured.
func (a *app) webPart(ctx context.Context, address string, ready []readiness, measured []prometheus.Collector, shown *page.Page) ([]part, error) {
	if address == "" {
		return nil, nil
	}
	registry, err := newRegistry(measured, readyNow(ready))
	if err != nil {
		return nil, err
	}
	w, err := listen(ctx, address, registry, ready, shown, a.log)
	if err != nil {
		return nil, err
	}
	return []part{{name: "http", run: w.Run, stop: 2 * webStopTime}}, nil
}
