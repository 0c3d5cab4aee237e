package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"lapse/internal/importer"
	"lapse/planner/database"
	"lapse/planner/policyfile"
)

func (a *app) importCommand() *cobra.Command {
	c := importing{app: a}
	cmd := &cobra.Command{
		Use:   "import --from SYSTEM [-f FILE]",
		Short: "Make a policy file of what deletes rows elsewhere",
		Long: `Reads what another system has for rows to expire, and prints a policy file. SYSTEM is one of: ` + strings.Join(importer.Names(), ", ") + `.

Without -f it reads the catalog of --database, where the system is an extension of PostgreSQL. With -f it reads a file, or - for standard
input: calls of cron.schedule, DDL, or JSON (of jobs: select json_agg(j) from cron.job j).

What a policy cannot say is a comment in its place, with the reason: read the file before you apply it. No policy deletes a row sooner than
the job that it is made of. Each policy observes: lapse plan -f FILE shows what it would delete. Jobs go on until you unschedule them.

The statements of pg_cron's jobs are parsed by PostgreSQL and never run, so -f needs a database that has their tables too; a throw-away
server with the DDL will do. A superuser's login sees the jobs of all roles.

Exit codes: 0 everything was carried over; 3 something was not, or not in the same way.`,
		Example: `  lapse import --from pg_cron --database postgres://postgres@127.0.0.1/app -o jobs.yaml
  lapse import --from pg_cron -f jobs.json --database postgres://postgres@127.0.0.1/app
  lapse plan -f jobs.yaml --database postgres://postgres@127.0.0.1/app`,
		Args: needsFlag("--from"),
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) })
	flags := cmd.Flags()
	flags.StringVar(&c.from, "from", "", "the `system` that is imported from")
	flags.StringVarP(&c.file, "file", "f", "", "read this `file`, or - for standard input, and not the catalog")
	flags.StringVarP(&c.out, "output", "o", "", "write the policies into this `file`")
	flags.BoolVar(&c.force, "force", false, "replace the file that -o names")
	a.jsonFlag(cmd)
	_ = cmd.MarkFlagFilename("file") // fails if the command lacks the flag
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(importer.Names(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// importing is one import.
type importing struct {
	*app
	from, file, out string
	force           bool
}

// imported is the result of `lapse import`.
type imported struct {
	From     string `json:"from"`
	File     string `json:"file"` // the written file, or "" for none
	Policies int    `json:"policies"`
	Found    int    `json:"found"` // the things that delete rows there
	Lost     int    `json:"lost"`  // those that were not carried over, or not with the same effect
	Text     string `json:"text"`  // the policy file
}

// longestImport is larger than any real DDL.
const longestImport = 64 << 20

func (c *importing) run(ctx context.Context) error {
	source, there := importer.Find(c.from)
	switch {
	case !there:
		return wrongUsage("--from is one of %s", strings.Join(importer.Names(), ", "))
	case c.file == "" && source.Catalog == nil:
		return wrongUsage("%s is not in PostgreSQL: give its DDL or JSON with -f FILE", source.Name)
	case c.force && c.out == "":
		return wrongUsage("--force needs -o FILE")
	}
	if err := c.mayWrite(); err != nil {
		return err
	}
	items, err := c.items(ctx, source)
	if err != nil {
		return err
	}
	f := importer.Text(source.Name, items)
	if _, err := policyfile.Parse("", f.Text); err != nil {
		return fmt.Errorf("read the policies that were imported: %w", err)
	}
	if err := c.write(f.Text); err != nil {
		return err
	}
	switch {
	case c.asJSON:
		err = c.printJSON(imported{source.Name, c.out, f.Policies, f.Found, f.Lost, string(f.Text)})
	case c.out == "":
		_, err = c.raw().Write(f.Text)
		fmt.Fprintln(c.err, f.Summary())
	default:
		_, err = fmt.Fprintf(c.app.out, "%s: %s\n", c.out, f.Summary())
	}
	if f.Lost > 0 {
		err = errors.Join(err, errNeedsPerson)
	}
	return err
}

// items reads what to import, from the file or from the catalog.
func (c *importing) items(ctx context.Context, source importer.Source) (items []importer.Item, err error) {
	text := ""
	if c.file != "" {
		if text, err = c.read(); err != nil {
			return nil, invalid(err)
		}
	}
	var server *importer.Server
	if c.file == "" || source.Parses {
		s, err := c.settings()
		if err != nil {
			return nil, err
		}
		conn, err := c.open(ctx, s, session{command: "lapse import", to: s.Database.Owner, superuser: true, with: importer.Timeouts()})
		if err != nil && c.file != "" {
			return nil, fmt.Errorf("PostgreSQL parses what jobs run, and needs their tables: name a database that has them, or a throw-away one with the DDL: %w", err)
		}
		if err != nil {
			return nil, err
		}
		defer database.Close(conn)
		if server, err = importer.NewServer(ctx, conn); err != nil {
			return nil, err
		}
	}
	if c.file == "" {
		return source.Catalog(ctx, server)
	}
	items, err = source.Text(ctx, server, text)
	return items, invalid(err)
}

func (c *importing) read() (string, error) {
	in := c.in
	if c.file != standardInput {
		file, err := os.Open(c.file)
		if err != nil {
			return "", err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	body, err := io.ReadAll(io.LimitReader(in, longestImport+1))
	if len(body) > longestImport {
		return "", fmt.Errorf("%s is longer than %d bytes", c.file, longestImport)
	}
	return strings.TrimPrefix(string(body), "\ufeff"), err
}

// mayWrite refuses to replace a file, before the command asks anything.
func (c *importing) mayWrite() error {
	if _, err := os.Lstat(c.out); c.out != "" && err == nil && !c.force {
		return wrongUsage("%s is there already: name another file, or replace it with --force", c.out)
	}
	return nil
}

// write creates the file. It does not replace one that appeared meanwhile.
func (c *importing) write(text []byte) error {
	if c.out == "" {
		return nil
	}
	how := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if c.force {
		how = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	file, err := os.OpenFile(c.out, how, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return wrongUsage("%s is there already: name another file, or replace it with --force", c.out)
	}
	if err != nil {
		return fmt.Errorf("write the policies: %w", err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the policies: %w", err)
	}
	return nil
}
