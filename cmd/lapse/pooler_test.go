package main

import (
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"lapse/internal/pgtest"
)

// pooler sits in front of a server and does to the startup parameters of its clients what poolers do.
type pooler struct {
	server  string
	refuses bool // says so; otherwise they are swallowed
}

// listen returns db's URL by way of the pooler.
func (p *pooler) listen(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	p.server = net.JoinHostPort("127.0.0.1", strconv.Itoa(db.Server.Port()))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = listener.Addr().String()
	return u.String()
}

func (p *pooler) serve(client net.Conn) {
	defer client.Close()
	front := pgproto3.NewBackend(client, client)
	message, err := front.ReceiveStartupMessage()
	startup, ok := message.(*pgproto3.StartupMessage)
	if err != nil || !ok {
		return
	}
	if p.refuses {
		front.Send(&pgproto3.ErrorResponse{
			Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "08P01", Message: "unsupported startup parameter: search_path",
		})
		_ = front.Flush()
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	for name := range startup.Parameters {
		if name != "user" && name != "database" {
			delete(startup.Parameters, name)
		}
	}
	text, err := startup.Encode(nil)
	if err != nil {
		return
	}
	if _, err := server.Write(text); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}

func TestAPoolerThatRefusesOrSwallowsTheSessionsSettingsIsNamed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	d := newDesk(t, db, db.URL)
	d.env["LAPSE_SUPERUSER"] = "allow"
	// What the database happens to have of them is not enough.
	db.Exec(t, "alter database "+db.Name+" set search_path = pg_catalog, pg_temp", "alter database "+db.Name+" set timezone = 'UTC'")
	for what, p := range map[string]*pooler{"refuses": {refuses: true}, "swallows": {}} {
		d.env["LAPSE_DATABASE_URL"] = p.listen(t, db)
		for _, line := range []string{"init", "plan", "run --once", "run", "audit --once", "serve"} {
			code, _, log := d.lapse(strings.Fields(line)...)
			if code != exitFailed || !strings.Contains(log, "connect to PostgreSQL directly, not through a pooler") {
				t.Errorf("a pooler that %s them, lapse %s: exit code %d, %s", what, line, code, log)
			}
		}
	}
}
