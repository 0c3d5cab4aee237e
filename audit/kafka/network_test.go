package kafka_test

import "lapse/internal/kafkatest"

// What may happen on the way to the brokers.
type (
	network = kafkatest.Network
	fate    = kafkatest.Fate
)

const (
	pass       = kafkatest.Pass
	lose       = kafkatest.Lose
	cut        = kafkatest.Cut
	hold       = kafkatest.Hold
	loseAnswer = kafkatest.LoseAnswer
	cutAnswer  = kafkatest.CutAnswer
	lateAnswer = kafkatest.LateAnswer
	twice      = kafkatest.Twice
)

func newNetwork(decide func(n int) fate) *network { return kafkatest.NewNetwork(decide) }

func always(f fate) func(int) fate { return kafkatest.Always(f) }
