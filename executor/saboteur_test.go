package executor

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// fault is what a saboteur does to a message of the executor's.
type fault int

const (
	lost fault = iota // neither it nor what follows arrives, and both sides lose their connection
	deaf              // it arrives; its answer is lost, and so are the connections
	late              // the client loses its connection, and then it arrives
	slow              // it and what follows arrives, some time later
	faults
)

func (f fault) String() string { return [...]string{"lost", "deaf", "late", "slow"}[f] }

// saboteur sits between executor and server, and does one thing to one message: the one of that number, on whichever connection.
type saboteur struct {
	listener net.Listener
	server   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	seen  int
	ends  int // those of them that carried a COMMIT
	at    int // 0: never; -n: the nth COMMIT
	fault fault
	open  map[net.Conn]bool
}

// startSaboteur returns a saboteur and the URL that leads through it.
func startSaboteur(t *testing.T, serverURL string) (*saboteur, string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	s := &saboteur{server: u.Host, open: map[net.Conn]bool{}}
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.wg.Go(s.accept)
	t.Cleanup(func() {
		_ = s.listener.Close()
		s.mu.Lock()
		for conn := range s.open {
			_ = conn.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	u.Host = s.listener.Addr().String()
	return s, u.String()
}

// plan begins to count again.
func (s *saboteur) plan(at int, f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.ends, s.at, s.fault = 0, 0, at, f
}

// count is how many messages went by since plan.
func (s *saboteur) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// commits is how many COMMITs went by since plan.
func (s *saboteur) commits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ends
}

// hit counts a message, and reports whether it is the one.
func (s *saboteur) hit(message []byte) (fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	if bytes.Contains(message, []byte("commit\x00")) {
		s.ends++
		if s.ends == -s.at {
			return s.fault, true
		}
	}
	return s.fault, s.seen == s.at
}

func (s *saboteur) accept() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", s.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		s.mu.Lock()
		s.open[client], s.open[server] = true, true
		s.mu.Unlock()
		deafened, answered := make(chan struct{}), make(chan struct{})
		s.wg.Go(func() { s.toServer(client, server, deafened, answered) })
		s.wg.Go(func() { s.toClient(client, server, deafened, answered) })
	}
}

func (s *saboteur) close(conns ...net.Conn) {
	for _, conn := range conns {
		_ = conn.Close()
		s.mu.Lock()
		delete(s.open, conn)
		s.mu.Unlock()
	}
}

// toServer passes on whole messages until one is hit.
func (s *saboteur) toServer(client, server net.Conn, deafened, answered chan struct{}) {
	defer s.close(server)
	for typed := false; ; typed = true {
		message, err := readMessage(client, typed)
		if err != nil {
			return
		}
		if f, hit := s.hit(message); hit {
			switch f {
			case slow:
				<-time.After(200 * time.Millisecond)
			case deaf:
				close(deafened)
				_, _ = server.Write(message)
				select {
				case <-answered:
				case <-time.After(200 * time.Millisecond): // it has none of its own
				}
				s.close(client)
				return
			case late:
				close(deafened)
				s.close(client)
				_, _ = server.Write(message)
				select {
				case <-answered:
				case <-time.After(200 * time.Millisecond):
				}
				return
			default:
				s.close(client)
				return
			}
		}
		if _, err := server.Write(message); err != nil {
			return
		}
	}
}

func (s *saboteur) toClient(client, server net.Conn, deafened, answered chan struct{}) {
	defer s.close(client)
	buffer := make([]byte, 1<<16)
	for {
		n, err := server.Read(buffer)
		select {
		case <-deafened:
			close(answered)
			_, _ = io.Copy(io.Discard, server)
			return
		default:
		}
		if err != nil {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// sabotage is a table that is filled again and again, and deleted from through a saboteur.
type sabotage struct {
	t     *testing.T
	db    *pgtest.DB
	s     *saboteur
	url   string
	total int64 // rows that were due so far
}

func newSabotage(t *testing.T, db *pgtest.DB) *sabotage {
	t.Helper()
	sessions(t, db, 0, 10)
	owned(t, db, "create table logins (session bigint primary key references sessions on delete cascade)")
	arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))
	s, through := startSaboteur(t, db.As(schemas.RolesFor(schemas.DefaultRolePrefix).Executor))
	return &sabotage{t: t, db: db, s: s, url: through}
}

// try fills the table, deletes while one message is sabotaged, and once more where that did not end well. It returns how many messages
// there were.
func (o *sabotage) try(at int, f fault) int {
	o.t.Helper()
	const due = 50
	what := fmt.Sprintf("message %d %v", at, f)
	o.db.Exec(o.t, fmt.Sprintf("insert into sessions select 1000 + g, now() - interval '40 days' - g * interval '1 second' from generate_series(1, %d) g", due),
		"insert into logins select id from sessions where id > 1000 and id % 10 = 0")
	o.total += due
	o.s.plan(at, f)
	first, err := executorAt(o.t, o.url, func(c *Config) { c.Limits.Workers = 1 }).Once(o.t.Context(), []schemas.PolicyName{"p"})
	seen := o.s.count()
	said := deletedBy(first)
	if err != nil || said < due {
		o.s.plan(0, lost)
		o.db.Exec(o.t, expireLeases)
		said += deletedBy(once(o.t, newExecutor(o.t, o.db), "p"))
	}
	if said != due {
		o.t.Errorf("%s: the executors say that %d rows were deleted, want %d", what, said, due)
	}
	got := one[string](o.t, o.db, "select concat_ws(' ', (select count(*) from sessions), (select count(*) from logins), (select sum(deleted) from lapse.batch_result), "+
		"(select sum(s.deleted) from lapse.run r, lapse.statistics(r.run) s), (select count(*) from lapse.batch b left join lapse.batch_result r using (batch) where r.batch is null))")
	if want := fmt.Sprintf("10 0 %d %[1]d 0", o.total); got != want {
		o.t.Fatalf("%s: %s; want %s", what, got, want)
	}
	return seen
}

func deletedBy(s Summary) (rows int64) {
	for i := range s.Policies {
		rows += s.Policies[i].Deleted
	}
	return rows
}

//lapse:long
func TestWhereverTheConnectionIsCutNothingIsForgottenOrCountedTwice(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		random := seeded(t, db.Major)
		o := newSabotage(t, db)
		messages := o.try(0, lost)
		if messages < 30 {
			t.Fatalf("%d messages went by: this test says nothing", messages)
		}
		commits := o.s.commits()
		if commits < 4 {
			t.Fatalf("%d COMMITs went by: this test says nothing", commits)
		}
		for n := range 12 {
			o.try(1+random.IntN(messages), fault(n)%faults)
		}
		for n := range commits {
			o.try(-1-n, []fault{deaf, late}[n%2])
		}
	})
}
