package kafka_test

import (
	"testing"

	"go.uber.org/goleak"

	"lapse/internal/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kafkatest.Wrap(m)) }
