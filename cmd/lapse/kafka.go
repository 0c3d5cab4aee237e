package main

import (
	"context"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"lapse/audit/kafka"
	"lapse/internal/backoff"
	"lapse/internal/config"
)

// kafkaConfig returns the connection settings of the brokers.
func (a *app) kafkaConfig(s *config.Settings) (kafka.Config, error) {
	if err := s.RequireSink(); err != nil {
		return kafka.Config{}, err
	}
	tls, err := s.Kafka.TLSConfig()
	if err != nil {
		return kafka.Config{}, invalid(err)
	}
	login, err := s.Kafka.Login()
	if err != nil {
		return kafka.Config{}, invalid(err)
	}
	return kafka.Config{
		Brokers: s.Kafka.Brokers, TLS: tls, SASL: login, Compression: kafka.Compression(s.Topics.Compression), Logger: a.log,
	}, nil
}

// defaultCopies is the number of a topic's copies if nothing is configured and there are enough brokers.
const defaultCopies = 3

// brokersTimeout is the time limit for a broker's answer.
const brokersTimeout = 10 * time.Second

// copies returns how many copies of a topic the cluster can hold, up to defaultCopies. It retries until a broker answers or ctx
// ends. The brokers' own default is one copy: one broken disk would lose evidence.
func (a *app) copies(ctx context.Context, cfg kafka.Config) (int, error) {
	transport := &kafkago.Transport{TLS: cfg.TLS, SASL: cfg.SASL}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(cfg.Brokers...), Timeout: brokersTimeout, Transport: transport}
	pauses := backoff.Backoff{Min: 250 * time.Millisecond, Max: 2 * time.Second}
	for {
		answer, err := client.Metadata(ctx, &kafkago.MetadataRequest{})
		if err == nil && len(answer.Brokers) > 0 {
			return min(len(answer.Brokers), defaultCopies), nil
		}
		if ctx.Err() == nil {
			a.log.Warn("no broker answers; trying again", "error", err)
		}
		if err := pauses.Wait(ctx); err != nil {
			return 0, fmt.Errorf("count the brokers: %w", err)
		}
	}
}
