package config

import (
	"fmt"

	"github.com/segmentio/kafka-go/sasl"
)

// newScram is the mechanism that proves the password without sending it.
func newScram(mechanism Mechanism, username, password string) (sasl.Mechanism, error) {
	return nil, fmt.Errorf("kafka.sasl: %s is not supported by this version", mechanism)
}
