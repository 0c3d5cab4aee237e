package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/planner/change"
	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/schemas"
)

// stateCommand is a command that changes the state of policies without a policy file. Each one locks the gates but not the users'
// tables. When it returns, no batch runs under the former state.
type stateCommand struct {
	use, short, long, example string
	arms                      bool // it accepts what is due
	change                    func(ctx context.Context, conn *pgx.Conn, p *record.InForce, version schemas.PolicyVersion) (change.Change, error)
}

func (a *app) policyStateCommands() []*cobra.Command {
	return []*cobra.Command{
		a.policyStateCommand(stateCommand{
			use:   "arm NAME...",
			short: "Let policies delete",
			long: `Lets policies delete that observe, are paused, or have a version that is held back because more falls due under it. It is the yes to
all that is due under them: "lapse plan NAME" counts it. They wait until the auditor has read past this moment, and are armed then.
--version names the version that is said yes to, as plan and apply showed it: if it is another one by now, nothing is changed.
If the breaker stopped a policy because more rows were due at once than expected, --accept says how many may be deleted, once.`,
			example: `  lapse policy arm sessions-30d --version 3 --reason "ticket 4711"`,
			change:  armPolicy,
			arms:    true,
		}),
		a.policyStateCommand(stateCommand{
			use:   "pause NAME...",
			short: "Stop policies",
			long: `Stops policies until "lapse policy resume". When it returns, none of their batches runs. It works whatever happened to their tables.
A later "lapse apply" of a file that says "state: armed" arms them again: write "state: paused" there for a longer pause.`,
			example: `  lapse policy pause sessions-30d orders-7y --reason "migration"`,
			change: func(_ context.Context, _ *pgx.Conn, p *record.InForce, _ schemas.PolicyVersion) (change.Change, error) {
				return change.Pause(p), nil
			},
		}),
		a.policyStateCommand(stateCommand{
			use:   "resume NAME...",
			short: "Return paused policies to the state they had",
			long: `Takes paused policies back to the state before the pause. One that was armed is armed again, unless more falls due under it than under
what was armed last: it is held back then, until "lapse policy arm".`,
			example: `  lapse policy resume sessions-30d`,
			change: func(ctx context.Context, conn *pgx.Conn, p *record.InForce, _ schemas.PolicyVersion) (change.Change, error) {
				return change.Resume(ctx, conn, p)
			},
		}),
	}
}

// armPolicy arms a version; 0 stands for the only one that waits. It refuses if the command could mean either of two.
func armPolicy(_ context.Context, _ *pgx.Conn, p *record.InForce, version schemas.PolicyVersion) (change.Change, error) {
	if version == 0 && p.Waiting() != nil && p.Tripped != nil {
		return change.Change{}, wrongUsage("policy %s: its breaker stopped version %d, and version %d is held back: say with --version which one you mean: nothing was changed",
			p.Name, p.Version, p.HeldVersion)
	}
	if p.Trouble != "" {
		return change.Change{}, fmt.Errorf("policy %s cannot be armed: %s: %s", p.Name, p.Trouble, p.Remedy())
	}
	if version != 0 {
		return change.ArmVersion(p, version)
	}
	return change.Arm(p), nil
}

func (a *app) policyStateCommand(c stateCommand) *cobra.Command {
	var reason string
	var accept rowCount
	var version int32
	cmd := &cobra.Command{
		Use: c.use, Short: c.short, Long: c.long, Example: c.example, ValidArgsFunction: a.completeInForce,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("name the policies: lapse policy %s", c.use)
			}
			if cmd.Flags().Changed("version") && (version < 1 || len(args) != 1) {
				return errors.New("--version N is a version of one policy, from 1: name only that policy")
			}
			return checkReason(reason)
		},
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			changed, err := a.changeStates(cmd.Context(), args, yes{&c, reason, schemas.PolicyVersion(version), int64(accept)})
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(stateChanges{changed})
			}
			for i := range changed {
				fmt.Fprintln(a.out, &changed[i])
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", reasonFlag)
	if c.arms {
		cmd.Flags().Int32Var(&version, "version", 0, "say yes to this `version` and to no other (default: the one that is held back, or else in force)")
		cmd.Flags().Var(&accept, "accept", "delete so many `rows` of a policy that its breaker stopped, once")
	}
	a.jsonFlag(cmd)
	return cmd
}

// yes is what the user accepts: policies, and how much of what is due.
type yes struct {
	command *stateCommand
	reason  string
	version schemas.PolicyVersion // 0 for the one that waits
	accept  int64                 // rows; 0 for all that were due
}

// rowCount is a flag's number of rows. Its zero value means that the flag was not given.
type rowCount int64

// String is the number, or "" if the flag was not given.
func (c *rowCount) String() string {
	if *c == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*c), 10)
}

// Set parses the number. It refuses 0, which would count as a missing flag, and that accepts everything that is due.
func (c *rowCount) Set(text string) error {
	rows, err := strconv.ParseInt(text, 10, 64)
	if err != nil || rows < 1 {
		return errors.New("want a number of rows, 1 or more")
	}
	*c = rowCount(rows)
	return nil
}

// Type is the name of the flag's argument in the help.
func (c *rowCount) Type() string { return "rows" }

// howMany refuses an answer that accepts more, or less, than it seems to. A number of rows is allowed only for policies whose breaker is
// open: elsewhere it would limit nothing. An open breaker requires a number: after --accept of some rows, a plain yes would
// accept all others. To arm a held-back version does not close the breaker of the version in force.
func (y *yes) howMany(p *record.InForce, c *change.Change) error {
	asks := p.Tripped != nil && c.ToVersion == p.Version
	switch {
	case y.command.arms && y.accept > 0 && !asks:
		return fmt.Errorf("policy %s is %s, and its breaker did not stop it: nothing was changed. --accept is for a policy whose breaker asks; "+
			"without it `lapse policy arm %s` says yes to all that is due", p.Name, p.State, p.Name)
	case y.command.arms && y.accept == 0 && asks:
		return fmt.Errorf("policy %s is %s, and its breaker stopped it: %w: nothing was changed; say how many rows may go, once: `lapse policy arm %s --accept N`",
			p.Name, p.State, p.Tripped, p.Name)
	}
	return nil
}

// stateChange is what a command did to one policy.
type stateChange struct {
	Policy      schemas.PolicyName    `json:"policy"`
	Version     schemas.PolicyVersion `json:"version"`
	FromVersion schemas.PolicyVersion `json:"from_version"` // the version in force before
	From        schemas.State         `json:"from_state"`
	To          schemas.State         `json:"to_state"`
	HeldVersion schemas.PolicyVersion `json:"held_back"` // the version that waits to be accepted; 0 for none
	HeldAgainst string                `json:"held_against,omitempty"`
	Changed     bool                  `json:"changed"`
	Accepted    int64                 `json:"accepted,omitempty"` // rows that an open breaker allows, once

	auditOff bool
	heldBack string // which version waits, and why
}

// stateChanges is the result of `lapse policy arm`, pause and resume.
type stateChanges struct {
	Policies []stateChange `json:"policies"`
}

// String describes the change in one line.
func (s *stateChange) String() string {
	version := fmt.Sprint(s.Version)
	if s.FromVersion != s.Version {
		version = fmt.Sprintf("%d → %d", s.FromVersion, s.Version)
	}
	text := fmt.Sprintf("%s: version %s, %s", s.Policy, version, s.To)
	if s.Changed && s.From != s.To {
		text = fmt.Sprintf("%s: version %s, %s → %s", s.Policy, version, s.From, s.To)
	}
	switch {
	case s.Accepted > 0:
		text += fmt.Sprintf(": its next run deletes %s at most; if more were due, it asks again", counted(s.Accepted, "row"))
	case s.HeldAgainst != "":
		text += fmt.Sprintf(": more rows may fall due than under %s: %s", s.HeldAgainst, s.heldBack)
	case s.heldBack != "" && s.To != schemas.Paused:
		text += ": " + s.heldBack
	case !s.Changed:
		text += " already"
	case s.To == schemas.Arming:
		text += ": it deletes " + deletesFrom(!s.auditOff)
	}
	return text
}

// changeStates changes policies one by one, each in its own transaction. It checks all names first.
func (a *app) changeStates(
	ctx context.Context, names []string, said yes,
) ([]stateChange, error) {
	owner, s, err := a.openOwner(ctx, "lapse policy")
	if err != nil {
		return nil, err
	}
	conn := owner.Conn
	defer database.Close(conn)
	policies, err := policiesNamed(ctx, conn, names)
	if err != nil {
		return nil, err
	}
	changes := make([]change.Change, len(policies))
	for i := range policies {
		if changes[i], err = said.command.change(ctx, conn, &policies[i], said.version); err != nil {
			return nil, err
		}
		if err := said.howMany(&policies[i], &changes[i]); err != nil {
			return nil, err
		}
		if err := keepAboveFloors(ctx, conn, s, &policies[i], &changes[i]); err != nil {
			return nil, err
		}
	}
	changed := make([]stateChange, 0, len(changes))
	for i := range changes {
		c := &changes[i]
		if err := owner.Restate(ctx, c, said.reason); err != nil {
			return nil, fmt.Errorf("policy %s: %w", c.Policy, err)
		}
		accepted := int64(0)
		if p := &policies[i]; said.command.arms && p.Tripped != nil && c.ToVersion == p.Version {
			accepted = said.accept
			if err := owner.AcceptTrip(ctx, p, accepted); err != nil {
				return nil, err
			}
		}
		changed = append(changed, stateChange{
			Policy: c.Policy, Version: c.ToVersion, FromVersion: c.FromVersion, From: c.FromState, To: c.ToState,
			HeldVersion: c.HeldVersion, HeldAgainst: c.HeldAgainst, Changed: c.Writes() || accepted > 0, Accepted: accepted,
			auditOff: s.Audit == config.AuditOff, heldBack: c.HeldVersionText(),
		})
	}
	return changed, nil
}

// policiesNamed returns the policies in force with these names, each once, in the order of the names.
func policiesNamed(ctx context.Context, conn *pgx.Conn, names []string) ([]record.InForce, error) {
	all, err := record.LoadInForce(ctx, conn)
	if err != nil {
		return nil, err
	}
	byName, known := map[string]*record.InForce{}, make([]string, 0, len(all))
	for i := range all {
		byName[string(all[i].Name)] = &all[i]
		known = append(known, string(all[i].Name))
	}
	var named []record.InForce
	seen := map[string]bool{}
	for _, name := range names {
		p := byName[name]
		if p == nil {
			return nil, unknownPolicy(name, known)
		}
		if !seen[name] {
			named, seen[name] = append(named, *p), true
		}
	}
	return named, nil
}
