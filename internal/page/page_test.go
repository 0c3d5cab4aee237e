package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/fixture/catalog"
	"lapse/internal/page"
	"lapse/internal/pgtest"
	"lapse/internal/setup/site"
	"lapse/internal/status"
	"lapse/planner/change"
	"lapse/planner/record"
)

func TestMain(m *testing.M) { pgtest.Main(m, catalog.Template(site.Options{})) }

// shown is a page over a test's database, which it reads as the executor.
type shown struct {
	t   *testing.T
	mux *http.ServeMux
}

func show(t *testing.T, db *pgtest.DB, edit func(*page.Config)) *shown {
	t.Helper()
	c := page.Config{
		Database: "app",
		Topics:   page.Topics{Place: "Kafka", System: "lapse.deletes.system", User: "lapse.deletes.user", Log: "lapse.log"},
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			config, err := pgx.ParseConfig(db.As(catalog.Roles().Executor))
			fixture.Must(t, err)
			config.RuntimeParams["default_transaction_read_only"] = "on"
			config.RuntimeParams["statement_timeout"] = "2s"
			return pgx.ConnectConfig(ctx, config)
		},
		Status: func(ctx context.Context, conn *pgx.Conn) (*status.Status, error) {
			return status.Read(ctx, conn, "lapse", "")
		},
		JSON: func(s *status.Status, trouble string) ([]byte, error) {
			return json.Marshal(map[string]any{"result": s, "trouble": trouble})
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	if edit != nil {
		edit(&c)
	}
	p, err := page.New(t.Context(), c)
	fixture.Must(t, err)
	mux := http.NewServeMux()
	p.Handle(mux)
	return &shown{t, mux}
}

func (s *shown) ask(method, path string) *httptest.ResponseRecorder {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, httptest.NewRequestWithContext(s.t.Context(), method, path, nil))
	return w
}

// answer asks until the database has answered, which takes a loaded machine longer than the page waits.
func (s *shown) answer(path string) (w *httptest.ResponseRecorder) {
	s.t.Helper()
	fixture.Eventually(s.t, "the page of "+path, func() bool {
		w = s.ask(http.MethodGet, path)
		return w.Code != http.StatusServiceUnavailable
	})
	return w
}

// get returns the page at a path, which must be there.
func (s *shown) get(path string) string {
	s.t.Helper()
	w := s.answer(path)
	if w.Code != http.StatusOK {
		s.t.Fatalf("%s: %d\n%s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// policies puts tables t0, t1, … with armed policies of those names into a database.
func policies(t *testing.T, db *pgtest.DB, n int) {
	t.Helper()
	var entries, tables []string
	for i := range n {
		table := fmt.Sprint("t", i)
		tables = append(tables, "create table "+table+" (id bigint primary key, at timestamptz not null); create index on "+table+" (at)")
		entries = append(entries, fixture.Policy(table, "public."+table, "at", "30 days"))
	}
	db.Exec(t, tables...)
	fixture.Must(t, catalog.Apply(t.Context(), db.Connect(t), catalog.Roles(), fixture.Policies(entries...), (*change.Change).Arm))
}

// The page says each word of the status, and is read with no more than the executor's rights.
func TestThePageSaysWhatTheStatusSays(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	policies(t, db, 2)
	db.Exec(t,
		"update lapse.gate set state = 'armed'",
		"insert into lapse.run (run, policy_id, version, cutoff, outcome, deleted, left_due) select gen_random_uuid(), policy_id, version, now(), 'done', 1234, 7 from lapse.gate",
		`insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at)
		 select policy_id, table_oid, sha256('1'), '{a-key-that-nobody-may-see}', '23503', now() + interval '1 hour' from lapse.gate where name = 't1'`,
		"insert into lapse.halt (halted, by, reason) values (true, 'dba', 'a restore <b>drill</b>')",
	)
	conn := db.Connect(t)
	s, err := status.Read(t.Context(), conn, "lapse", "")
	fixture.Must(t, err)
	text := html.UnescapeString(show(t, db, func(c *page.Config) {
		c.Status = func(ctx context.Context, conn *pgx.Conn) (*status.Status, error) {
			read, err := status.Read(ctx, conn, "lapse", "")
			if err == nil {
				read.At = s.At // so that ages are the same
			}
			return read, err
		}
	}).get("/"))
	text = strings.NewReplacer("<code>", "`", "</code>", "`").Replace(text)
	words := append(s.Whole(), s.Audit.Text(s.At), s.ExecutorsText(), "One policy needs a person")
	for i := range s.Policies {
		p := &s.Policies[i]
		last, rows := p.LastText(s.At)
		words = append(append(words, string(p.Policy), p.Table, p.StateText(), p.LagText(), p.NextText(s.At), last, rows), p.Remarks()...)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("the page does not say %q", word)
		}
	}
	if len(s.Policies[1].Remarks()) == 0 || !strings.Contains(text, "1 row in quarantine") {
		t.Error("it says nothing of the quarantine")
	}
	if strings.Contains(text, "a-key-that") {
		t.Error("it shows a key")
	}
	w := show(t, db, func(c *page.Config) { c.Witnesses = func(context.Context) string { return "cosigned" } }).answer("/api/status")
	var said struct {
		Result  *status.Status
		Trouble string
	}
	fixture.Must(t, json.Unmarshal(w.Body.Bytes(), &said))
	if said.Result == nil || len(said.Result.Policies) != 2 || said.Result.Paused == nil || said.Result.Witnesses == "" || said.Trouble != "" ||
		w.Header().Get("Content-Type") != "application/json" || strings.Contains(w.Body.String(), "a-key-that") {
		t.Errorf("/api/status: %v\n%s", w.Header(), w.Body)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// Nothing but GET and HEAD is answered, and each answer keeps the browser from loading what is not the page's.
func TestThePageOnlyReads(t *testing.T) {
	t.Parallel()
	s := show(t, pgtest.New(t, pgtest.Newest(t)), nil)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, path := range []string{"/", "/api/status"} {
			if w := s.ask(method, path); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
	for _, path := range []string{"/", "/api/status", "/page.css", "/page.js"} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			w := s.ask(method, path)
			if w.Code != http.StatusOK {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
			policy := w.Header().Get("Content-Security-Policy")
			if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
				t.Errorf("%s: its policy is %q", path, policy)
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s: %s is %q", path, name, got)
				}
			}
		}
	}
	body := s.get("/")
	for _, inline := range []string{"<style", " style=", "<script>", " onclick=", "javascript:", "http://", "https://"} {
		if strings.Contains(body, inline) {
			t.Errorf("the page has %s, which its policy forbids", inline)
		}
	}
	for _, path := range []string{"/files/page.css", "/overview.tmpl", "/policies/", "/policies/none"} {
		if w := s.answer(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// A database that refuses, or is gone, is said at once; its own words, which may have values, are not shown.
func TestADatabaseThatRefusesOrIsGoneIsSaid(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	says := func(edit func(*page.Config), want string) {
		t.Helper()
		for _, path := range []string{"/", "/api/status"} {
			w := show(t, db, edit).ask(http.MethodGet, path)
			if body := w.Body.String(); w.Code != http.StatusServiceUnavailable || !strings.Contains(body, want) || strings.Contains(body, "secret") {
				t.Errorf("%s: %d, without %q\n%s", path, w.Code, want, body)
			}
		}
	}
	says(func(c *page.Config) {
		c.Status = func(ctx context.Context, conn *pgx.Conn) (*status.Status, error) {
			_, err := conn.Exec(ctx, "select 'secret-value'::int")
			return nil, err
		}
	}, "SQLSTATE 22P02")
	says(func(c *page.Config) {
		c.Connect = func(ctx context.Context) (*pgx.Conn, error) {
			return pgx.Connect(ctx, "postgres://secret@127.0.0.1:1/app")
		}
	}, "nobody answers at the database")
	says(func(c *page.Config) {
		c.Status = func(context.Context, *pgx.Conn) (*status.Status, error) { panic("a fault") }
	}, "the log of this process says why")
}

// While the catalog is locked by somebody, the page shows what it knew, and says so; then it goes on.
func TestACatalogThatIsLockedIsShownAsItWas(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	policies(t, db, 1)
	s := show(t, db, nil)
	s.get("/")
	locker := db.Connect(t)
	_, err := locker.Exec(t.Context(), "begin; lock table lapse.gate in access exclusive mode")
	fixture.Must(t, err)
	says := func(what string, trouble bool) {
		t.Helper()
		err := fixture.Until(t.Context(), func() (bool, error) {
			body := s.get("/")
			if !strings.Contains(body, `id="policy-t0"`) {
				return false, fmt.Errorf("the policy is gone from the page:\n%s", body)
			}
			return strings.Contains(body, "the database does not answer in time: what is shown is older") == trouble, nil
		})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	says("while it is locked", true)
	_, err = locker.Exec(t.Context(), "rollback")
	fixture.Must(t, err)
	says("afterwards", false)
}

// With audit: off there is no slot, no topic and nothing that needs somebody for it.
func TestWithoutAnAuditNothingIsMissing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	policies(t, db, 1)
	body := html.UnescapeString(show(t, db, func(c *page.Config) {
		c.Status = func(ctx context.Context, conn *pgx.Conn) (*status.Status, error) {
			return status.Read(ctx, conn, "", "")
		}
	}).get("/"))
	for _, want := range []string{"off: deletions leave no evidence outside this database", "no slot reads it"} {
		if !strings.Contains(body, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if strings.Contains(body, `class="act"`) || strings.Contains(body, "lapse.deletes") {
		t.Errorf("it complains, or names topics:\n%s", body)
	}
}

// The page of a policy has what `lapse policy show --sql` and `lapse policy history` print.
func TestAPolicysPageHasItsFunctionVersionsAndRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	world(t, db)
	s := show(t, db, running)
	conn := db.Connect(t)
	of, err := record.Load(t.Context(), conn, "sessions-30d")
	fixture.Must(t, err)
	shown, err := status.ReadShown(t.Context(), conn, catalog.Roles(), of, of.Version, true)
	fixture.Must(t, err)
	runs, err := status.ReadRuns(t.Context(), conn, "sessions-30d", 20)
	fixture.Must(t, err)
	text := html.UnescapeString(s.get("/policies/sessions-30d"))
	words := []string{shown.Title(), shown.Made(), shown.Entry}
	for i := range shown.Functions {
		f := &shown.Functions[i]
		words = append(words, status.FunctionTitle(f), f.Comment+strings.TrimRight(f.Text, "\n"))
	}
	past := status.PastOf(of)
	for i := range past.History {
		words = append(append(words, past.History[i].Text()), past.History[i].Details()...)
	}
	for i := range runs {
		when, rows := runs[i].Text()
		words = append(words, when, ">"+rows+"<")
	}
	if len(shown.Functions) < 4 || len(past.History) < 3 || len(runs) != 20 {
		t.Errorf("there are %d functions, %d steps, %d runs", len(shown.Functions), len(past.History), len(runs))
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("the page does not have %q", word)
		}
	}
	if first := strings.Index(text, "lapse.delete_"); first < 0 || first > strings.Index(text, "lapse.find_") {
		t.Error("the function that deletes does not come first")
	}
	// Each name in force has a page, its table's name is text, and a name that was made up has none.
	for _, name := range []string{longest, markup} {
		if body := s.get("/policies/" + name); strings.Contains(body, "<img") || strings.Contains(body, "\u202e") {
			t.Errorf("the page of %s shows a hostile name as it is", name)
		}
	}
	for _, name := range []string{"none", "%3Cscript%3E", "..", "sessions-30d%00"} {
		if w := s.answer("/policies/" + name); w.Code != http.StatusNotFound && w.Code != http.StatusTemporaryRedirect {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}
