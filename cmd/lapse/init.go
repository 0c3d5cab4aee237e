package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/catalog"
	"lapse/planner"
	"lapse/replication"
	"lapse/schemas"
)

func (a *app) initCommand() *cobra.Command {
	var asJSON, grants, newSlot bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Install or upgrade Lapse in a database",
		Long: `Makes what is missing: the roles, the keys, the schema "lapse", the publications, and the replication slot.
Safe to repeat: what is there stays as it is.

As a superuser it makes everything, the login for all other commands included: the logins that lapse.yaml names, or else
one, "lapse". As anybody else it needs the roles to be there; --grants prints what a superuser has to run, without
connecting. A schema "lapse" that is not Lapse's is refused before anything in it is touched.

A slot that is gone, or that the server gave up, is made again with --new-slot only. So is one that is older than a publication
that had to be made again: it cannot be read past that. The log goes on in the same topics, and a gap record in them says what is
missing.

Keys are made where --keys says, or, if nothing says where keys are, in the user's configuration folder, and never for a
database that is installed. Copy them to every machine that runs Lapse on this database, and keep them: they prove which
deletions were Lapse's. The database has their fingerprints, and commands refuse other keys.`,
		Example: `  lapse init --database postgres://postgres@127.0.0.1/app --keys ./keys
  lapse init --grants --database postgres://lapse@127.0.0.1/app`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) error {
		s, err := a.settings()
		if err != nil {
			return err
		}
		if grants {
			return a.printGrants(s, nil)
		}
		i := &initialiser{app: a, settings: s, newSlot: newSlot, mayMakeKeys: s.Keys.Default || a.overrides.Keys != ""}
		if err := i.run(cmd.Context()); err != nil {
			return err
		}
		return i.print(asJSON)
	})
	cmd.Flags().BoolVar(&grants, "grants", false, "print the SQL that a superuser must run, and do nothing")
	cmd.Flags().BoolVar(&newSlot, "new-slot", false, "make a slot that is gone, lost or older than a publication again; the evidence has a gap, in the same topics")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// initialiser makes what is missing, in this order:
//
//	roles → keys → catalog → publications → tables of policies in them → record of both → slot
//
// Before it makes anything it looks whether a schema "lapse" and the roles that are there are Lapse's. Publications come before the slot: a slot that is older than one is stuck for good. A crash between any two steps, or
// inside one, leaves what the next init takes up. Where a publication has to be made beside a slot that is there, the record of
// the slot goes first: no later init takes that slot for a good one.
type initialiser struct {
	*app
	settings    *config.Settings
	mayMakeKeys bool
	newSlot     bool
	remade      []string // publications that had to be made although there was a slot on record

	Done     []deed   `json:"done"`
	Warnings []string `json:"warnings"`
	Next     []string `json:"next"`
}

// deed is one thing that was made.
type deed struct {
	What   string `json:"what"`
	Detail string `json:"detail"`
}

func (i *initialiser) did(what, format string, args ...any) {
	i.Done = append(i.Done, deed{what, fmt.Sprintf(format, args...)})
}

func (i *initialiser) run(ctx context.Context) error {
	i.Done, i.Warnings, i.Next = []deed{}, []string{}, []string{}
	login, err := connect(ctx, i.settings.Database.Owner, "", "lapse init")
	if err != nil {
		return err
	}
	defer hangUp(login)
	if err := i.server(ctx, login); err != nil {
		return err
	}
	if _, err := catalog.CheckSchema(ctx, login, i.settings.Roles); err != nil {
		return err
	}
	if err := i.roles(ctx, login); err != nil {
		return err
	}
	owner, err := connect(ctx, i.settings.Database.Owner, i.settings.Roles.Owner, "lapse init")
	if err != nil {
		return err
	}
	defer hangUp(owner)
	if err := i.catalog(ctx, owner); err != nil {
		return err
	}
	if i.settings.Audit == config.AuditOff {
		i.Warnings = append(i.Warnings, "audit: off: rows are deleted without evidence")
		return nil
	}
	if err := i.publications(ctx, owner); err != nil {
		return err
	}
	if err := i.tables(ctx, owner); err != nil {
		return err
	}
	if err := i.recordPublications(ctx, owner); err != nil {
		return err
	}
	if err := i.slot(ctx, owner); err != nil {
		return err
	}
	return i.retention(ctx, owner)
}

// retention warns of a slot that may keep the log until the disk is full.
func (i *initialiser) retention(ctx context.Context, conn *pgx.Conn) error {
	var keep string
	if err := conn.QueryRow(ctx, `select current_setting('max_slot_wal_keep_size')`).Scan(&keep); err != nil {
		return fmt.Errorf("look at max_slot_wal_keep_size: %w", err)
	}
	if keep == "-1" {
		i.Warnings = append(i.Warnings, "max_slot_wal_keep_size is -1: while Kafka or the auditor is away, PostgreSQL keeps its log until "+
			"the disk is full; set it to what the disk can spare (alter system set max_slot_wal_keep_size = '50GB'), "+
			"and know that beyond it the slot is lost, and with it the evidence of what was deleted meanwhile")
	}
	return nil
}

// keys makes the keys where nobody configured any, or where --keys says, unless the database is installed with others. It
// returns their fingerprints.
func (i *initialiser) keys(before *installation) (map[string]string, error) {
	source := i.settings.Keys
	missing := source.Missing(config.KeyNames()...)
	switch {
	case len(missing) == 0:
	case before != nil:
		return nil, lackingKeys(i.settings, before, missing)
	case i.mayMakeKeys:
		made, err := source.Make()
		if err != nil {
			return nil, err
		}
		hint := ""
		if i.overrides.Keys != "" {
			hint = " (tell the other commands with keys: in lapse.yaml, or LAPSE_KEYS)"
		}
		i.did("keys", "%s in %s%s", joined(made), source.Dir, hint)
	}
	fingerprints, err := source.Fingerprints(config.KeyNames()...)
	return fingerprints, invalid(err)
}

// oldestServer is the first major version that Lapse works with.
const oldestServer = 140000

// server refuses what nothing can be installed in.
func (i *initialiser) server(ctx context.Context, conn *pgx.Conn) error {
	var version int
	var standby bool
	err := conn.QueryRow(ctx, `select current_setting('server_version_num')::int, pg_is_in_recovery()`).Scan(&version, &standby)
	switch {
	case err != nil:
		return fmt.Errorf("look at the server: %w", err)
	case version < oldestServer:
		return fmt.Errorf("PostgreSQL %d is too old: Lapse needs %d or later", version/10000, oldestServer/10000)
	case standby:
		return fmt.Errorf("%s is a standby: point database: at the primary", i.settings.Database.Owner)
	case i.settings.Audit == config.AuditOff:
		return nil
	default:
		if err := replication.CheckWALLevel(ctx, conn); err != nil {
			return err
		}
		return i.asynchronous(ctx, conn)
	}
}

// asynchronous refuses a server whose commits would wait for the auditor, before anything is committed: where no standby
// answers to the setting, these commits would wait too.
func (i *initialiser) asynchronous(ctx context.Context, conn *pgx.Conn) error {
	name, err := replication.ApplicationName(string(i.settings.Database.Auditor))
	if err != nil {
		return invalid(err)
	}
	return replication.CheckSynchronousNames(ctx, conn, name)
}

// catalog makes the keys and the schema. The keys come first: what is recorded is there.
func (i *initialiser) catalog(ctx context.Context, owner *pgx.Conn) error {
	before, err := readInstallation(ctx, owner, i.settings.Roles)
	if err != nil && !errors.Is(err, errNotInstalled) {
		return err
	}
	fingerprints, err := i.keys(before)
	if err != nil {
		return err
	}
	required := i.settings.Audit == config.AuditRequired
	found, err := catalog.Migrate(ctx, owner, catalog.Options{
		Roles: i.settings.Roles, Slot: i.settings.Slot, AuditRequired: required, Keys: fingerprints,
	})
	var other *catalog.KeysError
	if errors.As(err, &other) {
		return invalid(fmt.Errorf("%s: %w", i.settings.Keys.Place(config.KeyName(other.Name)), err))
	}
	if err != nil {
		return err
	}
	switch {
	case found == 0:
		i.did("catalog", `schema "lapse", version %d`, schemas.Version)
	case found < schemas.Version:
		i.did("catalog", "upgraded from version %d to %d", found, schemas.Version)
	}
	if before != nil && before.auditRequired != required {
		i.did("audit", "%s", i.settings.Audit)
	}
	return nil
}

// ledgerTables are published in lapse_ledger: the evidence, and the auditor's sign of life.
func ledgerTables() []string {
	return []string{"batch", "batch_result", "policy", "policy_state", "heartbeat"}
}

func (i *initialiser) publications(ctx context.Context, owner *pgx.Conn) error {
	if _, err := owner.Exec(ctx, `select lapse.begin_publications()`); err != nil {
		return fmt.Errorf("look at the publications: %w", err)
	}
	var there []string
	if err := owner.QueryRow(ctx, `select coalesce(array_agg(pubname::text), '{}') from pg_publication`).Scan(&there); err != nil {
		return fmt.Errorf("look for publications: %w", err)
	}
	missing := slices.DeleteFunc(replication.Publications(), func(name string) bool { return slices.Contains(there, name) })
	if len(missing) > 0 {
		if err := i.forgetSlot(ctx, owner, missing); err != nil {
			return err
		}
	}
	if err := replication.EnsurePublications(ctx, owner); err != nil {
		return err
	}
	if len(missing) > 0 {
		i.did("publications", "%s", strings.Join(missing, ", "))
	}
	joined, err := i.joinLedger(ctx, owner)
	if err != nil {
		return err
	}
	if len(joined) > 0 && len(missing) == 0 {
		i.did("publications", "%s: %s", replication.Ledger, strings.Join(joined, ", "))
	}
	return nil
}

func (i *initialiser) joinLedger(ctx context.Context, owner *pgx.Conn) (joined []string, err error) {
	members, err := replication.Members(ctx, owner)
	if err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(ledgerTables(), func(table string) bool {
		return slices.ContainsFunc(members, func(m replication.Member) bool {
			return m.Publication == replication.Ledger && m.Schema == "lapse" && m.Name == table
		})
	})
	if len(missing) == 0 {
		return nil, nil
	}
	err = retryLocked(ctx, owner, i.log, "publish the ledger", func(tx pgx.Tx) error {
		oids := make([]uint32, len(missing))
		for k, table := range missing {
			if err := tx.QueryRow(ctx, `select ('lapse.' || $1::text)::regclass::oid`, table).Scan(&oids[k]); err != nil {
				return err
			}
			if err := replication.JoinLedger(ctx, tx, oids[k]); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `select lapse.record_published($1)`, oids)
		return err
	})
	return missing, err
}

// tables publishes the tables of policies that are in force: where the audit was off until now they are in no
// publication yet.
func (i *initialiser) tables(ctx context.Context, owner *pgx.Conn) error {
	policies, err := planner.LoadInForce(ctx, owner)
	if err != nil {
		return err
	}
	for k := range policies {
		p := &policies[k]
		missing, err := unpublished(ctx, owner, p.TableOID)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			continue
		}
		err = retryLocked(ctx, owner, i.log, "publish the tables of policy "+string(p.Name), func(tx pgx.Tx) error {
			return join(ctx, tx, missing, i.settings.Roles)
		})
		if err != nil {
			return err
		}
		i.did("publications", "the tables of policy %s", p.Name)
	}
	return nil
}

// recordPublications takes down what is published, once all of it is right: until then batches are refused. A row filter or a
// column list is a person's to remove: rows would be missing from the evidence, or keys.
func (i *initialiser) recordPublications(ctx context.Context, owner *pgx.Conn) error {
	var differed bool
	var trouble string
	err := pgx.BeginFunc(ctx, owner, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			select exists (select from lapse.publication) and lapse.publications_fault() is not null, coalesce(lapse.record_publications(), '')`).
			Scan(&differed, &trouble)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("take down what is published: %w", err)
	case trouble != "":
		return fmt.Errorf("%s: somebody else made it so: find out who and why, take it out (alter publication … drop …), and run lapse init again", trouble)
	case differed:
		i.did("publications", "taken down as they are; somebody else had changed them")
	}
	return nil
}

func (i *initialiser) print(asJSON bool) error {
	if asJSON {
		return i.printJSON(i)
	}
	for _, d := range i.Done {
		fmt.Fprintf(i.out, "%-13s %s\n", d.What, d.Detail)
	}
	for _, w := range i.Warnings {
		fmt.Fprintf(i.out, "warning: %s\n", w)
	}
	for _, n := range i.Next {
		fmt.Fprintf(i.out, "next: %s\n", n)
	}
	if len(i.Done) == 0 {
		fmt.Fprintln(i.out, "nothing to do")
	}
	return nil
}

func joined[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = string(one)
	}
	return strings.Join(texts, ", ")
}
