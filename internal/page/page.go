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

// Config says of what database the page is, and how it is read.
type Config struct {
	Database string // its name
	Topics   Topics
	Roles    schemas.Roles
	// Connect opens a session that may read the catalog, as the executor may. It should bound its statements.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	// Status reads what `lapse status` shows.
	Status func(ctx context.Context, conn *pgx.Conn) (*status.Status, error)
	// Witnesses is the line about witnesses, for which the log is read; nil: there are none.
	Witnesses func(ctx context.Context) string
	// Published counts the events that this process has published; nil where it does not audit.
	Published func() Published
	Logger    *slog.Logger
}

// Topics is where events go.
type Topics struct {
	Place             string // of the topics: Kafka, or a folder
	System, User, Log string
}

// Published are numbers of events since the process began.
type Published struct{ System, User, Unverified int64 }

const (
	// Patience is how long an answer waits for the database.
	Patience = time.Second
	// statusFresh is for how long the database is not asked again.
	statusFresh = 3 * time.Second
	// readLimit bounds one reading: many statements of a database that is slow.
	readLimit = 8 * time.Second
	// daysPatience is how long a page waits for what was deleted by day: without it, it is nearly whole.
	daysPatience = 300 * time.Millisecond
	// compressed is the length from which a page is: hundreds of policies, every five seconds, through a tunnel.
	compressed = 16 << 10
	// witnessesFresh is longer, because the log is read back for them.
	witnessesFresh = time.Minute
)

var (
	// errSlow says that something newer is being read.
	errSlow = errors.New("the database does not answer in time")

	//go:embed files
	files embed.FS
)

// Page answers. Safe for concurrent use.
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

// New makes the page. What is being read when ctx ends is given up.
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
	p.templates, err = template.New("").Funcs(template.FuncMap{"line": plaintext.Line, "text": plaintext.Text}).ParseFS(files, "files/*.tmpl")
	return p, err
}

// Handle adds the page's addresses.
func (p *Page) Handle(mux *http.ServeMux) {
	for pattern, handler := range map[string]http.HandlerFunc{
		"GET /{$}":             p.overview,
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

// noIcon keeps browsers, which ask, from an error in their console.
func noIcon(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// show answers with a template. Nothing is sent of one that fails half-way.
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
		_, _ = body.WriteTo(w) // an error is a browser that has gone
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(code)
	zip := gzip.NewWriter(w)
	_, _ = body.WriteTo(zip)
	_ = zip.Close()
}

// readStatus asks the database over a connection of its own.
func (p *Page) readStatus(ctx context.Context) (*status.Status, error) {
	return read(ctx, p, p.Status)
}

// read opens a connection, and logs what goes wrong. A fault of the page is an error, and does not end the process that deletes.
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
