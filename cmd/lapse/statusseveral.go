package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"lapse/internal/config"
	"lapse/internal/status"
	"lapse/planner/database"
)

// oneOf is one of several databases, with its status.
type oneOf struct {
	settings *config.Settings
	name     string
	status   *status.Status
	err      error // why there is no status
}

// errSomeUnread says that some databases could not be read.
var errSomeUnread = errors.New("not every database could be read")

// severalStatuses shows a line for each database and, below, what needs a person.
func (a *app) severalStatuses(ctx context.Context) error {
	if a.asJSON {
		return wrongUsage("--json takes one --config: run it once for each")
	}
	all, err := a.severalSettings()
	if err != nil {
		return err
	}
	var asked sync.WaitGroup
	for _, one := range all {
		asked.Go(func() { one.status, one.err = a.statusOfSettings(ctx, one.settings) })
	}
	asked.Wait()
	return a.showSeveral(all)
}

// severalSettings reads each file. It refuses settings that name one database for all files, or it would show that database several times.
func (a *app) severalSettings() ([]*oneOf, error) {
	if a.overrides.Database != "" {
		return nil, wrongUsage("--database takes one --config: it is the same database for each")
	}
	for _, name := range []string{"LAPSE_DATABASE_URL", "LAPSE_DATABASE_URL_OWNER", "LAPSE_SLOT"} {
		if value, _ := a.env(name); value != "" {
			return nil, wrongUsage("%s takes one --config: it comes before what each file says; unset it", name)
		}
	}
	files := a.configFiles
	defer func() { a.configFiles = files }()
	all := make([]*oneOf, len(files))
	for i, file := range files {
		a.configFiles = []string{file}
		s, err := a.settings()
		if err != nil {
			return nil, err
		}
		name, err := s.Database.Name()
		if err != nil {
			return nil, err
		}
		all[i] = &oneOf{settings: s, name: name}
	}
	for _, one := range all {
		for _, other := range all {
			if one != other && one.name == other.name {
				one.name = one.settings.File // two servers have a database of this name
			}
		}
	}
	return all, nil
}

// statusOfSettings opens a session as the catalog's owner and reads the status.
func (a *app) statusOfSettings(ctx context.Context, s *config.Settings) (*status.Status, error) {
	conn, _, err := a.openInstalled(ctx, s, session{command: "lapse status", to: s.Database.Owner, role: s.Roles.Owner})
	if err != nil {
		return nil, err
	}
	defer database.Close(conn)
	found, err := a.statusOf(ctx, conn, s)
	if err == nil {
		found.Witnesses, _ = a.witnessesText(ctx, s)
	}
	return found, err
}

func (a *app) showSeveral(all []*oneOf) error {
	t := newTable("DATABASE…", "ARMED", "NEED", "LAG", "EXECUTORS", "AUDIT")
	for _, one := range all {
		if one.err != nil {
			t.row(one.name, "-", "-", "-", "-", "not read")
			continue
		}
		armed, needing, lag, executors, audit := one.status.Cells()
		t.row(one.name, armed, needing, lag, executors, audit)
	}
	if err := a.printTable(t); err != nil {
		return err
	}
	var unread error
	needs := false
	for _, one := range all {
		name := onOneLine(one.name)
		if one.err != nil {
			unread = errSomeUnread
			fmt.Fprintf(a.out, "%s: %s\n", name, onOneLine(one.err.Error()))
			continue
		}
		s := one.status
		needs = needs || s.NeedsPerson()
		for _, text := range s.Whole() {
			fmt.Fprintf(a.out, "%s: %s\n", name, onOneLine(text))
		}
		if s.Audit.NeedsPerson() {
			fmt.Fprintf(a.out, "%s: audit: %s\n", name, onOneLine(s.Audit.Text(s.At)))
		}
		if len(s.Unattended) > 0 {
			fmt.Fprintf(a.out, "%s: executors: %s\n", name, onOneLine(s.ExecutorsText()))
		}
		for _, p := range s.Needing() {
			for _, note := range p.Remarks() {
				fmt.Fprintf(a.out, "%s: %s: %s\n", name, p.Policy, onOneLine(note))
			}
		}
	}
	if unread == nil && needs {
		return errNeedsPerson
	}
	return unread
}
