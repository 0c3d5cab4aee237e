package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/site"
	"lapse/planner/record"
	"lapse/replication"
	"lapse/schemas"
)

// publications makes missing publications. A slot cannot be read past the time when one of them was missing, so it is first removed from the record.
func (w *installing) publications(ctx context.Context) error {
	conn := w.owner.Conn
	if err := w.checkPublicationOwners(ctx); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `select lapse.begin_publications()`); err != nil {
		return fmt.Errorf("check the publications: %w", err)
	}
	var there []string
	if err := conn.QueryRow(ctx, `select coalesce(array_agg(pubname::text), '{}') from pg_publication`).Scan(&there); err != nil {
		return fmt.Errorf("look for publications: %w", err)
	}
	missing := slices.DeleteFunc(replication.Publications(), func(name string) bool { return slices.Contains(there, name) })
	if len(missing) > 0 {
		if err := w.forgetSlot(ctx, missing); err != nil {
			return err
		}
	}
	if err := replication.EnsurePublications(ctx, conn); err != nil {
		return err
	}
	if len(missing) > 0 {
		w.did("publications", "%s", list(missing))
	}
	return nil
}

// checkPublicationOwners refuses publications of Lapse's names that the catalog's owner may not change: a dump that is restored without owners
// brings such. They stay as they are, because init cannot know whose they are.
func (w *installing) checkPublicationOwners(ctx context.Context) error {
	var foreign, sql []string
	rows, _ := w.owner.Conn.Query(ctx, `
		select format('%I of %I', p.pubname, r.rolname), format('alter publication %I owner to %s', p.pubname, $2::text)
		  from pg_publication p
		  join pg_roles r on r.oid = p.pubowner
		 where p.pubname = any ($1) and not pg_has_role(p.pubowner, 'usage')
		 order by p.pubname`, replication.Publications(), schemas.Identifier(w.Roles.Owner)) // ForEachRow has its error
	var whose, give string
	_, err := pgx.ForEachRow(rows, []any{&whose, &give}, func() error {
		foreign, sql = append(foreign, whose), append(sql, give)
		return nil
	})
	if err != nil {
		return fmt.Errorf("ask who owns the publications: %w", err)
	}
	if len(foreign) == 0 {
		return nil
	}
	return fmt.Errorf("there are publications of Lapse's names that %s may not change: %s: have a superuser run this, or drop them if nothing reads them, and run lapse init again:\n\n%s;",
		schemas.Identifier(w.Roles.Owner), list(foreign), strings.Join(sql, ";\n"))
}

// ledger publishes the tables of evidence, and of what is in force, if they are not published.
func (w *installing) ledger(ctx context.Context) error {
	made := slices.ContainsFunc(w.result.Done, func(m Made) bool { return m.What == "publications" })
	members, err := replication.Members(ctx, w.owner.Conn)
	if err == nil {
		err = w.publish(ctx, members, made, replication.Ledger, schemas.LedgerTables(), replication.JoinLedger)
	}
	if err == nil {
		err = w.publish(ctx, members, made, replication.Catalog, schemas.CatalogTables(), replication.JoinCatalog)
	}
	return err
}

// publish publishes tables of schema lapse that are not among members. It reports that, unless the publications were made just before.
func (w *installing) publish(
	ctx context.Context, members []replication.Member, made bool, in replication.Publication, tables []string, join func(context.Context, pgx.Tx, uint32) error,
) error {
	missing := slices.DeleteFunc(tables, func(table string) bool {
		return slices.ContainsFunc(members, func(m replication.Member) bool {
			return m.Publication == in && m.Schema == schemas.LedgerSchema && m.Name == table
		})
	})
	if len(missing) == 0 {
		return nil
	}
	err := w.owner.Locked(ctx, "publish the tables of "+string(in), func(tx pgx.Tx) error {
		oids := make([]uint32, len(missing))
		for k, table := range missing {
			if err := tx.QueryRow(ctx, `select $1::text::regclass::oid`, schemas.Identifier(schemas.LedgerSchema, table)).Scan(&oids[k]); err != nil {
				return fmt.Errorf("find table %s: %w", table, err)
			}
			if err := join(ctx, tx, oids[k]); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `select lapse.record_published($1)`, oids)
		return err
	})
	if err == nil && !made {
		w.did("publications", "%s: %s", in, list(missing))
	}
	return err
}

// tables publishes the tables of policies in force: if the audit was off until now, they are in no publication yet. It reads what is published once.
func (w *installing) tables(ctx context.Context) error {
	conn := w.owner.Conn
	policies, err := record.LoadInForce(ctx, conn)
	if err != nil || len(policies) == 0 {
		return err
	}
	members, err := replication.Members(ctx, conn)
	if err != nil {
		return err
	}
	joined, updates := map[uint32]bool{}, site.Updated{}
	for k := range policies {
		updates[policies[k].TableOID] = updates[policies[k].TableOID] || policies[k].PublishesChanges()
	}
	for k := range policies {
		p := &policies[k]
		tables, err := site.Reached(ctx, conn, p.TableOID, p.Definition.Soft != nil)
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(updates.NotPublished(members, tables), func(oid uint32) bool { return joined[oid] })
		if len(missing) == 0 {
			continue
		}
		err = w.owner.Locked(ctx, "publish the tables of policy "+string(p.Name), func(tx pgx.Tx) error {
			return w.owner.Publish(ctx, tx, missing, updates)
		})
		if err != nil {
			return err
		}
		for _, oid := range missing {
			joined[oid] = true
		}
		w.did("publications", "the tables of policy %s", p.Name)
	}
	return nil
}

// record records what is published, once all of it is right; until then batches are refused. Only a person may remove a row filter or a
// column list, with which rows or keys would be missing from the evidence.
func (w *installing) record(ctx context.Context) error {
	var differed bool
	var trouble string
	err := pgx.BeginFunc(ctx, w.owner.Conn, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			select exists (select from lapse.publication) and lapse.publications_fault() is not null, coalesce(lapse.record_publications(), '')`).
			Scan(&differed, &trouble)
	})
	switch {
	case err != nil:
		return fmt.Errorf("record what is published: %w", err)
	case trouble != "":
		return fmt.Errorf("%s: somebody else made it so: find out who and why, take it out (alter publication … drop …), and run lapse init again", trouble)
	case differed:
		w.did("publications", "recorded as they are; somebody else had changed them")
	}
	return nil
}

func list[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = string(one)
	}
	return strings.Join(texts, ", ")
}
