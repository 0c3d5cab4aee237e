package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate is one that signs itself, for the loopback address, as PEM.
type certificate struct{ cert, key string }

func newCertificate(t *testing.T, name string) certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return certificate{
		cert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		key:  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})),
	}
}

// files writes the certificates that are to be trusted, and one to show; an empty one is none.
func files(t *testing.T, trusted, shown certificate) *tls.Config {
	t.Helper()
	dir := t.TempDir()
	b := Broker{TLS: &TLS{CA: filepath.Join(dir, "ca.pem")}}
	texts := map[string]string{b.TLS.CA: trusted.cert}
	if shown.cert != "" {
		b.TLS.Cert, b.TLS.Key = filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
		texts[b.TLS.Cert], texts[b.TLS.Key] = shown.cert, shown.key
	}
	for path, text := range texts {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := b.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// overTLS are settings of a broker whose clients log in over TLS, and show a certificate that it trusts.
func overTLS(broker, client certificate) map[string]string {
	line := func(text string) string { return strings.ReplaceAll(text, "\n", `\n`) } // as server.properties has it
	settings := map[string]string{
		"listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL",
	}
	for name, value := range map[string]string{
		"keystore.type": "PEM", "keystore.certificate.chain": line(broker.cert), "keystore.key": line(broker.key),
		"truststore.type": "PEM", "truststore.certificates": line(client.cert), "client.auth": "required",
	} {
		settings["listener.name.login.ssl."+name] = value
	}
	return settings
}

func TestFilesThatHoldNoCertificateAreRefusedByTheirName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, files := range map[string]TLS{
		"kafka.tls.ca: " + path + " has no certificate in PEM form": {CA: path},
		"read kafka.tls.ca: ":                     {CA: filepath.Join(dir, "missing.pem")},
		"read kafka.tls.cert and kafka.tls.key: ": {Cert: path, Key: path},
	} {
		b := Broker{TLS: &files}
		if _, err := b.TLSConfig(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
