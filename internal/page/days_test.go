package page_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/page"
	"lapse/internal/pgtest"
	"lapse/internal/status"
	"lapse/schemas"
)

// statements counts those that have a text in them.
type statements struct {
	mutex sync.Mutex
	seen  []string
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.seen = append(s.seen, data.SQL)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) with(text string) (n int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, sql := range s.seen {
		if strings.Contains(sql, text) {
			n++
		}
	}
	return n
}

// counted waits until a page has its year.
func (s *shown) counted(path string) (body string) {
	s.t.Helper()
	fixture.Must(s.t, fixture.Until(s.t.Context(), func() (bool, error) {
		body = s.get(path)
		return !strings.Contains(body, "is being counted"), nil
	}))
	return body
}

// A year of days is what the ledger has and what was removed from it, each day once; ten people who reload the page cost the database no more than one.
func TestAYearOfDeletionsIsCountedOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	world(t, db)
	db.Exec(t, "insert into lapse.deleted_day select policy_id, current_date - 10, 100 from lapse.gate where name = 'markup'") // half of a day was removed
	var asked statements
	s := show(t, db, func(c *page.Config) {
		running(c)
		connect := c.Connect
		c.Connect = func(ctx context.Context) (*pgx.Conn, error) {
			conn, err := connect(ctx)
			if err != nil {
				return nil, err
			}
			config := conn.Config()
			config.Tracer = &asked
			_ = conn.Close(ctx)
			return pgx.ConnectConfig(ctx, config)
		}
	})
	began := time.Now()
	body := s.counted("/policies/sessions-30d")
	if n := strings.Count(body, ": 36,000 rows<"); n < 28 || n > 31 {
		t.Errorf("%d days have the rows that the ledger has of each of 30", n)
	}
	if n := strings.Count(body, "<rect "); n < 330 {
		t.Errorf("the year has %d days", n)
	}
	total := regexp.MustCompile(`in a year: ([0-9,]+) rows`).FindStringSubmatch(s.counted("/policies/markup"))
	if total == nil || total[1] != "5,500" {
		t.Errorf("the policy of three days of two batches, and a hundred rows of a batch that is gone, has %q", total)
	}
	before := asked.with("lapse.batch_result")
	var people sync.WaitGroup
	for range 10 {
		people.Go(func() {
			for range 5 {
				s.get("/")
				s.get("/policies/markup")
			}
		})
	}
	people.Wait()
	took := time.Since(began)
	// Each two minutes it counts today again, and yesterday in the first hour.
	if more := asked.with("lapse.batch_result") - before; more > 2*int(took/(2*time.Minute)) {
		t.Errorf("reloading read %d days of the ledger in %s", more, took)
	}
	if n := asked.with("not i.audit_required"); n > 1+int(took/(3*time.Second)) {
		t.Errorf("a hundred reloads asked for the status %d times in %s", n, took)
	}
}

// Days that cannot be counted, because somebody has the ledger locked, are said to be not counted, and the page is whole otherwise.
func TestADayThatCannotBeCountedIsSaid(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	world(t, db)
	s := show(t, db, func(c *page.Config) {
		running(c)
		connect := c.Connect
		c.Connect = func(ctx context.Context) (*pgx.Conn, error) {
			conn, err := connect(ctx)
			if err == nil {
				_, err = conn.Exec(ctx, "set lock_timeout = '200ms'; set statement_timeout = 0")
			}
			return conn, err
		}
	})
	locker := db.Connect(t)
	_, err := locker.Exec(t.Context(), "begin; lock table lapse.batch_result in access exclusive mode")
	fixture.Must(t, err)
	body := s.counted("/policies/sessions-30d")
	if !strings.Contains(body, "days are not counted") || !strings.Contains(body, "rect") || !strings.Contains(body, "armed") {
		t.Errorf("it does not say so:\n%s", body)
	}
}

// Five hundred policies are a page too, and not a heavy one.
func TestFiveHundredPoliciesAreOnePage(t *testing.T) {
	t.Parallel()
	const n = 500
	s := show(t, pgtest.New(t, pgtest.Newest(t)), func(c *page.Config) {
		running(c)
		read := c.Status
		c.Status = func(ctx context.Context, conn *pgx.Conn) (*status.Status, error) {
			s, err := read(ctx, conn)
			for i := range n {
				p := status.Policy{}
				p.Policy, p.Table, p.State = schemas.PolicyName(fmt.Sprint("p-", i)), "public.t", "armed"
				s.Policies = append(s.Policies, p)
			}
			return s, err
		}
	})
	body := s.counted("/")
	if got := strings.Count(body, `id="policy-`); got != n {
		t.Errorf("%d rows", got)
	}
	if perPolicy := len(body) / n; perPolicy > 2000 {
		t.Errorf("a policy takes %d bytes", perPolicy)
	}
	zipped := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	request.Header.Set("Accept-Encoding", "gzip, br")
	s.mux.ServeHTTP(zipped, request)
	if zipped.Header().Get("Content-Encoding") != "gzip" || zipped.Body.Len() > len(body)/8 {
		t.Errorf("compressed it has %d bytes of %d, as %q", zipped.Body.Len(), len(body), zipped.Header().Get("Content-Encoding"))
	}
	if plain, err := gzip.NewReader(zipped.Body); err != nil {
		t.Error(err)
	} else if text, err := io.ReadAll(plain); err != nil || strings.Count(string(text), `id="policy-`) != n {
		t.Errorf("it does not unpack to the page: %v", err)
	}
	if w := s.answer("/policies/p-499"); w.Code != http.StatusOK {
		t.Errorf("%d", w.Code)
	}
}
