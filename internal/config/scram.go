package config

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/xdg-go/scram"
)

// scramLogin logs in with SCRAM (RFC 5802, RFC 7677): each side proves to the other that it knows the password, and neither
// sends it.
//
// It uses xdg-go/scram, as kafka-go's sasl/scram does. It does not use kafka-go's package, because that prepares names and
// passwords with SASLprep, and Kafka takes their bytes as they are. Tried on Kafka 4.3.1: with SASLprep, the client refuses passwords with a
// tab or an emoji, and the broker refuses those with a decomposed umlaut or a no-break space.
type scramLogin struct {
	name   string
	client *scram.Client
}

// The limits of the iterations that a broker may ask for. With fewer a false broker could guess the password; with more it could
// keep this process busy.
const (
	minIterations = 4096
	maxIterations = 1 << 20
)

func newScram(mechanism Mechanism, username, password string) (*scramLogin, error) {
	var s scramLogin
	var hash scram.HashGeneratorFcn
	switch mechanism {
	case ScramSHA256:
		s.name, hash = "SCRAM-SHA-256", scram.SHA256
	case ScramSHA512:
		s.name, hash = "SCRAM-SHA-512", scram.SHA512
	default:
		return nil, fmt.Errorf("kafka.sasl: there is no mechanism %q", mechanism)
	}
	client, err := hash.NewClientUnprepped(username, password, "")
	if err != nil {
		return nil, errors.New("kafka.sasl: this username or password cannot be used with SCRAM") // err might quote it
	}
	s.client = client.WithMinIterations(minIterations)
	return &s, nil
}

// Name implements sasl.Mechanism.
func (s *scramLogin) Name() string { return s.name }

// Start implements sasl.Mechanism. Safe for concurrent use: each login has a conversation of its own.
func (s *scramLogin) Start(context.Context) (sasl.StateMachine, []byte, error) {
	c := &conversation{ClientConversation: s.client.NewConversation()}
	first, err := c.Step("")
	if err != nil {
		return nil, nil, fmt.Errorf("log in by %s: %w", s.name, err)
	}
	_, c.nonce, _ = strings.Cut(first, ",r=") // names contain no comma and no equals sign here: both are escaped
	return c, []byte(first), nil
}

// conversation is one login. The embedded conversation checks that the broker's nonce begins with the client's, that there are enough
// iterations, and the broker's signature.
type conversation struct {
	*scram.ClientConversation
	nonce   string
	checked bool // the broker's first answer has been checked
}

var (
	errChallenge = errors.New("log in by SCRAM: the broker's answer cannot be understood, or is not an answer to us")
	errSignature = errors.New("log in by SCRAM: the broker does not know the password: it may not be yours")
)

// Next implements sasl.StateMachine.
func (c *conversation) Next(_ context.Context, challenge []byte) (done bool, response []byte, err error) {
	if !c.checked {
		c.checked = true
		if !c.acceptable(string(challenge)) {
			return false, nil, errChallenge
		}
		text, err := c.Step(string(challenge))
		if err != nil {
			return false, nil, errChallenge
		}
		return false, []byte(text), nil
	}
	if _, err := c.Step(string(challenge)); err != nil || !c.Valid() {
		return false, nil, errSignature
	}
	return true, nil, nil
}

// acceptable refuses two things that xdg-go/scram accepts: too many iterations, and a nonce to which the broker has added
// nothing.
func (c *conversation) acceptable(challenge string) bool {
	fields := strings.Split(challenge, ",") // r=nonce,s=salt,i=iterations
	if len(fields) < 3 || fields[0] == "r="+c.nonce {
		return false
	}
	iterations, err := strconv.Atoi(strings.TrimPrefix(fields[2], "i="))
	return err == nil && iterations <= maxIterations
}
