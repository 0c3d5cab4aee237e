package doctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
	"lapse/planner/database"
	"lapse/planner/index"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/planner/survey"
	"lapse/replication"
)

// tables are the checks of each policy in force and its table, and of what they have in common.
func (e *examination) tables() []check {
	var all []check
	seen := map[string]bool{} // two policies may reach one child
	for i := range e.policies {
		if p := &e.policies[i]; p.Trouble == "" {
			all = append(all, check{"policy " + string(p.Name), func(ctx context.Context) ([]Finding, error) {
				found, err := e.checkPolicy(ctx, p)
				found = slices.DeleteFunc(found, func(f Finding) bool {
					known := f.Grade != OK && seen[f.Text]
					seen[f.Text] = true
					return known
				})
				return found, err
			}})
		}
	}
	return append(all, check{"due rows that stay", e.checkStays}, check{"executors", e.checkExecutors})
}

func (e *examination) checkPolicy(ctx context.Context, p *record.InForce) ([]Finding, error) {
	i, err := run.Inspect(ctx, e.Conn, p)
	if err != nil {
		return nil, err
	}
	if len(i.Changed) > 0 {
		found := advise(Fail, "apply the policy again: lapse apply says what no longer fits",
			"%s: not the column that the policy was applied to (dropped, recreated, renamed, of another type, or of a type whose meaning changed): deletions are refused",
			strings.Join(i.Changed, ", "))
		// The index that is the replica identity goes with its column, and then the application's own deletes fail.
		i.Published = []database.Relation{{OID: p.TableOID, Name: p.TableName}}
		lost, err := e.identitiesFound(ctx, p, i)
		return append(found, lost...), err
	}
	found := append(intrudersFound(i.Intruders), indexesFound(i)...)
	for _, find := range []func(context.Context, *record.InForce, *run.Inspection) ([]Finding, error){
		e.identitiesFound, e.deleterFound, e.movesFound,
	} {
		more, err := find(ctx, p, i)
		if err != nil {
			return found, err
		}
		found = append(found, more...)
	}
	for _, u := range i.Unlogged {
		found = append(found, one(Fail, []string{"alter table " + u.Name + " set logged"}, "%s is unlogged: its deletes are not in the log", u.Name)...)
	}
	for _, b := range i.Blocking {
		found = append(found, advise(Warn, fmt.Sprintf("use on delete cascade or set null, if that is what you want: alter table %s drop constraint %s, add foreign key …", b.Child, b.Constraint),
			"foreign key %s of %s has no delete action: a row of %s that it refers to cannot be deleted, and waits in quarantine", b.Constraint, b.Child, b.Refers)...)
	}
	for _, k := range i.Set {
		found = append(found, one(Fail, []string{fmt.Sprintf("alter table %s drop constraint %s", k.Child, k.Constraint)},
			"foreign key %s of %s uses the column that the policy sets: rows are not set", k.Constraint, k.Child)...)
	}
	local := survey.LocalTimeOf(p.Definition.Expire, e.Now())
	if local != nil {
		found = append(found, ok("%s: %s", p.TableName, local)...)
	}
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Grade != OK }) {
		return append(ok("%s, version %d, %s: %s fits", p.Name, p.Version, p.State, p.TableName), found...), nil
	}
	return found, nil
}

func intrudersFound(intruders []run.Intruder) (found []Finding) {
	for _, i := range intruders {
		switch i.Kind {
		case "trigger", "rule":
			f := one(Fail, []string{fmt.Sprintf("alter table %s disable %s %s", i.Relation, i.Kind, i.Name)},
				"%s %s on %s would run inside deletions, which are refused", i.Kind, i.Name, i.Relation)
			f[0].Advice = "or drop it; or, if it only writes elsewhere, triggers: trusted in the policy"
			found = append(found, f...)
		case "foreign key":
			found = append(found, advise(Fail, "change it to on delete cascade or no action",
				"foreign key %s of %s would move rows to another partition, and deletions are refused", i.Name, i.Relation)...)
		default:
			found = append(found, advise(Fail, "have a superuser own it, or drop what uses it",
				"function %s, used by %s or its indexes, would run inside deletions, which are refused", i.Name, i.Relation)...)
		}
	}
	return found
}

func indexesFound(i *run.Inspection) (found []Finding) {
	add := func(grade Grade, a index.Advice) {
		var fix []string
		for _, s := range a.Steps {
			fix = append(fix, s.SQL)
		}
		found = append(found, one(grade, fix, "%s", a.Problem)...)
	}
	if i.Index != nil {
		add(Warn, *i.Index)
	}
	if i.Stale != nil {
		add(Warn, *i.Stale)
	}
	if i.Unhelped != "" {
		found = append(found, one(Warn, nil, "%s", i.Unhelped)...)
	}
	for _, child := range i.Children {
		add(Warn, child)
	}
	return found
}

// template is the placeholder in a fix for something that only a person knows.
var template = regexp.MustCompile(`\b(COLUMNS|INDEX|CHILD|PARENT)\b`)

// identitiesFound asks what is published for the policy as `lapse apply` does.
func (e *examination) identitiesFound(ctx context.Context, p *record.InForce, i *run.Inspection) (found []Finding, err error) {
	check := replication.CheckIdentities
	if !e.audited() {
		check = replication.CheckDeletes
	}
	tables := make([]uint32, len(i.Published))
	for n, r := range i.Published {
		tables[n] = r.OID
	}
	problems, err := check(ctx, e.Conn, tables)
	if err != nil {
		return nil, err
	}
	for _, table := range tables {
		identity := problems[table]
		switch {
		case identity == nil:
		case identity.Theirs:
			found = append(found, Finding{Grade: Fail, Text: identity.Error()})
		case strings.Contains(identity.Error(), "unlogged") && slices.ContainsFunc(i.Unlogged, func(u database.Relation) bool { return u.Name == identity.Table }):
		case template.MatchString(identity.Fix) || !strings.HasPrefix(identity.Fix, "alter table "):
			f := Finding{Grade: Fail, Text: fmt.Sprintf("the deletes of %s cannot be published: %s", identity.Table, identity.Reason), Advice: identity.Fix}
			if !template.MatchString(identity.Fix) { // a publication or an index is to be mended, and no other identity helps
				found = append(found, f)
				continue
			}
			if f.Fix, err = e.uniqueIndex(ctx, identity.Table); err != nil {
				return found, err
			}
			found = append(found, f)
		default:
			found = append(found, one(Fail, []string{identity.Fix}, "the deletes of %s cannot be published: %s", identity.Table, identity.Reason)...)
		}
	}
	if !e.audited() || len(found) > 0 || len(i.Unlogged) > 0 {
		return found, nil // they are among what is unseen
	}
	return e.unseenFound(ctx, p, i)
}

// unseenFound asks, as each batch does, whether the audit would see what it deletes.
func (e *examination) unseenFound(ctx context.Context, p *record.InForce, i *run.Inspection) (found []Finding, err error) {
	var oids []uint32
	for _, l := range i.Leaves {
		oids = append(oids, l.OID)
	}
	unseen, err := e.list(ctx, `
		select format('%I.%I', n.nspname, c.relname)
		  from lapse.unseen($1, $2) u join pg_class c on c.oid = u.relation join pg_namespace n on n.oid = c.relnamespace
		 order by 1`, oids, p.Definition.Soft != nil)
	for _, name := range unseen {
		found = append(found, advise(Fail, "run lapse apply: it publishes the missing table", "%s is not published, and deletions that reach it are refused", name)...)
	}
	return found, err
}

// movesFound asks whether the auditor can tell rows that move from deletions, where the policy wants it to.
func (e *examination) movesFound(ctx context.Context, p *record.InForce, _ *run.Inspection) (found []Finding, err error) {
	if !e.audited() || !p.DetectsMoves() {
		return nil, nil
	}
	members, err := replication.Members(ctx, e.Conn)
	if err == nil && !(site.Updated{p.TableOID: true}).IsMember(members, p.TableOID) {
		found = advise(Warn, "run lapse apply", "moves: detect: inserts of %s are not published, and rows that move to another partition are reported as deletions", p.TableName)
	}
	return found, err
}

// uniqueIndex is the statement that makes an index that is there the replica identity of a table, none where no index will do.
func (e *examination) uniqueIndex(ctx context.Context, table string) ([]string, error) {
	return e.list(ctx, `
		select format('alter table %s replica identity using index %I', $1::text, x.relname)
		  from pg_index i
		  join pg_class c on c.oid = i.indrelid
		  join pg_class x on x.oid = i.indexrelid
		 where c.oid = to_regclass($1) and c.relkind = 'r' and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null
		   and 0 <> all (i.indkey::int2[])
		   and not exists (select from pg_attribute a where a.attrelid = c.oid and a.attnum = any (i.indkey::int2[])
		                                                and (not a.attnotnull or a.attgenerated <> ''))
		 order by i.indnkeyatts, x.relname
		 limit 1`, table)
}

// deleterFound asks for the role that deletes for the table's owner as `lapse apply` does.
func (e *examination) deleterFound(ctx context.Context, p *record.InForce, i *run.Inspection) (found []Finding, err error) {
	t := access.Table{OID: p.TableOID, Name: p.TableName, Column: p.Definition.LockColumn()}
	for _, l := range i.Leaves {
		t.Leaves = append(t.Leaves, access.Relation(l))
	}
	err = pgx.BeginFunc(ctx, e.Conn, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `select o.rolname::text, o.oid from pg_class c join pg_roles o on o.oid = c.relowner where c.oid = $1`, t.OID).Scan(&t.Owner, &t.OwnerOID)
		if err != nil {
			return err
		}
		if owner := p.Definition.TableOwner; owner != t.OwnerOID {
			found = advise(Fail, "apply the policy again", "%s belongs to %s, but belonged to another role when the policy was applied", t.Name, t.Owner)
			return nil
		}
		faults, err := access.DeleterFaults(ctx, tx, t, e.Roles)
		for _, fault := range faults {
			var grant *access.GrantError
			var circle *access.CircleError
			switch {
			case errors.As(fault, &grant):
				found = append(found, one(Fail, []string{grant.SQL}, "%s", grant.Why)...)
			case errors.As(fault, &circle):
				found = append(found, advise(Fail, "", "%s", fault)...)
			default:
				found = append(found, advise(Fail, "run lapse apply", "%s", fault)...)
			}
		}
		return err
	})
	return found, err
}
