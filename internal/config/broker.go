package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
)

// Broker holds the connection settings of Kafka.
type Broker struct {
	Brokers []string
	TLS     *TLS  // nil: no TLS
	SASL    *SASL // nil: no login
}

// TLS names the files of a TLS connection. Without CA file the system's certificate authorities apply; without the others the client has no
// certificate.
type TLS struct{ CA, Cert, Key string }

// SASL is a login. The password file is read only when a connection is prepared.
type SASL struct {
	Mechanism    Mechanism
	Username     string
	PasswordFile string
}

// Mechanism is a SASL mechanism.
type Mechanism string

// The mechanisms.
const (
	Plain       Mechanism = "plain"
	ScramSHA256 Mechanism = "scram-sha-256"
	ScramSHA512 Mechanism = "scram-sha-512"
)

// TLSConfig reads the TLS files. nil is no TLS.
func (b *Broker) TLSConfig() (*tls.Config, error) {
	if b.TLS == nil {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if b.TLS.CA != "" {
		pem, err := os.ReadFile(b.TLS.CA)
		if err != nil {
			return nil, fmt.Errorf("read kafka.tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafka.tls.ca: %s has no certificate in PEM form", b.TLS.CA)
		}
	}
	if b.TLS.Cert != "" {
		pair, err := tls.LoadX509KeyPair(b.TLS.Cert, b.TLS.Key)
		if err != nil {
			return nil, fmt.Errorf("read kafka.tls.cert and kafka.tls.key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Login reads the password file. nil is no login.
func (b *Broker) Login() (sasl.Mechanism, error) {
	if b.SASL == nil {
		return nil, nil
	}
	text, err := os.ReadFile(b.SASL.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("read kafka.sasl.password_file: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return nil, fmt.Errorf("kafka.sasl.password_file: %s is empty", b.SASL.PasswordFile)
	}
	switch b.SASL.Mechanism {
	case Plain:
		if b.TLS == nil {
			return nil, errors.New("kafka.sasl: plain sends the password as it is: configure kafka.tls, or use scram-sha-512")
		}
		return plain.Mechanism{Username: b.SASL.Username, Password: password}, nil
	default:
		return newScram(b.SASL.Mechanism, b.SASL.Username, password)
	}
}
