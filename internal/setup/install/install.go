package install

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/internal/setup/holds"
	"lapse/internal/setup/site"
	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/replication"
	"lapse/schemas"
)

// Player says which login's session Installer.Connect opens.
type Player string

// The sessions of an installation, each over the URL that the settings have for it.
const (
	PlayLogin   Player = "login"   // the owner's URL, as the login itself
	PlayOwner   Player = "owner"   // the owner's URL, as the catalog's owner
	PlayAuditor Player = "auditor" // the auditor's URL, as the login itself
)

// Step is one step of Install. Their order, and what a crash after each leaves, is in doc.go.
type Step string

// Installer makes what is missing of an installation.
type Installer struct {
	Roles         schemas.Roles
	Slot          string
	AuditRequired bool          // false: neither publications nor a slot are made
	Logins        access.Logins // of the URLs that Connect uses
	Others        access.Logins // of the URLs that the other commands will use
	StreamName    string        // application_name of the auditor's stream
	Program       string        // the version of this lapse, for the record
	NewSlot       bool          // replace a slot that is missing, lost or older than a publication
	Connect       func(ctx context.Context, as Player) (*pgx.Conn, error)
	// Keys makes the keys unless they exist, or refuses, and returns their fingerprints. before is nil if nothing is installed. made says what it
	// made, "" for nothing.
	Keys func(before *site.Installation) (fingerprints map[string]string, made string, err error)
	Log  *slog.Logger
	// Progress is called with each step that is done; may be nil.
	Progress func(Step)
}

// Made is one thing that Install made.
type Made struct {
	What   string `json:"what"`
	Detail string `json:"detail"`
}

// Result is what Install did and found.
type Result struct {
	Done      []Made
	Warnings  []string
	NewLogins []string    // logins that were made, and have no password
	Login     string      // the login for all other commands, if it was made or got rights
	Replaced  bool        // the slot replaces a lost one
	SlotAt    schemas.LSN // where it begins
	// CatalogFound is the version that the catalog had before, 0 for none.
	CatalogFound int
	// Outdated are the policies whose functions another lapse wrote: they delete nothing until they are applied again.
	Outdated []schemas.PolicyName
}

// SuperuserError says that a superuser has to run something first.
type SuperuserError struct{ What, Login, SQL string }

// Error ends with the statements.
func (e *SuperuserError) Error() string {
	return fmt.Sprintf("%s, and %q is no superuser: have one run this (lapse init --grants prints all of it), then run lapse init again:\n\n%s",
		e.What, e.Login, e.SQL)
}

// installing is an Install call in progress.
type installing struct {
	Installer
	result       Result
	login        *pgx.Conn
	owner        *site.Session
	before       *site.Installation // nil: nothing was installed
	fingerprints map[string]string
	remade       []string // publications that were missing although a slot was, or had been, on record
}

// Install makes what is missing, step by step. Existing things stay as they are. Each step is durable when it is done, and may be repeated:
// after a crash another Install continues. Two calls at once wait for each other.
func (i Installer) Install(ctx context.Context) (*Result, error) {
	w := &installing{Installer: i}
	var err error
	if w.login, err = i.Connect(ctx, PlayLogin); err != nil {
		return nil, err
	}
	defer database.Close(w.login)
	defer func() {
		if w.owner != nil {
			database.Close(w.owner.Conn)
		}
	}()
	for _, step := range w.steps() {
		if err := step.do(ctx); err != nil {
			return nil, err
		}
		if i.Progress != nil {
			i.Progress(step.name)
		}
	}
	return &w.result, context.Cause(ctx)
}

type step struct {
	name Step
	do   func(ctx context.Context) error
}

func (w *installing) steps() []step {
	steps := []step{
		{"inspect", w.inspect}, {"roles", w.roles}, {"keys", w.keys}, {"catalog", w.catalog},
	}
	if !w.AuditRequired {
		return append(steps, step{"holds", w.holds}, step{"retention", func(context.Context) error {
			w.warn("audit: off: rows are deleted without evidence")
			return nil
		}})
	}
	return append(steps, []step{
		{"publications", w.publications},
		{"ledger", w.ledger},
		{"tables", w.tables},
		{"record", w.record},
		{"slot", w.slot},
		{"holds", w.holds},
		{"retention", w.retention},
	}...)
}

// holds finishes what a killed command has left of a hold.
func (w *installing) holds(ctx context.Context) error { return holds.Finish(ctx, w.owner) }

func (w *installing) did(what, format string, args ...any) {
	w.result.Done = append(w.result.Done, Made{what, fmt.Sprintf(format, args...)})
}

func (w *installing) warn(format string, args ...any) {
	w.result.Warnings = append(w.result.Warnings, fmt.Sprintf(format, args...))
}

// oldestServer is the first major version that Lapse works with.
const oldestServer = 140000

// inspect refuses a server or a database in which nothing can be installed. It changes nothing.
func (w *installing) inspect(ctx context.Context) error {
	var version int
	var standby bool
	err := w.login.QueryRow(ctx, `select current_setting('server_version_num')::int, pg_is_in_recovery()`).Scan(&version, &standby)
	switch {
	case err != nil:
		return fmt.Errorf("check the server: %w", err)
	case version < oldestServer:
		return fmt.Errorf("PostgreSQL %d is too old: Lapse needs %d or later", version/10000, oldestServer/10000)
	case standby:
		return errors.New("this server is a standby: point database: at the primary")
	}
	if w.AuditRequired {
		if err := replication.CheckWALLevel(ctx, w.login); err != nil {
			return err
		}
		// If no standby matches the setting, the commits of Install would wait too.
		if err := replication.CheckSynchronousNames(ctx, w.login, w.StreamName); err != nil {
			return err
		}
	}
	_, err = site.CheckSchema(ctx, w.login, w.Roles)
	return err
}

// keys makes the keys, before the catalog records their fingerprints, so that every recorded key exists.
func (w *installing) keys(ctx context.Context) error {
	conn, err := w.Connect(ctx, PlayOwner)
	if err != nil {
		return err
	}
	w.owner = &site.Session{Conn: conn, Roles: w.Roles, Log: w.Log}
	if w.before, err = site.ReadInstallation(ctx, conn, w.Roles); err != nil && !errors.Is(err, site.ErrNotInstalled) {
		return err
	}
	var made string
	w.fingerprints, made, err = w.Keys(w.before)
	if made != "" {
		w.did("keys", "%s", made)
	}
	return err
}

// catalog makes the schema, or brings it to this program's version, and restores rights that roles have lost there.
func (w *installing) catalog(ctx context.Context) error {
	found, err := site.Catalog(ctx, w.owner.Conn, site.Options{
		Roles: w.Roles, Slot: w.Slot, AuditRequired: w.AuditRequired, Keys: w.fingerprints, Program: w.Program,
		Waiting: func(who string) {
			w.Log.Warn("waiting until others let go of the catalog; Ctrl-C ends that", "others", who)
		},
	})
	if err != nil {
		return err
	}
	w.result.CatalogFound = found
	if err := w.rights(ctx); err != nil {
		return err
	}
	if err := w.outdated(ctx); err != nil {
		return err
	}
	switch {
	case found == 0:
		w.did("catalog", `schema "lapse", version %d`, schemas.Version)
	case found < schemas.Version:
		w.did("catalog", "upgraded from version %d to %d", found, schemas.Version)
	}
	if w.before != nil && w.before.AuditRequired != w.AuditRequired {
		to := "off"
		if w.AuditRequired {
			to = "required"
		}
		w.did("audit", "%s", to)
	}
	return nil
}

// outdated finds the policies that must be applied again. It changes nothing.
func (w *installing) outdated(ctx context.Context) error {
	policies, err := record.LoadInForce(ctx, w.owner.Conn)
	if err != nil {
		return err
	}
	for i := range policies {
		if policies[i].Outdated() != nil {
			w.result.Outdated = append(w.result.Outdated, policies[i].Name)
		}
	}
	return nil
}

// retention warns of a slot that may keep log until the disk is full. It changes nothing.
func (w *installing) retention(ctx context.Context) error {
	var keep string
	if err := w.owner.Conn.QueryRow(ctx, `select current_setting('max_slot_wal_keep_size')`).Scan(&keep); err != nil {
		return fmt.Errorf("check max_slot_wal_keep_size: %w", err)
	}
	if keep == "-1" {
		w.warn("max_slot_wal_keep_size is -1: while Kafka or the auditor is away, PostgreSQL keeps its log until " +
			"the disk is full; set it to what the disk can spare (alter system set max_slot_wal_keep_size = '50GB'), " +
			"and know that beyond it the slot is lost, and with it the evidence of what was deleted meanwhile")
	}
	return nil
}
