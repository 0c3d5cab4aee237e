-- What Lapse published, by row versions of the system catalog: any change makes another row version, even if it is reverted.

create table lapse.publication (
  name             name primary key,
  oid              oid not null,
  publication_xmin xid not null
);
comment on table lapse.publication is 'The publications as Lapse left them. Written by record_publications.';
comment on column lapse.publication.name is 'Name of the publication.';
comment on column lapse.publication.oid is 'The publication.';
comment on column lapse.publication.publication_xmin is 'Row version of pg_publication: any change to it makes another.';

create table lapse.published (
  relation    oid not null,
  publication name not null,
  member      oid not null,
  member_xmin xid not null,
  recorded_at timestamptz not null default clock_timestamp(),
  primary key (publication, relation)
);
comment on table lapse.published is 'The tables in the publications as Lapse left them. Written by record_publications and record_published.';
comment on column lapse.published.relation is 'The table.';
comment on column lapse.published.publication is 'Name of the publication.';
comment on column lapse.published.member is 'Row of pg_publication_rel.';
comment on column lapse.published.member_xmin is 'Its row version: any change to it makes another.';
comment on column lapse.published.recorded_at is 'When this was recorded.';

-- publications_trouble says what is wrong with the publications, whatever the cause; null for nothing. A wrong state is never recorded.
-- Before PostgreSQL 15, publications have no row filters, column lists or schemas; plpgsql parses a statement only when it runs it.
create function lapse.publications_trouble() returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  ours    constant name[] := array['lapse_deletes', 'lapse_changes', 'lapse_ledger', 'lapse_catalog'];
  trouble text;
begin
  select case when p.oid is null then format('publication %I is not there', w.name)
              when p.puballtables then format('publication %I is for all tables', w.name)
              when p.pubviaroot then format('publication %I publishes partitions as their root', w.name)
              else format('publication %I does not publish %s', w.name, w.publishes) end
    into trouble
    from (values (1, 'lapse_deletes'::name, 'delete, truncate', false, false, true, true),
                 (2, 'lapse_changes', 'insert, update, delete, truncate', true, true, true, true),
                 (3, 'lapse_ledger', 'insert', true, false, false, false),
                 (4, 'lapse_catalog', 'insert, update, delete, truncate', true, true, true, true)) w(n, name, publishes, i, u, d, t)
    left join pg_publication p on p.pubname = w.name
   where (p.puballtables, p.pubviaroot, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate)
         is distinct from (false, false, w.i, w.u, w.d, w.t)
   order by w.n
   limit 1;
  if trouble is not null then
    return trouble;
  end if;
  select format('publication %s %s table %s', coalesce(m.pubname, c.pubname), case when m.prrelid is null then 'lacks' else 'has' end,
                coalesce(m.prrelid, c.oid)::regclass)
    into trouble
    from (select p.pubname, r.prrelid
            from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
           where p.pubname in ('lapse_ledger', 'lapse_catalog')) m
    full join (
      select w.pubname, k.oid
        from (values ('lapse_ledger'::name, array['batch', 'batch_result', 'dropped', 'heartbeat', 'covered', 'quarantine_change', 'restated', 'snapshot']),
                     ('lapse_catalog', array['policy', 'policy_state', 'gate', 'halt', 'hold', 'hold_state', 'hold_relation'])) w(pubname, tables)
        join pg_class k on k.relname = any (w.tables)
       where k.relnamespace = (select n.oid from pg_namespace n where n.nspname = 'lapse')
    ) c on c.oid = m.prrelid and c.pubname = m.pubname
   where m.prrelid is null or c.oid is null
   order by m.prrelid nulls first, c.oid
   limit 1;
  if trouble is not null or current_setting('server_version_num')::int < 150000 then
    return trouble;
  end if;
  select format('publication %I publishes all tables of schema %s', p.pubname, s.pnnspid::regnamespace)
    into trouble
    from pg_publication_namespace s join pg_publication p on p.oid = s.pnpubid
   where p.pubname = any (ours)
   order by p.pubname, s.pnnspid
   limit 1;
  if trouble is not null then
    return trouble;
  end if;
  select format('publication %I has table %s with a %s', p.pubname, m.prrelid::regclass,
                case when m.prqual is not null then 'row filter' else 'column list' end)
    into trouble
    from pg_publication_rel m join pg_publication p on p.oid = m.prpubid
   where p.pubname = any (ours) and (m.prqual is not null or m.prattrs is not null)
   order by p.pubname, m.prrelid
   limit 1;
  return trouble;
end
$lapse$;
comment on function lapse.publications_trouble is 'What is wrong with the publications, whatever the cause; null for nothing.';

-- publications_unlogged names a table that should be published but is not in the log; null if there is none. PostgreSQL refuses unlogged
-- tables in a publication, but a partition of a published table may be unlogged, also later by its owner's change. Batches check their
-- own tables; only beats call this.
create function lapse.publications_unlogged() returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  trouble text;
begin
  if not (select i.audit_required from lapse.installation i) then
    return null;
  end if;
  select format('table %s, a partition of %s, is unlogged, so that its deletes are not in the log: alter table %1$s set logged',
                c.oid::regclass, r.relation::regclass)
    into trouble
    from pg_class c
   cross join lateral pg_partition_ancestors(c.oid) up
    join lapse.published r on r.relation = up.relid and r.publication in ('lapse_deletes', 'lapse_changes')
   where c.relpersistence = 'u' and c.relkind = 'r' and c.relispartition
   order by c.oid, r.relation
   limit 1;
  return left(trouble, 500);
end
$lapse$;
comment on function lapse.publications_unlogged is 'A published table that is not in the write-ahead log; null for none.';

-- publications_fault says how the publications differ from what Lapse left; null if they do not, or if no audit is required. The text has
-- names, no values. Each batch calls it, so it compares row versions and reads more only if they differ. A dropped table has left its
-- publication; that is no fault unless the table is one of the ledger's.
create function lapse.publications_fault() returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $lapse$
declare
  required  boolean;
  recorded  boolean;
  unchanged boolean;
  fault     text;
begin
  -- One statement: PostgreSQL takes longer to set up three than to execute them.
  select i.audit_required, exists (select from lapse.publication),
         not exists (
           select from lapse.publication r
             left join pg_publication p on p.oid = r.oid
            where p.oid is null or p.pubname <> r.name or p.xmin <> r.publication_xmin)
         and not exists (
           select from (select m.oid, m.xmin
                          from lapse.publication p join pg_publication_rel m on m.prpubid = p.oid) m
             full join lapse.published r on r.member = m.oid
            where r.member is null or r.member_xmin <> m.xmin
               or m.oid is null and (r.publication in ('lapse_ledger', 'lapse_catalog') or exists (select from pg_class c where c.oid = r.relation)))
    into required, recorded, unchanged
    from lapse.installation i;
  if not required then
    return null;
  end if;
  if recorded is not true then
    return 'the publications are not on record: run lapse init';
  end if;
  if unchanged then
    if current_setting('server_version_num')::int < 150000 then
      return null;
    elsif not exists (select from lapse.publication p join pg_publication_namespace s on s.pnpubid = p.oid) then
      return null;
    end if;
  end if;
  fault := lapse.publications_trouble();
  if fault is null then
    select case when p.oid is null then format('publication %I was dropped', r.name)
                when p.pubname <> r.name then format('publication %I was renamed to %I', r.name, p.pubname)
                else format('publication %I was changed', r.name) end
      into fault
      from lapse.publication r
      left join pg_publication p on p.oid = r.oid
     where p.oid is null or p.pubname <> r.name or p.xmin <> r.publication_xmin
     order by r.name
     limit 1;
  end if;
  if fault is null then
    select case when r.member is null then format('publication %I has table %s, which Lapse did not add', m.name, m.relation::regclass)
                when m.member is null then format('publication %I lacks table %s', r.publication, r.relation::regclass)
                else format('publication %I had table %s taken out, or changed in it, and added again', r.publication, r.relation::regclass) end
      into fault
      from (select p.name, r.prrelid as relation, r.oid as member, r.xmin as member_xmin
              from lapse.publication p join pg_publication_rel r on r.prpubid = p.oid) m
      full join lapse.published r on r.relation = m.relation and r.publication = m.name
     where r.member is null
        or m.member is null and (r.publication in ('lapse_ledger', 'lapse_catalog') or exists (select from pg_class c where c.oid = r.relation))
        or m.member <> r.member or m.member_xmin <> r.member_xmin
     order by coalesce(r.publication, m.name), coalesce(r.relation, m.relation)
     limit 1;
  end if;
  return left(coalesce(fault, 'the publications are not as they were recorded'), 500);
end
$lapse$;
comment on function lapse.publications_fault is 'How the publications differ from what Lapse left; null if they do not.';

-- begin_publications precedes a change of ours to the publications. It records changes by others, so that repairing them between two beats
-- does not hide them. Without any record there is nothing to compare with.
create function lapse.begin_publications() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  fault text := lapse.publications_fault();
begin
  if fault is not null and exists (select from lapse.publication) then
    update lapse.installation set publication_faults = publication_faults + 1, publication_fault_text = fault;
  end if;
end
$lapse$;
comment on function lapse.begin_publications is 'Called before Lapse changes what is published: records what others have changed.';

-- record_published records what the transaction has done with tables: which publication each of them is in. Other differences from the
-- record remain.
create function lapse.record_published(relations oid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  delete from lapse.published r where r.relation = any (relations);
  insert into lapse.published (relation, publication, member, member_xmin)
  select m.prrelid, p.pubname, m.oid, m.xmin
    from pg_publication_rel m
    join pg_publication p on p.oid = m.prpubid
   where m.prrelid = any (relations) and p.pubname in ('lapse_deletes', 'lapse_changes', 'lapse_ledger', 'lapse_catalog');
end
$lapse$;
comment on function lapse.record_published is 'Records in which publications tables are, after the transaction has added or removed them.';

-- record_publications records what is published, unless that is wrong. It counts differences from the former record as begin_publications
-- does. It returns what is wrong, null if nothing is.
create function lapse.record_publications() returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  trouble text := lapse.publications_trouble();
begin
  if trouble is not null then
    return trouble;
  end if;
  if lapse.publications_fault() is null and exists (select from lapse.publication) then
    return null;
  end if;
  perform lapse.begin_publications();
  delete from lapse.publication;
  insert into lapse.publication (name, oid, publication_xmin)
  select p.pubname, p.oid, p.xmin
    from pg_publication p
   where p.pubname in ('lapse_deletes', 'lapse_changes', 'lapse_ledger', 'lapse_catalog');
  delete from lapse.published;
  insert into lapse.published (relation, publication, member, member_xmin)
  select m.prrelid, p.name, m.oid, m.xmin
    from pg_publication_rel m join lapse.publication p on p.oid = m.prpubid;
  return null;
end
$lapse$;
comment on function lapse.record_publications is 'Records what is published, unless that is wrong; returns what is wrong.';
