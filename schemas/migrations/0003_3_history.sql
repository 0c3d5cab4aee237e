-- Which history this is, and whether what Lapse published still is as Lapse left it.

-- timeline is the present one. That of pg_control_checkpoint is the last checkpoint's: after a promotion still the old one.
create function lapse.timeline() returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int;
end
$lapse$;

-- system_identifier is the cluster's, as claims and beats have it.
create function lapse.system_identifier() returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return (select (case when c.system_identifier < 0 then c.system_identifier::numeric + 18446744073709551616
                       else c.system_identifier::numeric end)::text
            from pg_control_system() c);
end
$lapse$;

-- publications_trouble says in what the publications are wrong, whoever made them so, null if in nothing. What is wrong is
-- never recorded. Before 15 there are no row filters, no column lists and no schemas in publications; plpgsql reads a
-- statement only when it comes to it.
create function lapse.publications_trouble() returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  ours    constant name[] := array['lapse_deletes', 'lapse_changes', 'lapse_ledger'];
  trouble text;
begin
  select case when p.oid is null then format('publication %I is not there', w.name)
              when p.puballtables then format('publication %I is for all tables', w.name)
              when p.pubviaroot then format('publication %I publishes partitions as their root', w.name)
              else format('publication %I does not publish %s', w.name, w.publishes) end
    into trouble
    from (values (1, 'lapse_deletes'::name, 'delete, truncate', false, false, true, true),
                 (2, 'lapse_changes', 'insert, update, delete, truncate', true, true, true, true),
                 (3, 'lapse_ledger', 'insert', true, false, false, false)) w(n, name, publishes, i, u, d, t)
    left join pg_publication p on p.pubname = w.name
   where (p.puballtables, p.pubviaroot, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate)
         is distinct from (false, false, w.i, w.u, w.d, w.t)
   order by w.n
   limit 1;
  if trouble is not null then
    return trouble;
  end if;
  select format('publication lapse_ledger %s table %s', case when m.prrelid is null then 'lacks' else 'has' end,
                coalesce(m.prrelid, c.oid)::regclass)
    into trouble
    from (select r.prrelid from pg_publication_rel r join pg_publication p on p.oid = r.prpubid where p.pubname = 'lapse_ledger') m
    full join (
      select k.oid from pg_class k
       where k.relnamespace = (select n.oid from pg_namespace n where n.nspname = 'lapse')
         and k.relname in ('batch', 'batch_result', 'policy', 'policy_state', 'heartbeat')
    ) c on c.oid = m.prrelid
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

-- publications_fault says in what the publications are not as Lapse left them, null if in nothing or where no audit is
-- required: a text with names, no values. It is asked in each batch, so that it compares row versions and looks closer only
-- where they differ. A table that is gone left its publication, and is no fault, unless it was the ledger's.
create function lapse.publications_fault() returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $lapse$
declare
  fault text;
begin
  if not (select i.audit_required from lapse.installation i) then
    return null;
  end if;
  if not exists (select from lapse.publication) then
    return 'the publications are not on record: run lapse init';
  end if;
  if not exists (
       select from lapse.publication r
         left join pg_publication p on p.oid = r.oid
        where p.oid is null or p.pubname <> r.name or p.xmin <> r.publication_xmin)
     and not exists (
       select from (select m.oid, m.xmin
                      from lapse.publication p join pg_publication_rel m on m.prpubid = p.oid) m
         full join lapse.published r on r.member = m.oid
        where r.member is null or r.member_xmin <> m.xmin
           or m.oid is null and (r.publication = 'lapse_ledger' or exists (select from pg_class c where c.oid = r.relation)))
  then
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
        or m.member is null and (r.publication = 'lapse_ledger' or exists (select from pg_class c where c.oid = r.relation))
        or m.member <> r.member or m.member_xmin <> r.member_xmin
     order by coalesce(r.publication, m.name), coalesce(r.relation, m.relation)
     limit 1;
  end if;
  return left(coalesce(fault, 'the publications are not as they were recorded'), 500);
end
$lapse$;

-- publications_unlogged names a table that belongs to what is published and is not in the log, null if there is none. PostgreSQL
-- lets no unlogged table into a publication, but a partition of one that is there may be, and so may its owner make it. Batches
-- look at the tables that they touch themselves: this is asked for beats only.
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
    join lapse.published r on r.relation = up.relid and r.publication <> 'lapse_ledger'
   where c.relpersistence = 'u' and c.relkind = 'r' and c.relispartition
   order by c.oid, r.relation
   limit 1;
  return left(trouble, 500);
end
$lapse$;

-- begin_publications comes before a change of ours to what is published. If somebody else has changed something, it takes
-- that down, so that putting it right between two beats does not hide it. Where nothing was ever recorded nobody could.
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

-- record_published records what the transaction has done with tables: where each of them is published. What else differs from
-- the record goes on doing so.
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
   where m.prrelid = any (relations) and p.pubname in ('lapse_deletes', 'lapse_changes', 'lapse_ledger');
end
$lapse$;

-- record_publications takes down what is published as it is, unless it is wrong. A difference from the former record counts as
-- begin_publications counts it. It returns what is wrong, null if nothing is.
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
   where p.pubname in ('lapse_deletes', 'lapse_changes', 'lapse_ledger');
  delete from lapse.published;
  insert into lapse.published (relation, publication, member, member_xmin)
  select m.prrelid, p.name, m.oid, m.xmin
    from pg_publication_rel m join lapse.publication p on p.oid = m.prpubid;
  return null;
end
$lapse$;

-- beat is the auditor's sign of life. One row a minute, kept for a day, and the newest thousand for ever: by them logs and
-- databases are compared. Published, so that it also moves an idle slot. What the auditor looked at must be this server, in
-- the history that is in force. Each names the one before it: one at a time, in the order in which they commit.
create function lapse.beat(nonce uuid, history int, timeline int, server_start timestamptz) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  newest int := (select n.number from lapse.history n order by n.number desc limit 1);
begin
  if beat.history is distinct from newest or beat.timeline is distinct from lapse.timeline()
     or beat.server_start is distinct from pg_postmaster_start_time() then
    raise exception 'the beat is of history %, timeline %, a server that started at %; in force are %, %, %', beat.history,
      beat.timeline, beat.server_start, newest, lapse.timeline(), pg_postmaster_start_time() using errcode = 'LP019';
  end if;
  lock table lapse.heartbeat in share row exclusive mode;
  delete from lapse.heartbeat h
   where h.at < clock_timestamp() - interval '1 day'
     and h.id < (select k.id from lapse.heartbeat k order by k.id desc offset 999 limit 1);
  insert into lapse.heartbeat (system_identifier, database_oid, database, nonce, former, history, timeline, server_start, fault, faults)
  select lapse.system_identifier(), d.oid, d.datname, beat.nonce,
         (select k.nonce from lapse.heartbeat k order by k.id desc limit 1), beat.history, beat.timeline, beat.server_start,
         coalesce(lapse.publications_fault(), lapse.publications_unlogged()), i.publication_faults
    from pg_database d, lapse.installation i
   where d.datname = current_database();
end
$lapse$;

insert into lapse.history (number, timeline, system_identifier, reason)
values (1, lapse.timeline(), lapse.system_identifier(), 'installed');
