package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"lapse/internal/config"
	"lapse/internal/page"
	"lapse/internal/status"
)

// pageSession bounds the page's queries: they end early on a slow database, and they write nothing.
var pageSession = map[string]string{"statement_timeout": "2s", "lock_timeout": "1s", "default_transaction_read_only": "on"}

// newPage makes serve's status page. It reads as the executor, whose login serve already has. auditor is nil if there is none.
func (a *app) newPage(ctx context.Context, s *config.Settings, auditor *auditor) (*page.Page, error) {
	name, err := s.Database.Name()
	if err != nil {
		return nil, err
	}
	c := page.Config{
		Database: name, Roles: s.Roles,
		Topics: page.Topics{Place: "Kafka", System: s.Topics.System, User: s.Topics.User, Log: s.Topics.Log},
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			return a.open(ctx, s, session{command: "lapse page", to: s.Database.Executor, role: s.Roles.Executor, with: pageSession})
		},
		Status: func(ctx context.Context, conn *pgx.Conn) (*status.Status, error) { return a.statusOf(ctx, conn, s) },
		JSON:   statusJSON,
		Logger: a.log,
	}
	if s.Folder != "" {
		c.Topics.Place = "a folder of this machine"
	}
	if auditor != nil {
		c.Published = auditor.published
		if len(s.Witnesses.All) > 0 {
			c.Witnesses = func(ctx context.Context) string {
				text, _ := a.witnessesText(ctx, s)
				return text
			}
		}
	}
	return page.New(ctx, c)
}

// statusJSON is what `lapse status --json` prints of a status. trouble, if not empty, says why there is nothing newer, or with nil nothing.
func statusJSON(s *status.Status, trouble string) ([]byte, error) {
	var e envelope
	var err error
	switch {
	case s == nil:
		err = errors.New(trouble)
	case s.NeedsPerson():
		err = errNeedsPerson
	}
	if s != nil {
		e.Result = s
	}
	if s != nil && trouble != "" {
		e.Warnings = []string{trouble}
	}
	text, err := e.text("lapse status", err)
	return []byte(unhidden(string(text))), err
}

// published reads the auditor's event counter.
func (a *auditor) published() (n page.Published) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(a.config.Metrics.Published()); err != nil {
		return n
	}
	families, err := registry.Gather()
	if err != nil {
		return n
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			count := int64(metric.GetCounter().GetValue())
			for _, label := range metric.GetLabel() {
				switch {
				case label.GetName() != "cause":
				case label.GetValue() == "system":
					n.System += count
				case label.GetValue() == "user":
					n.User += count
				default:
					n.Unverified += count
				}
			}
		}
	}
	return n
}
