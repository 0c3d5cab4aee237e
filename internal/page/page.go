package page

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/plaintext"
	"lapse/internal/status"
	"lapse/planner/database"
	"lapse/schemas"
)

// Config names the page's database and says how to read it.
type Config struct {
	Database string // the database's name
	Topics   Topics
	Roles    schemas.Roles
	// Connect opens a session with the executor's rights on the catalog. It should bound its statements.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	// Status reads the result of `lapse status`.
	Status func(ctx context.Context, conn *pgx.Conn) (*status.Status, error)
	// Witnesses reads the log for the line about witnesses; nil if there are none.
	Witnesses func(ctx context.Context) string
	// Published returns the number of events that this process has published; nil if it does not audit.
	Published func() Published
	// JSON is what `lapse status --json` prints of a status, which is nil if nothing is known; trouble says why there is nothing newer.
	JSON   func(s *status.Status, trouble string) ([]byte, error)
	Logger *slog.Logger
}

// Topics says where events go.
type Topics struct {
	Place             string // the topics' place: Kafka, or a folder
	System, User, Log string
}

// Published are numbers of events since the process began.
type Published struct{ System, User, Unverified int64 }

const (
	// Patience is how long an answer waits for the database.
	Patience = time.Second
	// statusFresh is how long a status is kept before the database is asked again.
	statusFresh = 3 * time.Second
	// readLimit bounds one reading: many statements of a database that is slow.
	readLimit = 8 * time.Second
	// daysPatience is how long a page waits for the days. It is useful without them.
	daysPatience = 300 * time.Millisecond
	// compressed is the length from which a page is compressed: hundreds of policies, every five seconds, may pass a tunnel.
	compressed = 16 << 10
	// witnessesFresh is longer, because the line needs a reading of the log.
	witnessesFresh = time.Minute
)

var (
	// errSlow says that a newer value is being read.
	errSlow = errors.New("the database does not answer in time")

	//go:embed files
	files embed.FS
)

// Page serves the page. Safe for concurrent use.
type Page struct {
	Config
	ctx       context.Context // until the process stops
	status    *kept[*status.Status]
	witnesses *kept[string]
	days      *kept[*deleted]
	templates *template.Template

	mutex    sync.Mutex
	policies map[schemas.PolicyName]*kept[*onePolicy]
}

// New makes the page. When ctx ends, it gives up current readings.
func New(ctx context.Context, c Config) (*Page, error) {
	p := &Page{Config: c, ctx: ctx, policies: map[schemas.PolicyName]*kept[*onePolicy]{}}
	p.status = &kept[*status.Status]{ctx: ctx, fresh: statusFresh, limit: readLimit, read: p.readStatus}
	p.witnesses = &kept[string]{ctx: ctx, fresh: witnessesFresh, limit: readLimit, read: func(ctx context.Context) (string, error) {
		return c.Witnesses(ctx), nil
	}}
	count := counter{days: map[time.Time]day{}}
	p.days = &kept[*deleted]{ctx: ctx, fresh: daysFresh, limit: readLimit, read: func(ctx context.Context) (*deleted, error) {
		return read(ctx, p, count.count)
	}}
	var err error
	p.templates, err = template.New("").Funcs(template.FuncMap{"line": plaintext.Line, "prose": prose, "text": plaintext.Text}).ParseFS(files, "files/*.tmpl")
	return p, err
}

// Handle adds the page's addresses.
func (p *Page) Handle(mux *http.ServeMux) {
	for pattern, handler := range map[string]http.HandlerFunc{
		"GET /{$}":             p.overview,
		"GET /api/status":      p.api,
		"GET /policies/{name}": p.showPolicy,
		"GET /page.css":        serveFile,
		"GET /page.js":         serveFile,
		"GET /favicon.ico":     noIcon,
	} {
		mux.Handle(pattern, secured(handler))
	}
}

func serveFile(w http.ResponseWriter, r *http.Request) {
	http.ServeFileFS(w, r, files, "files"+r.URL.Path)
}

// noIcon answers browsers' requests for an icon, so that their console shows no error.
func noIcon(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// show answers with a template. If the template fails, it sends none of it.
func (p *Page) show(w http.ResponseWriter, r *http.Request, code int, name string, view any) {
	var body bytes.Buffer
	if err := p.templates.ExecuteTemplate(&body, name, view); err != nil {
		p.Logger.Error("the status page cannot be made", "template", name, "error", err)
		http.Error(w, "the page cannot be made: the log of the process says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Vary", "Accept-Encoding")
	if body.Len() < compressed || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(code)
		_, _ = body.WriteTo(w) // an error means that the browser is gone
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(code)
	zip := gzip.NewWriter(w)
	_, _ = body.WriteTo(zip)
	_ = zip.Close()
}

// readStatus reads the status over its own connection.
func (p *Page) readStatus(ctx context.Context) (*status.Status, error) {
	return read(ctx, p, p.Status)
}

// read opens a connection for a reading, and logs its errors. A panic in it becomes an error, so that it does not end the process that deletes.
func read[T any](ctx context.Context, p *Page, ask func(ctx context.Context, conn *pgx.Conn) (T, error)) (answer T, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("the page has a fault: %v", fault)
		}
		if err != nil && p.ctx.Err() == nil {
			p.Logger.Warn("the status page cannot read the catalog", "error", err)
		}
	}()
	conn, err := p.Connect(ctx)
	if err != nil {
		return answer, err
	}
	defer database.Close(conn)
	return ask(ctx, conn)
}
