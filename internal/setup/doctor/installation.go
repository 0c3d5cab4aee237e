package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lapse/internal/setup/holds"
	"lapse/internal/setup/site"
	"lapse/planner/record"
	"lapse/replication"
	"lapse/schemas"
)

// checkCatalog calls nothing in the schema before it knows that it is Lapse's.
func (e *examination) checkCatalog(ctx context.Context) ([]Finding, error) {
	if !e.roles {
		missing, err := e.list(ctx, `
			select quote_ident(w) from unnest($1::text[]) w
			 where exists (select from pg_namespace n where n.nspname = 'lapse') and not exists (select from pg_roles r where r.rolname = w)
			 order by w`, []string{e.Roles.Owner, e.Roles.Executor, e.Roles.Auditor})
		if err != nil {
			return nil, err
		}
		if len(missing) > 0 {
			return advise(Fail, "run lapse init: it makes them again; a restore into another cluster needs its roles first (pg_dumpall --roles-only)",
				"the schema exists, but these roles do not: %s", strings.Join(missing, ", ")), nil
		}
		return ok("not installed yet: lapse init does it"), nil
	}
	installed, err := site.ReadInstallation(ctx, e.Conn, e.Roles)
	var foreign *site.SchemaError
	var changed *site.FunctionError
	switch {
	case errors.Is(err, site.ErrNotInstalled):
		return ok("not installed yet: lapse init does it"), nil
	case errors.As(err, &foreign):
		return advise(Fail, "", "%s", foreign), nil
	case errors.As(err, &changed):
		return advise(Fail, "", "%s", changed), nil
	case err != nil:
		return nil, err
	}
	if why, remedy := schemas.OtherVersion(installed.SchemaVersion); why != "" {
		return advise(Fail, remedy, "%s", why), nil
	}
	policies, err := record.LoadInForce(ctx, e.Conn)
	if err != nil {
		return nil, err
	}
	e.installed, e.policies = installed, policies
	return ok("version %d, owned by %s, %d policies in force", installed.SchemaVersion, e.Roles.Owner, len(policies)), nil
}

func (e *examination) audited() bool { return e.installed != nil && e.installed.AuditRequired }

func (e *examination) checkSlot(ctx context.Context) ([]Finding, error) {
	switch {
	case e.installed == nil:
		return nil, nil
	case !e.audited():
		return advise(Warn, "set audit: required and run lapse init", "audit is off: deletions leave no evidence"), nil
	}
	s, err := replication.ReadSlot(ctx, e.Conn, e.installed.Slot)
	if err != nil {
		return nil, err
	}
	if err := replication.CheckSlot(s, e.database); err != nil {
		return advise(Fail, "", "%s", err), nil
	}
	switch {
	case !s.Active:
		return advise(Warn, "start lapse serve or lapse audit", "slot %s is there and nobody reads from it: %d MB of the log wait, and nothing is deleted",
			s.Name, s.Held()>>20), nil
	case s.WALStatus != "reserved":
		return advise(Warn, "see why the auditor is behind: lapse audit, Kafka, long transactions", "slot %s is %s: %d MB of the log wait, and the server may drop the slot",
			s.Name, s.WALStatus, s.Held()>>20), nil
	}
	return ok("%s is read from, %d MB behind", s.Name, s.Behind()>>20), nil
}

func (e *examination) checkPublications(ctx context.Context) ([]Finding, error) {
	if !e.audited() {
		return nil, nil
	}
	var fault string
	if err := e.Conn.QueryRow(ctx, `select coalesce(lapse.publications_fault(), '')`).Scan(&fault); err != nil {
		return nil, err
	}
	if fault != "" {
		return advise(Fail, "find out who did it, then run lapse init and lapse apply: they fix it and record that it was wrong", "%s", fault), nil
	}
	return ok("as Lapse left them"), nil
}

// checkCopy compares what the evidence says about this database with the database. A copy of the whole server can only be judged with the
// log: `lapse history`.
func (e *examination) checkCopy(ctx context.Context) ([]Finding, error) {
	if e.installed == nil {
		return nil, nil
	}
	var otherServer, otherDatabase bool
	var name string
	err := e.Conn.QueryRow(ctx, `
		select (select h.system_identifier from lapse.history h order by h.number desc limit 1) <> lapse.system_identifier(),
		       coalesce((select b.database_oid from lapse.heartbeat b order by b.id desc limit 1) <> d.oid, false),
		       coalesce((select s.database::text from pg_replication_slots s where s.slot_name = $1 and s.database <> d.datname), '')
		  from pg_database d where d.datname = current_database()`, e.installed.Slot).Scan(&otherServer, &otherDatabase, &name)
	if err != nil {
		return nil, err
	}
	switch {
	case otherServer:
		return advise(Fail, "run lapse history to compare log and database, lapse history accept to go on; in a copy, lapse uninstall",
			"schema lapse was installed on another server: this is a dump or a copy of it"), nil
	case otherDatabase || name != "":
		return advise(Fail, "lapse uninstall in the copy, or lapse init with a slot of its own",
			"this database is a copy of %s: its policies belong to the original, and nothing is deleted here", cmp.Or(name, "another one of this cluster")), nil
	}
	return ok("this is the database that Lapse was installed in"), nil
}

func (e *examination) checkPaused(ctx context.Context) ([]Finding, error) {
	if e.installed == nil {
		return nil, nil
	}
	said, err := e.list(ctx, `
		select format('by %s at %s: %s', h.by, date_trunc('second', h.at), h.reason)
		  from (select * from lapse.halt h order by h.id desc limit 1) h where h.halted`)
	if err != nil {
		return nil, err
	}
	if len(said) > 0 {
		return advise(Warn, "lapse resume --all", "every deletion is paused, %s", said[0]), nil
	}
	var stuck []string
	for i := range e.policies {
		p := &e.policies[i]
		trouble := p.Trouble
		if outdated := p.Outdated(); outdated != nil && trouble == "" {
			trouble = outdated.Error()
		}
		if trouble != "" {
			stuck = append(stuck, fmt.Sprintf("%s: %s", p.Name, trouble))
		}
	}
	if len(stuck) > 0 {
		return advise(Fail, "apply the policies again, with the right table", "%s", strings.Join(stuck, "; ")), nil
	}
	return ok("deletions are not paused"), nil
}

// checkHolds counts the legal holds. The only fault is a hold whose placing was not finished: batches that have not seen it may still run.
func (e *examination) checkHolds(ctx context.Context) ([]Finding, error) {
	if e.installed == nil {
		return nil, nil
	}
	all, err := holds.Read(ctx, e.Conn, false)
	if err != nil || len(all) == 0 {
		return ok("none in force"), err
	}
	oldest, requested := all[0].PlacedAt, 0
	for i := range all {
		if all[i].PlacedAt.Before(oldest) {
			oldest = all[i].PlacedAt
		}
		if all[i].State == "requested" {
			requested++
		}
	}
	faults, err := holds.ReadFaults(ctx, e.Conn)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		var found []Finding
		for _, fault := range faults {
			found = append(found, advise(Fail, "policies stop until that is done: lapse hold list says which", "%s", fault)...)
		}
		return found, nil
	}
	text := fmt.Sprintf("%d in force, the oldest since %s", len(all), oldest.UTC().Format(time.RFC3339))
	if requested > 0 {
		return advise(Warn, "run lapse hold list: it waits for that", "%s; %d are requested, and a batch that did not see them may still run", text, requested), nil
	}
	return ok("%s", text), nil
}
