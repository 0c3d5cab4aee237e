package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
)

// The example of RFC 7677, section 3.
func TestSCRAMSaysWhatTheStandardSays(t *testing.T) {
	s, err := newScram(ScramSHA256, "user", "pencil")
	if err != nil {
		t.Fatal(err)
	}
	s.nonce = func() string { return "rOprNGfwEbeRWgbNEkqO" }
	login, first, err := s.Start(t.Context())
	if err != nil || string(first) != "n,,n=user,r=rOprNGfwEbeRWgbNEkqO" {
		t.Fatalf("%q, %v", first, err)
	}
	const challenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	done, final, err := login.Next(t.Context(), []byte(challenge))
	const want = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	if err != nil || done || string(final) != want {
		t.Fatalf("%v %q, %v", done, final, err)
	}
	done, _, err = login.Next(t.Context(), []byte("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="))
	if err != nil || !done {
		t.Errorf("the broker's proof was not accepted: %v", err)
	}
}

func TestSCRAMRefusesABrokerThatDoesNotProveItself(t *testing.T) {
	for _, c := range []struct{ name, challenge, proof string }{
		{"another nonce", "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", ""},
		{"our nonce and nothing more", "r=mine,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", ""},
		{"few iterations", "r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1", ""},
		{"many iterations", "r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2000000000", ""},
		{"no salt", "r=mine1,s=!,i=4096", ""},
		{"nothing", "", ""},
		{"another proof", "r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="},
		{"an error for a proof", "r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "e=invalid-proof"},
	} {
		s, err := newScram(ScramSHA512, "user", "pencil")
		if err != nil {
			t.Fatal(err)
		}
		s.nonce = func() string { return "mine" }
		login, _, err := s.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = login.Next(t.Context(), []byte(c.challenge))
		if c.proof != "" && err == nil {
			_, _, err = login.Next(t.Context(), []byte(c.proof))
		}
		if err == nil {
			t.Errorf("%s was accepted", c.name)
		}
	}
}

func TestALoginBySCRAMIsTakenByABrokerAndAWrongPasswordIsNot(t *testing.T) {
	for _, mechanism := range []Mechanism{ScramSHA256, ScramSHA512} {
		name := map[Mechanism]string{ScramSHA256: "SCRAM-SHA-256", ScramSHA512: "SCRAM-SHA-512"}[mechanism]
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(name, "lapse", "s3,cr=t"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cluster.Close)
		for password, right := range map[string]bool{"s3,cr=t\n": true, "wrong": false} {
			path := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(path, []byte(password), 0o600); err != nil {
				t.Fatal(err)
			}
			b := Broker{SASL: &SASL{Mechanism: mechanism, Username: "lapse", PasswordFile: path}}
			login, err := b.Login()
			if err != nil {
				t.Fatal(err)
			}
			transport := &kafkago.Transport{SASL: login}
			client := &kafkago.Client{Addr: kafkago.TCP(cluster.ListenAddrs()...), Transport: transport, Timeout: 10 * time.Second}
			_, err = client.Metadata(t.Context(), &kafkago.MetadataRequest{})
			if (err == nil) != right {
				t.Errorf("%s, right password %v: %v", mechanism, right, err)
			}
			transport.CloseIdleConnections()
		}
	}
}
