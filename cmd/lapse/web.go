package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"lapse/internal/page"
)

// readiness returns nil if a part does its job or stands by, otherwise the reason why not. says, if not nil, returns a remark for a part that
// is ready but does nothing for now.
type readiness struct {
	part  string
	ready func() error
	says  func() string
}

// web serves the state of a running process. No request changes anything.
type web struct {
	listener net.Listener
	server   *http.Server
	log      *slog.Logger
}

const (
	headerTimeout = 5 * time.Second
	webStopTime   = 2 * time.Second
)

// buildInfo identifies this program.
func buildInfo() prometheus.Collector {
	v := readVersions()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "lapse", Name: "build_info", Help: "Always 1; its labels say which program this is.",
		ConstLabels: prometheus.Labels{"version": v.Version, "commit": v.Commit, "goversion": v.Go},
	}, func() float64 { return 1 })
}

// readyNow says for each part whether /readyz would find it ready.
func readyNow(parts []readiness) (all []prometheus.Collector) {
	for _, p := range parts {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "lapse", Name: "ready", Help: "1 while the part of this process does its job or stands by for another one, as /readyz says, 0 while it does not.",
			ConstLabels: prometheus.Labels{"part": p.part},
		}, func() float64 {
			if p.ready() != nil {
				return 0
			}
			return 1
		}))
	}
	return all
}

// newRegistry has the metrics of the process and of its parts.
func newRegistry(parts ...[]prometheus.Collector) (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	all := []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(),
	}
	for _, part := range parts {
		all = append(all, part...)
	}
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register a metric: %w", err)
		}
	}
	return registry, nil
}

// listen opens the port, so that a process that cannot have it ends before it begins anything. shown is nil for no status page.
func listen(ctx context.Context, address string, registry *prometheus.Registry, parts []readiness, shown *page.Page, log *slog.Logger) (*web, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve HTTP: %w: choose another address with http: in lapse.yaml or --http", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answerReady(w, parts) })
	if shown != nil {
		shown.Handle(mux)
	}
	log.Info("serving HTTP", "address", listener.Addr().String())
	return &web{
		listener: listener, log: log,
		server: &http.Server{Handler: page.OnlyLocal(listener.Addr(), mux), ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)},
	}, nil
}

func answerReady(w http.ResponseWriter, parts []readiness) {
	var reasons []error
	for _, p := range parts {
		if err := p.ready(); err != nil {
			reasons = append(reasons, fmt.Errorf("%s: %w", p.part, err))
		}
	}
	if err := errors.Join(reasons...); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
	for _, p := range parts {
		if p.says == nil {
			continue
		}
		if says := p.says(); says != "" {
			fmt.Fprintf(w, "%s: %s\n", p.part, says)
		}
	}
}

// Run serves until ctx ends.
func (w *web) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- w.server.Serve(w.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), webStopTime)
	defer cancel()
	err := w.server.Shutdown(stopping)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stop HTTP: %w", err)
	}
	return nil
}
