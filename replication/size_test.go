package replication

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// Not parallel: what it measures is the memory of the process.
func TestATransactionOfAnySizePassesInConstantMemory(t *testing.T) {
	db := pgtest.New(t, pgtest.Newest(t))
	const rows = 300000
	conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
	exec(t, conn, fmt.Sprintf(`insert into item select i, repeat('n', 100) from generate_series(1, %d) i`, rows), `delete from item`)
	s := openStream(t, db.URL, db.Name)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()

	var first, now runtime.MemStats
	var grown, allocated uint64
	began := time.Now()
	for seen := 0; seen < rows; {
		m, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind != KindChange {
			continue
		}
		if seen++; seen == 1000 {
			runtime.GC()
			runtime.ReadMemStats(&first)
		}
		if seen%20000 == 0 {
			runtime.ReadMemStats(&now)
			allocated = now.TotalAlloc - first.TotalAlloc
			if now.HeapAlloc > first.HeapAlloc {
				grown = max(grown, now.HeapAlloc-first.HeapAlloc)
			}
		}
	}
	t.Logf("%d rows in %v: %d bytes allocated, at most %d more in use than at the start",
		rows, time.Since(began), allocated, grown)
	if allocated > 4<<20 || grown > 4<<20 {
		t.Errorf("%d bytes allocated, at most %d more in use than at the start", allocated, grown)
	}
	if len(s.wire.buf) != readBuffer {
		t.Errorf("the buffer has %d bytes", len(s.wire.buf))
	}
}

func TestARowOfEvidenceLargerThanTheBufferPassesAndTheBufferGoesBack(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"lapse.part": `
			create schema lapse;
			create table lapse.part (id int primary key, note text) partition by range (id);
			create table lapse.part_1 partition of lapse.part for values from (0) to (100);
			alter table lapse.part_1 alter note set storage external`})
		exec(t, conn, publishAll("lapse.part"), `set search_path = lapse`)
		s := openStream(t, db.URL, db.Name)
		const size = 5_000_000
		exec(t, conn, fmt.Sprintf(`insert into part values (1, repeat('x', %d))`, size), `update part set note = note || 'y'`,
			`update part set id = 2`, `delete from part`)
		if m := nextChange(t, s); len(m.Change.New[1].Bytes) != size {
			t.Errorf("inserted %d bytes", len(m.Change.New[1].Bytes))
		}
		m := nextChange(t, s)
		if got := m.Change.New[1].Bytes; len(got) != size+1 || !strings.HasSuffix(string(got), "xy") {
			t.Errorf("updated to %d bytes", len(got))
		}
		if m = nextChange(t, s); m.Change.New[1].Kind != Unchanged || string(m.Change.Old[0].Bytes) != "1" {
			t.Errorf("an update that left the large value alone: %+v", m.Change)
		}
		if m = nextChange(t, s); m.Change.Op != OpDelete || m.Change.Old[1].Kind != Unsent {
			t.Errorf("a delete: %+v", m.Change)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		for {
			if _, err := s.Next(ctx); err != nil {
				break
			}
		}
		if len(s.wire.buf) != readBuffer {
			t.Errorf("the buffer has %d bytes", len(s.wire.buf))
		}
	})
}

func TestAStreamReadsOverTheUnixSocketAndOverTLS(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{pgtest.Newest(t)}, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		ca := enableTLS(t, db)
		secure, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		secure.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca}}.Encode()
		for name, address := range map[string]string{
			"socket": db.Server.SocketURL("postgres", db.Name),
			"tls":    secure.String(),
		} {
			s := openStream(t, address, db.Name)
			switch c := s.wire.Conn.(type) {
			case *net.UnixConn:
			case *tls.Conn:
				if name != "tls" || !c.ConnectionState().HandshakeComplete {
					t.Errorf("%s: not what it should be", name)
				}
			default:
				t.Errorf("%s: a %T", name, c)
			}
			exec(t, conn, `insert into item select i, 'n' from generate_series(1, 20000) i`, `delete from item`)
			// A wait and an interruption in the middle of the transaction lose nothing.
			nextChange(t, s)
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 2*beforeReading)
				_ = s.Wait(ctx)
				cancel()
			}
			rows := 1
			for m, err := s.Next(t.Context()); m == nil || m.Kind != KindCommit; m, err = s.Next(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if m.Kind == KindChange {
					rows++
				}
			}
			if rows != 20000 {
				t.Errorf("%s: %d rows", name, rows)
			}
			s.Confirm(s.sent)
			closeStream(t, s)
		}
	})
}

// enableTLS gives the server a certificate for 127.0.0.1, and returns the file that vouches for it.
func enableTLS(t *testing.T, db *pgtest.DB) (ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	var owner syscall.Stat_t
	if err := syscall.Stat(db.Server.DataDir(), &owner); err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, content []byte) string {
		path := filepath.Join(db.Server.DataDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca = write("server.crt", "CERTIFICATE", certificate)
	write("server.key", "PRIVATE KEY", private)
	conn := db.Connect(t)
	exec(t, conn, `alter system set ssl = on`, `select pg_reload_conf()`)
	eventually(t, "the server speaks TLS", func() bool {
		var on string
		err := db.Connect(t).QueryRow(t.Context(), `select current_setting('ssl')`).Scan(&on)
		return err == nil && on == "on"
	})
	return ca
}
