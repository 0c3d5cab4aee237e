package config

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
)

// scram logs in by SCRAM (RFC 5802, RFC 7677): each side proves to the other that it knows the password, and neither
// sends it. As Kafka does, it takes the password's bytes as they are, without SASLprep.
type scram struct {
	name               string
	hash               func() hash.Hash
	username, password string
	nonce              func() string
}

// newScram is the mechanism that proves the password without sending it.
func newScram(mechanism Mechanism, username, password string) (*scram, error) {
	s := &scram{username: username, password: password, nonce: rand.Text}
	switch mechanism {
	case ScramSHA256:
		s.name, s.hash = "SCRAM-SHA-256", sha256.New
	case ScramSHA512:
		s.name, s.hash = "SCRAM-SHA-512", sha512.New
	default:
		return nil, fmt.Errorf("kafka.sasl: there is no mechanism %q", mechanism)
	}
	return s, nil
}

// Name implements sasl.Mechanism.
func (s *scram) Name() string { return s.name }

var escapeName = strings.NewReplacer("=", "=3D", ",", "=2C")

// Start implements sasl.Mechanism. Safe for concurrent use: each login has a conversation of its own.
func (s *scram) Start(context.Context) (sasl.StateMachine, []byte, error) {
	c := &conversation{scram: s, nonce: s.nonce()}
	c.first = "n=" + escapeName.Replace(s.username) + ",r=" + c.nonce
	return c, []byte(noBinding + c.first), nil
}

const (
	noBinding = "n,," // no channel binding, no other identity to act as
	// Fewer iterations than minIterations would let a false broker guess the password; more than maxIterations would
	// only keep us busy.
	minIterations = 4096
	maxIterations = 1 << 20
)

// conversation is one login.
type conversation struct {
	*scram
	nonce, first string
	signature    []byte // what the broker must prove itself with; nil before the first challenge
}

var errChallenge = errors.New("SCRAM: the broker's answer cannot be understood, or is not an answer to us")

// Next implements sasl.StateMachine.
func (c *conversation) Next(_ context.Context, challenge []byte) (done bool, response []byte, err error) {
	if c.signature != nil {
		return c.verify(challenge)
	}
	fields, err := attributes(challenge, "r", "s", "i")
	if err != nil {
		return false, nil, err
	}
	salt, err1 := base64.StdEncoding.DecodeString(fields[1])
	iterations, err2 := strconv.Atoi(fields[2])
	if errors.Join(err1, err2) != nil || !strings.HasPrefix(fields[0], c.nonce) || len(fields[0]) == len(c.nonce) ||
		iterations < minIterations || iterations > maxIterations {
		return false, nil, errChallenge
	}
	salted, err := pbkdf2.Key(c.hash, c.password, salt, iterations, c.hash().Size())
	if err != nil {
		return false, nil, fmt.Errorf("SCRAM: %w", err)
	}
	final := "c=" + base64.StdEncoding.EncodeToString([]byte(noBinding)) + ",r=" + fields[0]
	all := c.first + "," + string(challenge) + "," + final
	key := c.mac(salted, "Client Key")
	stored := c.hash()
	stored.Write(key)
	proof := make([]byte, len(key))
	subtle.XORBytes(proof, key, c.mac(stored.Sum(nil), all))
	c.signature = c.mac(c.mac(salted, "Server Key"), all)
	return false, []byte(final + ",p=" + base64.StdEncoding.EncodeToString(proof)), nil
}

// verify makes sure that the broker knows the password too.
func (c *conversation) verify(challenge []byte) (done bool, response []byte, err error) {
	fields, err := attributes(challenge, "v")
	if err != nil {
		return false, nil, err
	}
	signature, err := base64.StdEncoding.DecodeString(fields[0])
	if err != nil || !hmac.Equal(signature, c.signature) {
		return false, nil, errors.New("SCRAM: the broker does not know the password: it may not be yours")
	}
	return true, nil, nil
}

func (c *conversation) mac(key []byte, text string) []byte {
	h := hmac.New(c.hash, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// attributes reads a message whose attributes must begin with these names, in this order.
func attributes(message []byte, names ...string) ([]string, error) {
	parts := bytes.Split(message, []byte(","))
	if len(parts) < len(names) {
		return nil, errChallenge
	}
	values := make([]string, len(names))
	for i, name := range names {
		value, ok := bytes.CutPrefix(parts[i], []byte(name+"="))
		if !ok {
			return nil, errChallenge
		}
		values[i] = string(value)
	}
	return values, nil
}
