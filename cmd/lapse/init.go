package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/setup/install"
	"lapse/internal/setup/site"
	"lapse/replication"
	"lapse/schemas"
)

func (a *app) initCommand() *cobra.Command {
	var grants, newSlot bool
	var managed string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Install or upgrade Lapse in a database",
		Long: `Makes what is missing: the roles, the keys, the schema "lapse", the publications, and the replication slot.
Safe to repeat: what is there stays as it is.

As a superuser it makes everything, including the login for all other commands: the logins that lapse.yaml names, or else
one, "lapse". As any other login it needs the roles to exist; --grants prints what a superuser has to run, without
connecting. A schema "lapse" that is not Lapse's is refused before anything in it is touched.

A slot that is gone, or that the server dropped, is made again only with --new-slot. So is one that is older than a publication
that had to be made again: it cannot be read past that. The log goes on in the same topics, and a gap record in them says what is
missing.

Keys are made where --keys says or, without any setting, in the user's configuration folder; never for a
database that is installed. If LAPSE_KEYS or lapse.yaml names a folder, the keys must be there: a folder that was not mounted, or not
copied, does not get a second set. Copy them to every machine that runs Lapse on this database, and keep them: they prove which
deletions were Lapse's. The database has their fingerprints, and commands refuse other keys.`,
		Example: `  lapse init --database postgres://postgres@127.0.0.1/app --keys ./keys
  lapse init --grants --database postgres://lapse@127.0.0.1/app`,
		Args: noArgs,
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) error {
		s, err := a.settings()
		if err != nil {
			return err
		}
		if grants {
			return a.printGrants(s, nil, managed)
		}
		i := &initialiser{app: a, settings: s, newSlot: newSlot}
		report, err := i.run(cmd.Context())
		if err != nil {
			return err
		}
		return report.print(a)
	})
	cmd.Flags().BoolVar(&grants, "grants", false, "print the SQL that a superuser must run, and do nothing")
	managedFlag(cmd, &managed)
	cmd.Flags().BoolVar(&newSlot, "new-slot", false, "make a slot that is gone, lost or older than a publication again; the evidence gets a gap, in the same topics")
	a.jsonFlag(cmd)
	return cmd
}

// initialiser installs according to the settings. See internal/setup for the steps.
type initialiser struct {
	*app
	settings *config.Settings
	newSlot  bool
}

// initReport is the result of `lapse init`.
type initReport struct {
	Catalog  catalogReport  `json:"catalog"`
	Done     []install.Made `json:"done"`
	Warnings []string       `json:"warnings"`
	Next     []string       `json:"next"`
}

// catalogReport is what init did with the schema "lapse".
type catalogReport struct {
	Did     string `json:"did"`     // made, upgraded or nothing
	Found   int    `json:"found"`   // the version before, or 0 for none
	Version int    `json:"version"` // the version now
}

func reportCatalog(found int) catalogReport {
	c := catalogReport{Did: "nothing", Found: found, Version: schemas.Version}
	switch {
	case found == 0:
		c.Did = "made"
	case found < schemas.Version:
		c.Did = "upgraded"
	}
	return c
}

func (i *initialiser) run(ctx context.Context) (*initReport, error) {
	o, err := i.installer()
	if err != nil {
		return nil, err
	}
	result, err := o.Install(ctx)
	var other *site.KeysError
	if errors.As(err, &other) {
		return nil, invalid(otherKey(i.settings, other))
	}
	if err != nil {
		return nil, err
	}
	r := &initReport{Catalog: reportCatalog(result.CatalogFound), Done: result.Done, Warnings: result.Warnings}
	for _, login := range result.NewLogins {
		r.Next = append(r.Next, givePassword(login))
	}
	if result.Login != "" {
		url, err := loginURL(i.settings.Database.Owner, result.Login)
		if err != nil {
			return nil, err
		}
		r.Next = append(r.Next, givePassword(result.Login), "for all other commands: export LAPSE_DATABASE_URL="+url)
	}
	if len(result.Outdated) > 0 {
		r.Next = append(r.Next, applyAgain(result.Outdated))
	}
	if result.Replaced {
		i.goesOn(ctx, r)
	}
	return r, nil
}

// applyAgain says how to restore the functions of policies that another version of lapse wrote.
func applyAgain(policies []schemas.PolicyName) string {
	names := make([]string, len(policies))
	for i, name := range policies {
		names[i] = string(name)
	}
	return fmt.Sprintf("run `lapse apply` with the policy files of %s: another version of lapse wrote their functions, and they delete nothing until then",
		strings.Join(names, ", "))
}

// installer configures an installation from the settings.
func (i *initialiser) installer() (o install.Installer, err error) {
	s := i.settings
	o = install.Installer{
		Roles: s.Roles, Slot: s.Slot, AuditRequired: s.Audit == config.AuditRequired, NewSlot: i.newSlot, Program: readVersions().Version,
		Connect: i.connectAs, Keys: i.keys, Log: i.log,
		Progress: func(step install.Step) { i.log.Debug("a step of the installation is done", "step", string(step)) },
	}
	if o.Logins, err = loginsOf(s.Database); err != nil {
		return o, err
	}
	if o.Others, err = i.others(s); err != nil || !o.AuditRequired {
		return o, err
	}
	o.StreamName, err = replication.ApplicationName(string(s.Database.Auditor))
	return o, invalid(err)
}

func (i *initialiser) connectAs(ctx context.Context, as install.Player) (*pgx.Conn, error) {
	w := session{command: "lapse init", to: i.settings.Database.Owner, superuser: true}
	switch as {
	case install.PlayOwner:
		w.role = i.settings.Roles.Owner
	case install.PlayAuditor:
		w.to = i.settings.Database.Auditor
	}
	return i.open(ctx, i.settings, w)
}

func (r *initReport) print(a *app) error {
	if a.asJSON {
		return a.printJSON(r)
	}
	for _, d := range r.Done {
		fmt.Fprintf(a.out, "%-13s %s\n", d.What, d.Detail)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(a.out, "warning: %s\n", w)
	}
	for _, n := range r.Next {
		fmt.Fprintf(a.out, "next: %s\n", n)
	}
	if len(r.Done)+len(r.Next) == 0 {
		fmt.Fprintln(a.out, "nothing to do")
	}
	return nil
}
