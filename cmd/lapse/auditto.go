package main

import (
	"context"
	"fmt"

	"lapse/audit"
	"lapse/internal/config"
)

// copyEvents writes events from a copy of the slot to a file or to standard output.
func (a *app) copyEvents(ctx context.Context, s *config.Settings, to string, once bool) (err error) {
	if to == "-" && a.asJSON {
		return wrongUsage("--json and --to - exclude each other: --to - prints events, which are JSON already")
	}
	login, err := a.auditorLogin(ctx, s, once)
	if err != nil {
		return err
	}
	c, err := a.slotConfig(s, login.AfterConnect)
	if err != nil {
		return err
	}
	c.Database, c.Once = audit.NewDatabase(login), once
	defer c.Database.Close()
	auditor, err := audit.New(c)
	if err != nil {
		return invalid(err)
	}
	file := audit.NewEventStream("standard output", a.raw())
	if to != "-" {
		if file, err = audit.OpenEventFile(to); err != nil {
			return invalid(fmt.Errorf("open the file for events: %w", err))
		}
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	copied, err := auditor.Copy(ctx, file)
	a.log.Info("events copied", "to", to, "events", copied.Events, "from", copied.From.String(), "reached", copied.Reached.String())
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case to == "-":
		return nil
	case a.asJSON:
		from := copied.From.String()
		return a.printJSON(auditedTo{&from, copied.Reached.String(), &copied.Events})
	}
	_, err = fmt.Fprintf(a.out, "everything from %s up to %s is in %s: %s more\n", copied.From, copied.Reached, to, counted(copied.Events, "event"))
	return err
}
