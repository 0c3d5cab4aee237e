-- Which tables are published, and the table that each partition belongs to, as each beat finds them. The log alone does not show it: a new
-- partition is published at once, a detached or dropped one no longer is, and neither leaves an entry. So a beat writes, in its own
-- transaction, a row for each table that has changed since the beat before. The auditor reads the rows in commit order, whenever it
-- reads.

create table lapse.covered (
  number   bigint generated always as identity primary key,
  relation oid not null,
  name     text not null check (octet_length(name) <= 300),
  root     text check (octet_length(root) <= 300),
  moves_by text,
  joined   text,
  file     oid,
  due      jsonb,
  where_is boolean,
  ended    boolean not null
);
create index on lapse.covered (relation, number);
create trigger append_only before update or delete or truncate on lapse.covered
  for each statement execute function lapse.refuse_change();
comment on table lapse.covered is 'Which tables are published, by the beat that found it: append-only and published.';
comment on column lapse.covered.number is 'In the order of the beats: a heartbeat with covered = n knows the rows up to n.';
comment on column lapse.covered.relation is 'A plain table or a partition that has rows.';
comment on column lapse.covered.name is 'Its name in SQL.';
comment on column lapse.covered.root is 'The name in SQL of the table that it is a partition of; null if it is no partition.';
comment on column lapse.covered.moves_by is 'The columns, in SQL, that decide which partition a row belongs to, if a policy tells moves from deletions; otherwise null.';
comment on column lapse.covered.joined is 'The transactions that attached it and the tables between it and its root, that added it or its root to the publication, and that changed that. If this changes, it was detached or removed meanwhile.';
comment on column lapse.covered.file is 'The number of a partition''s file. If this changes, it was rewritten.';
comment on column lapse.covered.due is 'How the auditor judges whether a row that somebody else deletes was due: spec.due of the version in force of the policy that deletes from the table, if it has evidence: due; otherwise null.';
comment on column lapse.covered.where_is is 'Whether that version has a condition (where), which the log does not show of a row.';
comment on column lapse.covered.ended is 'It is no longer published: detached, dropped or removed.';

create table lapse.heartbeat (
  id                bigint generated always as identity primary key,
  at                timestamptz not null default clock_timestamp(),
  system_identifier text not null,
  database_oid      oid not null,
  database          name not null,
  nonce             uuid not null unique,
  former            uuid,
  history           int not null,
  timeline          int not null,
  server_start      timestamptz not null,
  fault             text check (octet_length(fault) <= 2000),
  faults            bigint not null default 0,
  xid               xid8,
  log_end           pg_lsn,
  looked_at         pg_lsn,
  covered           bigint,
  unsettled         boolean not null default false,
  declared          text check (octet_length(declared) <= 6000)
);
create index on lapse.heartbeat (at);
comment on table lapse.heartbeat is 'The auditor''s sign of life, once a minute, published. Kept for a day, the first of each day for 400 days, and the newest thousand forever. Written by beat.';
comment on column lapse.heartbeat.id is 'Order of the beats.';
comment on column lapse.heartbeat.at is 'When.';
comment on column lapse.heartbeat.system_identifier is 'The cluster''s system identifier.';
comment on column lapse.heartbeat.database_oid is 'The database.';
comment on column lapse.heartbeat.database is 'Its name.';
comment on column lapse.heartbeat.nonce is 'What tells this beat from one of a copy of the database.';
comment on column lapse.heartbeat.former is 'The nonce of the beat before; null for the first.';
comment on column lapse.heartbeat.history is 'Number of the history that the auditor reads.';
comment on column lapse.heartbeat.timeline is 'Timeline that it reads.';
comment on column lapse.heartbeat.server_start is 'When the server that it checked was started.';
comment on column lapse.heartbeat.fault is 'How the publications differed from what Lapse left; null if they did not.';
comment on column lapse.heartbeat.faults is 'How often a command had found a difference by then.';
comment on column lapse.heartbeat.xid is 'Its transaction, which has its number from after log_end was read. Null if it had one before.';
comment on column lapse.heartbeat.log_end is 'End of the log before the publications were checked.';
comment on column lapse.heartbeat.looked_at is 'The check of the publications has seen what was committed up to here: log_end, or that of a former beat.';
comment on column lapse.heartbeat.covered is 'The newest row of lapse.covered. Null in rows of a former version.';
comment on column lapse.heartbeat.unsettled is 'Policies were being changed: lapse.covered.due may be that of before.';
comment on column lapse.heartbeat.declared is 'What lapse.yaml declares, as the auditor read it when it started: its first beat says so, and no other.';

-- cover writes what has changed in what is published, or all of it if the slot was made again. It returns the newest row's number.
--
-- A partition that was detached and attached again between two beats was not published in between: cover writes that it ended, and that
-- it begins. It does the same for a table that was removed from its publication and added again, whatever lapse.published says by then.
-- A table that was made unlogged and logged again cannot be told from one rewritten by VACUUM FULL: both have a new file.
--
-- cover reads the system catalog and locks no user's table. If a table's policy tells moves from deletions (moves: detect), its row
-- contains the columns of all partition keys above it: a row may move between branches, and between any two levels.
--
-- For users' deletions the auditor takes the due time's rule from here, and not from the policies' own rows: this is how it knows after a
-- restart which rule was in force at a position of the log.
create function lapse.cover() returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $lapse$
declare
  whole boolean := (select i.slot_start is distinct from i.covered_slot from lapse.installation i);
begin
  with recursive tree(relation, root) as (
    select m.prrelid::oid, pg_partition_root(m.prrelid)::oid
      from pg_publication_rel m
      join pg_publication p on p.oid = m.prpubid
     where p.pubname in ('lapse_deletes', 'lapse_changes')
    union
    select i.inhrelid, tree.root
      from tree
      join pg_inherits i on i.inhparent = tree.relation and not i.inhdetachpending
      join pg_class c on c.oid = i.inhrelid and c.relispartition
  ), moving(root) as (
    select g.table_oid
      from lapse.gate g
      join lapse.policy v on v.id = g.policy_id and v.version = g.version
      join pg_publication_rel m on m.prrelid = g.table_oid
      join pg_publication p on p.oid = m.prpubid and p.pubname = 'lapse_changes'
     where g.state <> 'dropped' and v.spec ->> 'moves' = 'detect'
  ), rules(relation, due, where_is) as (
    select g.table_oid, v.spec -> 'due', coalesce(v.spec ->> 'where', '') <> ''
      from lapse.gate g
      join lapse.policy v on v.id = g.policy_id and v.version = g.version
     where g.state <> 'dropped' and not g.soft and v.spec ? 'due'
    union all
    select i.inhrelid, rules.due, rules.where_is
      from rules
      join pg_inherits i on i.inhparent = rules.relation and not i.inhdetachpending
      join pg_class c on c.oid = i.inhrelid and c.relispartition
  ), judged as (
    select rules.relation, max(rules.due::text)::jsonb as due, bool_or(rules.where_is) as where_is
      from rules
     group by rules.relation
    having count(*) = 1 -- of two policies neither
  ), present as (
    select c.oid as relation, format('%I.%I', n.nspname, c.relname) as name,
           case when c.relispartition then
             (select format('%I.%I', m.nspname, r.relname) from pg_class r join pg_namespace m on m.oid = r.relnamespace where r.oid = tree.root) end as root,
           case when c.relispartition and tree.root in (select moving.root from moving) then
             (select string_agg(quote_ident(k.attname), ',' order by k.attname)
                from (select distinct a.attname
                        from pg_partition_ancestors(c.oid) up
                        join pg_partitioned_table t on t.partrelid = up.relid
                        join pg_attribute a on a.attrelid = t.partrelid and a.attnum = any (t.partattrs::int2[])) k) end as moves_by,
           concat_ws(',',
             -- each by its index: as a join, pg_inherits is read whole for each partition
             (select string_agg((select i.xmin::text from pg_inherits i where i.inhrelid = up.relid), ',' order by up.relid::oid)
                from pg_partition_ancestors(c.oid) up),
             (select string_agg(p.xmin || ':' || m.xmin, ',' order by m.oid)
                from pg_publication_rel m
                join pg_publication p on p.oid = m.prpubid and p.pubname in ('lapse_deletes', 'lapse_changes')
               where m.prrelid in (c.oid, tree.root))) as joined,
           case when c.relispartition then c.relfilenode end as file, judged.due, judged.where_is
      from tree
      join pg_class c on c.oid = tree.relation
      join pg_namespace n on n.oid = c.relnamespace
      left join judged on judged.relation = c.oid
     where c.relkind = 'r'
  ), known as (
    select * from (select distinct on (k.relation) k.* from lapse.covered k order by k.relation, k.number desc) last
     where not last.ended
  )
  insert into lapse.covered (relation, name, root, moves_by, joined, file, due, where_is, ended)
  select f.*
    from present p
    full join known k on k.relation = p.relation
   cross join lateral (
     select k.relation, k.name, k.root, null, k.joined, k.file, null, null, true
      where k.relation is not null and (p.relation is null or p.joined is distinct from k.joined)
     union all
     select p.relation, p.name, p.root, p.moves_by, p.joined, p.file, p.due, p.where_is, false
      where p.relation is not null
        and (whole or k.relation is null
             or (p.name, p.root, p.moves_by, p.joined, p.file, p.due, p.where_is) is distinct from
                (k.name, k.root, k.moves_by, k.joined, k.file, k.due, k.where_is))
   ) f(relation, name, root, moves_by, joined, file, due, where_is, ended)
   order by f.relation, not f.ended;
  if whole then
    update lapse.installation set covered_slot = slot_start;
  end if;
  return coalesce((select c.number from lapse.covered c order by c.number desc limit 1), 0);
end
$lapse$;
comment on function lapse.cover is 'Writes the changes in which tables are published.';

-- beat is the auditor's sign of life: one row a minute, kept for a day; the newest thousand are kept forever, to compare logs and databases.
-- It is published, so it also advances an idle slot. The auditor must have checked this server, in the history in force. Each beat names the
-- one before: only one at a time is written, in commit order.
--
-- A commit is in the log before it is seen: for its fsync, and for as long as a synchronous standby is away. That a beat looked at the end
-- of the log therefore does not mean that it has seen what was committed up to there. It has seen the transactions below its horizon, the oldest
-- that runs. Those that were in the log at a beat's log_end are below that beat's xid. So looked_at is the log_end of the newest beat, this
-- one included, with an xid at or below the horizon. A long transaction holds it back until it ends: then a gap begins early, never late.
create function lapse.beat(nonce uuid, history int, timeline int, server_start timestamptz, declared text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  newest    int := (select n.number from lapse.history n order by n.number desc limit 1);
  present   timestamptz := clock_timestamp();
  xid       xid8;
  log_end   pg_lsn;
  looked_at pg_lsn;
  horizon   xid8;
  unsettled boolean := false;
  covered   bigint;
  fault     text;
  former    lapse.heartbeat;
  missed    boolean := (select s.slot_start is distinct from s.covered_slot from lapse.installation s);
begin
  if beat.history is distinct from newest or beat.timeline is distinct from lapse.timeline()
     or beat.server_start is distinct from pg_postmaster_start_time() then
    raise exception 'the beat is of history %, timeline %, a server that started at %; in force are %, %, %', beat.history,
      beat.timeline, beat.server_start, newest, lapse.timeline(), pg_postmaster_start_time() using errcode = 'LP019';
  end if;
  lock table lapse.heartbeat in share row exclusive mode;
  log_end := pg_current_wal_insert_lsn();
  xid := case when pg_current_xact_id_if_assigned() is null then pg_current_xact_id() end; -- after log_end
  delete from lapse.heartbeat h
   where h.at < present - interval '1 day'
     and h.id < (select k.id from lapse.heartbeat k order by k.id desc offset 999 limit 1)
     and (h.at < present - interval '400 days'
          or exists (select from lapse.heartbeat k
                      where k.at >= date_trunc('day', h.at, 'UTC') and k.at <= h.at and (k.at, k.id) < (h.at, h.id)));
  perform lapse.follow_holds(); -- may wait for others, and so comes before the lock
  begin
    lock table lapse.gate in share mode nowait; -- what changes it commits before cover reads, or after this beat
  exception when lock_not_available then
    unsettled := true;
  end;
  horizon := pg_snapshot_xmin(pg_current_snapshot()); -- of no later a snapshot than what follows
  covered := lapse.cover();
  fault := coalesce(lapse.publications_fault(), lapse.publications_unlogged());
  select * into former from lapse.heartbeat k order by k.id desc limit 1;
  looked_at := case when xid <= horizon then log_end
                    else coalesce((select k.log_end from lapse.heartbeat k where k.xid <= horizon order by k.id desc limit 1),
                                  former.looked_at, '0/1') end;
  missed := missed or former.fault is not null or former.history <> beat.history
            or former.faults < (select s.publication_faults from lapse.installation s);
  insert into lapse.heartbeat
    (system_identifier, database_oid, database, nonce, former, history, timeline, server_start, xid, log_end, looked_at,
     fault, faults, covered, unsettled, declared)
  select lapse.system_identifier(), d.oid, d.datname, beat.nonce,
         former.nonce, beat.history, beat.timeline, beat.server_start, xid, log_end, looked_at, fault,
         i.publication_faults, covered, unsettled, beat.declared
    from pg_database d, lapse.installation i
   where d.datname = current_database();
  if missed and fault is null then
    perform lapse.restate();
  end if;
end
$lapse$;
comment on function lapse.beat is 'Writes the auditor''s sign of life, and removes old beats that are no longer needed. For the auditor.';

create function lapse.doubt() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  lock table lapse.heartbeat in share row exclusive mode;
  update lapse.installation i
     set doubted = newest.id
    from (select max(b.id) as id from lapse.heartbeat b) newest
   where coalesce(i.doubted, 0) < newest.id;
end
$lapse$;
comment on function lapse.doubt is 'Revokes the auditor''s signs of life, so that nothing is deleted until the next. For the auditor.';
