package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/planner/database"
	"lapse/planner/run"
	"lapse/schemas"
)

func (a *app) clockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clock",
		Short: "Show the clock that rows fall due by, and whether Lapse trusts it",
		Long: `Shows the server's clock, this machine's, and for each policy the instant that its next run's cutoff is compared with. A cutoff before
it, or unexpectedly far after it, is refused: a wrong clock deletes rows that are not due, or none for years.
The exit code is 3 if a run would be refused.

Set the server's clock right first. If it is right, say so: "lapse clock accept".`,
		Example: `  lapse clock
  lapse clock accept --reason "the server's clock was in 2031 for an hour"`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(cmd, args)
			}
			return a.does(func(cmd *cobra.Command, _ []string) error { return a.showClock(cmd.Context()) })(cmd, args)
		},
	}
	a.jsonFlag(cmd)
	cmd.AddCommand(a.clockAcceptCommand())
	return cmd
}

func (a *app) clockAcceptCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "accept --reason TEXT",
		Short: "Say that the server's clock is right",
		Long: `Says that the server's clock is right. Lapse no longer compares the clock with the runs so far. Unfinished runs whose cutoff is ahead of the
clock are given up: a later run deletes their rows, once they are due. See "lapse clock" first.`,
		Example: `  lapse clock accept --reason "the server's clock was in 2031 for an hour"`,
		Args:    noArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if reason == "" {
				return wrongUsage("say why the clock is right: --reason TEXT")
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			accepted, err := a.acceptClock(cmd.Context(), reason)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(accepted)
			}
			fmt.Fprintf(a.out, "accepted: it is %s; %d unfinished shards of runs ahead of it were given up\n",
				accepted.At.UTC().Format(time.RFC3339), accepted.GivenUp)
			return nil
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", reasonFlag)
	a.jsonFlag(cmd)
	return cmd
}

// clocks holds the clocks' times and what follows for each policy.
type clocks struct {
	Server   time.Time     `json:"server"`
	Machine  time.Time     `json:"machine"`
	Apart    bool          `json:"apart,omitempty"` // by more than an executor on this machine allows
	Accepted *time.Time    `json:"accepted,omitempty"`
	Policies []policyClock `json:"policies"`
}

// policyClock is the clock check of one policy.
type policyClock struct {
	Policy     schemas.PolicyName `json:"policy"`
	LastCutoff *time.Time         `json:"last_cutoff,omitempty"` // since the clock was last accepted
	Measure    time.Time          `json:"measure"`               // what the next cutoff is compared with
	Reach      string             `json:"-"`                     // how far after Measure the next cutoff may be, as text
	Seconds    float64            `json:"reach_seconds"`
	Refused    string             `json:"refused,omitempty"` // "behind" or "ahead"
}

func (a *app) showClock(ctx context.Context) error {
	owner, _, err := a.openOwner(ctx, "lapse clock")
	if err != nil {
		return err
	}
	defer database.Close(owner.Conn)
	c, err := readClocks(ctx, owner.Conn)
	if err != nil {
		return err
	}
	if a.asJSON {
		err = a.printJSON(c)
	} else {
		err = a.printClocks(c)
	}
	if err == nil && c.refused() {
		err = errNeedsPerson
	}
	return err
}

func readClocks(ctx context.Context, conn *pgx.Conn) (*clocks, error) {
	c := &clocks{}
	before := time.Now()
	err := conn.QueryRow(ctx, `
		select clock_timestamp(), (select c.accepted from lapse.clock c order by c.id desc limit 1)`).Scan(&c.Server, &c.Accepted)
	if err != nil {
		return nil, fmt.Errorf("read the server's clock: %w", err)
	}
	c.Machine = time.Now()
	// The server read its clock between before and c.Machine.
	c.Apart = c.Server.After(c.Machine.Add(run.MaxClockSkew)) || c.Server.Before(before.Add(-run.MaxClockSkew))
	rows, err := conn.Query(ctx, `
		select g.name,
		       (select max(r.cutoff) from lapse.run r
		         where r.policy_id = g.policy_id
		           and r.number > coalesce((select c.after_run from lapse.clock c order by c.id desc limit 1), 0)),
		       m.last, m.reach::text, extract(epoch from m.reach)::float8,
		       case when $1::timestamptz < m.last then 'behind' when $1::timestamptz > m.last + m.reach then 'ahead' else '' end
		  from lapse.gate g
		 cross join lateral lapse.measure(g.policy_id) m
		 where g.state <> 'dropped'
		 order by g.name`, c.Server)
	if err != nil {
		return nil, fmt.Errorf("read the last cutoffs: %w", err)
	}
	if c.Policies, err = pgx.CollectRows(rows, pgx.RowToStructByPos[policyClock]); err != nil {
		return nil, fmt.Errorf("read the last cutoffs: %w", err)
	}
	return c, nil
}

// refused reports whether the clock check would refuse the next run of a policy.
func (c *clocks) refused() bool {
	for _, p := range c.Policies {
		if p.Refused != "" {
			return true
		}
	}
	return c.Apart
}

func (a *app) printClocks(c *clocks) error {
	fmt.Fprintf(a.out, "server        %s\nthis machine  %s\n", c.Server.UTC().Format(time.RFC3339Nano), c.Machine.UTC().Format(time.RFC3339Nano))
	if c.Apart {
		fmt.Fprintf(a.out, "they are more than %s apart: an executor on this machine refuses to begin a run\n", run.MaxClockSkew)
	}
	if c.Accepted != nil {
		fmt.Fprintf(a.out, "accepted      %s\n", c.Accepted.UTC().Format(time.RFC3339))
	}
	if len(c.Policies) == 0 {
		return nil
	}
	t, notes := newTable("POLICY…", "LAST CUTOFF", "COMPARED WITH", "NEXT RUN"), ""
	for _, p := range c.Policies {
		last, verdict := "-", "allowed"
		if p.LastCutoff != nil {
			last = p.LastCutoff.UTC().Format(time.RFC3339)
		}
		switch p.Refused {
		case "behind":
			verdict = "refused"
			notes += fmt.Sprintf("%s: the server's clock is before the time that it is compared with\n", p.Policy)
		case "ahead":
			verdict = "refused"
			notes += fmt.Sprintf("%s: the server's clock is more than %s after the time that it is compared with\n", p.Policy, p.Reach)
		}
		t.row(p.Policy, last, p.Measure.UTC().Format(time.RFC3339), verdict)
	}
	if err := a.printTable(t); err != nil {
		return err
	}
	_, err := fmt.Fprint(a.out, notes)
	return err
}

// acceptance is the result of `lapse clock accept`.
type acceptance struct {
	At      time.Time `json:"accepted"`
	GivenUp int64     `json:"shards_given_up"`
}

// acceptClock records that the clock is right. No run can start while it does so.
func (a *app) acceptClock(ctx context.Context, reason string) (*acceptance, error) {
	owner, _, err := a.openOwner(ctx, "lapse clock")
	if err != nil {
		return nil, err
	}
	defer database.Close(owner.Conn)
	var done acceptance
	err = owner.Locked(ctx, "accept the clock", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `lock table lapse.run in share row exclusive mode`); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `
			insert into lapse.clock (after_run, reason) select coalesce(max(r.number), 0), $1 from lapse.run r
			returning accepted`, reason).Scan(&done.At)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, `select lapse.remove_shards(array(select s.id from lapse.shard s where not s.done and s.cutoff > $1))`, done.At).Scan(&done.GivenUp)
	})
	if err != nil {
		return nil, fmt.Errorf("accept the clock: %w", err)
	}
	return &done, nil
}
