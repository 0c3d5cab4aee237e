package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/schemas"
)

func (a *app) policyShowCommand() *cobra.Command {
	var sql bool
	var version int
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show what a policy says, and what it means in this database",
		Long: `Shows the version of a policy that is in force, or was last: its entry of the policy file as it was written, what it was found to
mean in this database (key, cascades, owner of the table, index), its state and since when. --version shows another one.

--sql adds the version's functions as they are in the database, what deletes first, and says so if they are not as
this lapse makes them. The login needs only the executor's or the auditor's rights.`,
		Example: `  lapse policy show sessions-30d
  lapse policy show sessions-30d --sql
  lapse policy show sessions-30d --version 2 --json`,
		Args:              onePolicy("show"),
		ValidArgsFunction: a.completeRecorded,
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, args []string) error {
		if version < 0 {
			return wrongUsage("--version %d: versions count from 1", version)
		}
		v, err := a.readPolicy(cmd.Context(), args[0], schemas.PolicyVersion(version), sql)
		if err != nil {
			return err
		}
		if a.asJSON {
			return a.printJSON(v)
		}
		v.print(a)
		return nil
	})
	cmd.Flags().BoolVar(&sql, "sql", false, "print the version's functions as they are in the database")
	cmd.Flags().IntVar(&version, "version", 0, "show this version (default: the one in force)")
	a.jsonFlag(cmd)
	return cmd
}

// onePolicy takes exactly one name.
func onePolicy(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("name one policy: lapse policy %s NAME", command)
		}
		return nil
	}
}

// shownPolicy is one version of a policy, as it is shown.
type shownPolicy struct {
	Policy      schemas.PolicyName    `json:"policy"`
	Version     schemas.PolicyVersion `json:"version"`
	InForce     bool                  `json:"in_force"`
	State       schemas.State         `json:"state"` // of the policy
	Since       time.Time             `json:"since"`
	HeldBack    schemas.PolicyVersion `json:"held_back"`             // the version that waits for a yes; 0 for none
	ReplacedAt  *time.Time            `json:"replaced_at,omitempty"` // of a former version
	Table       string                `json:"table"`
	MadeAt      time.Time             `json:"made_at"`
	MadeBy      string                `json:"made_by"`
	Reason      string                `json:"reason,omitempty"`
	Entry       string                `json:"entry,omitempty"`
	FormerEntry string                `json:"former_entry,omitempty"`
	Meaning     []meaning             `json:"meaning"`
	Functions   []record.FunctionText `json:"functions,omitempty"`

	heldBack string // which version waits, and for what
}

// meaning is one thing that an entry was found to mean.
type meaning struct {
	Field string `json:"field"`
	Value string `json:"value"`
}

// readPolicy reads one version, 0 for the one in force or the last one.
func (a *app) readPolicy(ctx context.Context, name string, number schemas.PolicyVersion, sql bool) (*shownPolicy, error) {
	conn, s, err := a.openReader(ctx)
	if err != nil {
		return nil, err
	}
	defer database.Close(conn)
	record, err := readPolicyRecord(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	if number == 0 {
		number = record.Version
	}
	is := record.At(number)
	if is == nil {
		return nil, wrongUsage("policy %s has no version %d: its versions are 1 to %d", name, number, record.Versions[len(record.Versions)-1].Definition.Version)
	}
	v := &shownPolicy{
		Policy: record.Name, Version: number, State: record.State, Since: record.Since(), HeldBack: record.HeldBack,
		InForce:  number == record.Version && record.State != schemas.Dropped,
		heldBack: record.HeldBackText(), Table: is.Definition.Table, MadeAt: is.At, MadeBy: is.By, Reason: is.Reason, Entry: is.Entry, FormerEntry: is.Former, Meaning: []meaning{},
	}
	if !v.InForce {
		v.ReplacedAt = record.ReplacedAt(number)
	}
	return v, v.complete(ctx, conn, s, is, sql)
}

// complete adds what the database says of the version.
func (v *shownPolicy) complete(ctx context.Context, conn *pgx.Conn, s *config.Settings, is *record.RecordedVersion, sql bool) (err error) {
	for _, field := range is.Fields {
		v.Meaning = append(v.Meaning, meaning{field.Field, field.To})
	}
	v.Meaning = append(v.Meaning, meaning{"deleter", s.Roles.Deleter(is.Definition.TableOwner)})
	if v.InForce {
		index, known, err := is.FindIndex(ctx, conn)
		if err != nil {
			return err
		}
		if known && index == "" {
			index = "none serves: `lapse plan` says which to make"
		}
		if known {
			v.Meaning = append(v.Meaning, meaning{"found by index", index})
		}
	}
	if sql {
		v.Functions, err = is.FunctionTexts(ctx, conn, s.Roles)
	}
	return err
}

func (v *shownPolicy) print(a *app) {
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	title := fmt.Sprintf("%s on %s: version %d", v.Policy, v.Table, v.Version)
	switch {
	case v.HeldBack == v.Version && !v.InForce:
		title += ", held back"
	case v.InForce:
		title += fmt.Sprintf(", %s since %s", v.State, at(v.Since))
	case v.ReplacedAt != nil:
		title += ", replaced at " + at(*v.ReplacedAt)
	case v.State == schemas.Dropped:
		title += fmt.Sprintf(", %s since %s", v.State, at(v.Since))
	default:
		title += ", never in force"
	}
	fmt.Fprintln(a.out, title)
	if v.heldBack != "" {
		fmt.Fprintln(a.out, v.heldBack)
	}
	fmt.Fprintf(a.out, "made at %s by %s%s\n", at(v.MadeAt), v.MadeBy, because(v.Reason))
	fmt.Fprintf(a.out, "\nas it was written:\n%s\n", indent(v.Entry))
	fmt.Fprintln(a.out, "\nwhat it was found to mean:")
	for _, m := range v.Meaning {
		fmt.Fprintf(a.out, "    %-18s %s\n", m.Field, m.Value)
	}
	for _, f := range v.Functions {
		switch {
		case f.Text == "" && f.Differs == "":
			fmt.Fprintf(a.out, "\n%s: none: only a version in force or held back has functions\n", f.Name)
			continue
		case f.Differs != "":
			fmt.Fprintf(a.out, "\n%s %s: it differs from what this lapse makes, and `lapse apply` refuses functions that it did not make\n", f.Name, f.Differs)
		default:
			fmt.Fprintf(a.out, "\n%s, as this lapse makes it:\n", f.Name)
		}
		fmt.Fprintln(a.out, f.Comment+strings.TrimRight(f.Text, "\n"))
	}
}

// because is a reason for the end of a line.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + onOneLine(reason)
}
