package kafkaserver

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/segmentio/kafka-go"
)

// LoginAddr is the address where clients must log in; for a broker with Options.Login.
func (s *Server) LoginAddr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports.login))
}

// AddUser lets a user log in by SCRAM-SHA-256 and SCRAM-SHA-512, or gives it another password. It hashes the password's
// bytes as they are, as Kafka's own tools do.
func (s *Server) AddUser(ctx context.Context, name, password string) error {
	const iterations = 4096
	salt := make([]byte, 16)
	if _, err := rand.Read(salt); err != nil {
		return err
	}
	short, err1 := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	long, err2 := pbkdf2.Key(sha512.New, password, salt, iterations, sha512.Size)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	client, done := s.client()
	defer done()
	for _, credential := range []kafka.UserScramCredentialsUpsertion{ // a request takes one for each user
		{Name: name, Mechanism: kafka.ScramMechanismSha256, Iterations: iterations, Salt: salt, SaltedPassword: short},
		{Name: name, Mechanism: kafka.ScramMechanismSha512, Iterations: iterations, Salt: salt, SaltedPassword: long},
	} {
		answer, err := client.AlterUserScramCredentials(ctx, &kafka.AlterUserScramCredentialsRequest{
			Upsertions: []kafka.UserScramCredentialsUpsertion{credential},
		})
		if err == nil {
			err = answer.Results[0].Error
		}
		if err != nil {
			return fmt.Errorf("add user %s: %w", name, err)
		}
	}
	return nil
}
