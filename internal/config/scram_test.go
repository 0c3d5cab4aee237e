package config

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// The example of RFC 7677, section 3.
func TestSCRAMSaysWhatTheStandardSays(t *testing.T) {
	s, err := newScram(ScramSHA256, "user", "pencil")
	if err != nil {
		t.Fatal(err)
	}
	s.client.WithNonceGenerator(func() string { return "rOprNGfwEbeRWgbNEkqO" })
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
	const good = "r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	for _, c := range []struct {
		name, challenge, proof string
		want                   error
	}{
		{"another nonce", "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "", errChallenge},
		{"our nonce and nothing more", "r=mine,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "", errChallenge},
		{"few iterations", "r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095", "", errChallenge},
		{"many iterations", "r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1048577", "", errChallenge},
		{"iterations forever", "r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2000000000", "", errChallenge},
		{"more iterations than a number holds", "r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999999999999999", "", errChallenge},
		{"iterations below nothing", "r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-1", "", errChallenge},
		{"no salt", "r=mine1,s=!,i=4096", "", errChallenge},
		{"no iterations", "r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==", "", errChallenge},
		{"the proof before the challenge", "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "", errChallenge},
		{"an extension", "m=more," + good, "", errChallenge},
		{"nothing", "", "", errChallenge},
		{"another proof", good, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", errSignature},
		{"an empty proof", good, "v=", errSignature},
		{"half a proof", good, "v=6rri", errSignature},
		{"the challenge for a proof", good, good, errSignature},
		{"nothing for a proof", good, " ", errSignature},
		{"an error for a proof", good, "e=invalid-proof", errSignature},
	} {
		s, err := newScram(ScramSHA512, "user", "pencil")
		if err != nil {
			t.Fatal(err)
		}
		s.client.WithNonceGenerator(func() string { return "mine" })
		login, _, err := s.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done, answer, err := login.Next(t.Context(), []byte(c.challenge))
		if c.proof != "" {
			if err != nil || done || answer == nil {
				t.Fatalf("%s: the challenge was not accepted: %v", c.name, err)
			}
			done, answer, err = login.Next(t.Context(), []byte(c.proof))
		}
		if !errors.Is(err, c.want) || done || answer != nil {
			t.Errorf("%s: done %t, answer %q, %v; want %v", c.name, done, answer, err, c.want)
		}
	}
}

// Each login has a nonce of its own.
func TestSCRAMNeverSaysTheSameTwice(t *testing.T) {
	s, err := newScram(ScramSHA512, "us,e=r", "pencil")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range 100 {
		_, first, err := s.Start(t.Context())
		if nonce, ok := strings.CutPrefix(string(first), "n,,n=us=2Ce=3Dr,r="); err != nil || !ok || len(nonce) < 20 || seen[nonce] {
			t.Fatalf("%q, %v", first, err)
		}
		seen[string(first)] = true
	}
}

func TestALoginBySCRAMIsTakenByABrokerAndAWrongPasswordIsNot(t *testing.T) {
	ours, client, stranger := newCertificate(t, "broker"), newCertificate(t, "client"), newCertificate(t, "stranger")
	broker := kafkatest.Solo(t, kafkaserver.Options{Login: true, Settings: overTLS(ours, client)})
	trusted := files(t, ours, client)
	// Kafka takes a password's bytes as they are: SASLprep would change or refuse most of these.
	for n, password := range []string{"s3cret", "s3,cr=t", "pässwörd", "pa\u0308ss", "a\u00a0b", "\u2168", "a\tb", "\U0001FAE0", "soft\u00adhyphen"} {
		username := fmt.Sprintf("u,s=r%d", n)
		if err := broker.AddUser(t.Context(), username, password); err != nil {
			t.Fatal(err)
		}
		for _, mechanism := range []Mechanism{ScramSHA256, ScramSHA512} {
			if err := tryLogin(t, broker.LoginAddr(), trusted, login(t, mechanism, username, password+"\n")); err != nil {
				t.Errorf("%s, password %q: %v", mechanism, password, err)
			}
		}
		if n > 0 {
			continue // a broker answers a wrong password late
		}
		for name, refused := range map[string]*tls.Config{
			"another broker than the trusted one": files(t, stranger, client), "no certificate": files(t, ours, certificate{}),
			"a stranger's certificate": files(t, ours, stranger), "no TLS": nil,
		} {
			if err := tryLogin(t, broker.LoginAddr(), refused, login(t, ScramSHA512, username, password)); err == nil ||
				errors.Is(err, kafkago.SASLAuthenticationFailed) {
				t.Errorf("%s: %v, want no login to be tried", name, err)
			}
		}
		for _, mechanism := range []Mechanism{ScramSHA256, ScramSHA512} {
			for _, wrong := range []sasl.Mechanism{login(t, mechanism, username, "wrong"), login(t, mechanism, "nobody", password)} {
				if err := tryLogin(t, broker.LoginAddr(), trusted, wrong); !errors.Is(err, kafkago.SASLAuthenticationFailed) {
					t.Errorf("%s, wrong username or password: %v, want %v", mechanism, err, kafkago.SASLAuthenticationFailed)
				}
			}
		}
	}
}

// A false broker knows the name and not the password.
func TestALoginBySCRAMEndsAtABrokerThatDoesNotProveItself(t *testing.T) {
	for _, c := range []struct {
		name, challenge, proof string
		want                   error
		answers                int32 // of ours
	}{
		{"another signature", ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "v=" + base64.StdEncoding.EncodeToString(make([]byte, 64)), errSignature, 2},
		{"no signature", ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "", errSignature, 2},
		{"too much work", ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2000000000", "", errChallenge, 1},
	} {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "lapse", "s3cret"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cluster.Close)
		var answers atomic.Int32
		cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(request kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			asked := request.(*kmsg.SASLAuthenticateRequest)
			resp := asked.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.SASLAuthBytes = []byte(c.proof)
			if answers.Add(1) == 1 {
				_, nonce, _ := strings.Cut(string(asked.SASLAuthBytes), ",r=")
				resp.SASLAuthBytes = []byte("r=" + nonce + "more" + c.challenge)
			}
			return resp, nil, true
		})
		err = tryLogin(t, cluster.ListenAddrs()[0], nil, login(t, ScramSHA512, "lapse", "s3cret"))
		if !errors.Is(err, c.want) || answers.Load() != c.answers {
			t.Errorf("%s: %v after %d answers, want %v after %d", c.name, err, answers.Load(), c.want, c.answers)
		}
	}
}

// login is the login of a configuration with a password file.
func login(t *testing.T, mechanism Mechanism, username, file string) sasl.Mechanism {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	b := Broker{SASL: &SASL{Mechanism: mechanism, Username: username, PasswordFile: path}}
	login, err := b.Login()
	if err != nil {
		t.Fatal(err)
	}
	return login
}

// tryLogin asks a broker something under that login.
func tryLogin(t *testing.T, addr string, over *tls.Config, login sasl.Mechanism) error {
	t.Helper()
	transport := &kafkago.Transport{SASL: login, TLS: over}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(addr), Transport: transport, Timeout: 10 * time.Second}
	_, err := client.Metadata(t.Context(), &kafkago.MetadataRequest{})
	return err
}
