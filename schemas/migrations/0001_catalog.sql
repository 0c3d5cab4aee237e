-- The catalog of Lapse: schema "lapse" in the user's database.
--
-- {{.Owner}}, {{.Deleter}}, {{.Executor}} and {{.Auditor}} are the roles of this installation, already quoted. The
-- script runs in one transaction, as a role that may become {{.Owner}}. Everything here belongs to {{.Owner}}; the
-- deletion functions, which `lapse apply` makes, belong to {{.Deleter}}.
--
--   installation   one row: schema version, slot                                 written by init
--   policy         every version of every policy, append-only, published         written by planner (apply)
--   policy_state   every change of state, append-only, published                 written by planner, advance_arming
--   gate           what is in force now; the lock that batches and changes share written by planner, advance_arming
--   run, shard     what is being deleted, and how far it has come                inserted by planner; leases: executor;
--                                                                                cursors: only the deletion functions
--   batch          the ledger: what each batch claims, append-only, published    written by the deletion functions
--   batch_result   what each batch did, append-only, published                   written by the deletion functions
--   heartbeat      the auditor's sign of life, published                         written by beat()

create schema lapse;
revoke all on schema lapse from public;
grant usage on schema lapse to {{.Deleter}}, {{.Executor}}, {{.Auditor}};
grant create on schema lapse to {{.Deleter}};
comment on schema lapse is 'Lapse: row TTL with proof';

create table lapse.installation (
  only_row       boolean primary key default true check (only_row),
  schema_version int not null,
  slot           name not null,
  slot_start     pg_lsn,                       -- the slot's consistent point; null until the slot is made
  audit_required boolean not null default true,
  installed_at   timestamptz not null default clock_timestamp()
);

create table lapse.policy (
  id         int not null,
  version    int not null check (version > 0),
  name       text not null check (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
  table_oid  oid not null,
  table_name text not null,                    -- schema.table, quoted where SQL wants it
  spec       jsonb not null,                   -- the policy file's entry, normalised
  made_at    timestamptz not null default clock_timestamp(),
  made_by    text not null default session_user,
  reason     text not null default '',
  primary key (id, version)
);

create table lapse.policy_state (
  policy_id  int not null,
  version    int not null,
  state      text not null check (state in ('observing', 'arming', 'armed', 'paused', 'dropped')),
  changed_at timestamptz not null default clock_timestamp(),
  changed_by text not null default session_user,
  reason     text not null default '',
  foreign key (policy_id, version) references lapse.policy
);
create index on lapse.policy_state (policy_id, changed_at);

-- One row per policy. Batches hold it FOR SHARE until they commit; whoever changes it locks the table exclusively first, and so
-- waits until no batch runs under what was in force before.
create table lapse.gate (
  policy_id    int primary key,
  name         text not null,
  table_oid    oid not null,
  version      int not null,
  state        text not null check (state in ('observing', 'arming', 'armed', 'paused', 'dropped')),
  hold_version bigint not null default 0,
  arming_lsn   pg_lsn,                         -- the auditor must have confirmed this before the policy deletes
  locking      boolean not null default false, -- nobody reads it: whoever may update it may lock the row, and no more
  foreign key (policy_id, version) references lapse.policy
);
create unique index gate_name  on lapse.gate (name)      where state <> 'dropped';
create unique index gate_table on lapse.gate (table_oid) where state <> 'dropped';

create table lapse.run (
  run        uuid primary key,
  policy_id  int not null,
  version    int not null,
  cutoff     timestamptz not null,
  started_at timestamptz not null default clock_timestamp(),
  foreign key (policy_id, version) references lapse.policy
);
create index on lapse.run (policy_id, started_at);

create table lapse.shard (
  id          bigint generated always as identity primary key,
  run         uuid not null references lapse.run on delete cascade,
  policy_id   int not null,
  version     int not null,
  leaf        oid not null,                    -- the table, or one partition of it
  cutoff      timestamptz not null,
  holder      text,
  term        bigint not null default 0,       -- grows with every claim; a former holder's term is refused
  lease_until timestamptz,
  pass        smallint not null default 1,     -- 2: the residual pass, for rows that were locked or moved in the first
  cursor      text[],                          -- where the pick goes on; emptied when the shard is done
  picked      bigint not null default 0,
  deleted     bigint not null default 0,
  done        boolean not null default false,
  unique (run, leaf)
);
create index on lapse.shard (policy_id) where not done;

create table lapse.batch (
  batch             uuid primary key,
  policy_id         int not null,
  policy            text not null,
  policy_version    int not null,
  run               uuid not null,
  cutoff            timestamptz not null,
  hold_version      bigint not null,
  target            oid not null,
  cascades          oid[] not null,
  system_identifier text not null,
  database_oid      oid not null,
  xid               xid8 not null,
  started_at        timestamptz not null,
  mac               bytea not null
);

create table lapse.batch_result (
  batch       uuid primary key,
  picked      bigint not null,
  deleted     bigint not null,
  by_relation jsonb not null,                  -- rows deleted, by the relation's oid, cascades too
  finished_at timestamptz not null default clock_timestamp()
);

create table lapse.heartbeat (
  id                bigint generated always as identity primary key,
  at                timestamptz not null default clock_timestamp(),
  system_identifier text not null,
  database_oid      oid not null,
  database          name not null,
  timeline          int not null
);
create index on lapse.heartbeat (at);

-- The evidence is append-only for everybody, its owner too.
create function lapse.refuse_change() returns trigger language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  raise exception 'lapse.% is append-only', tg_table_name using errcode = 'insufficient_privilege';
end
$lapse$;

create trigger append_only before update or delete or truncate on lapse.policy
  for each statement execute function lapse.refuse_change();
create trigger append_only before update or delete or truncate on lapse.policy_state
  for each statement execute function lapse.refuse_change();
create trigger append_only before update or delete or truncate on lapse.batch
  for each statement execute function lapse.refuse_change();
create trigger append_only before update or delete or truncate on lapse.batch_result
  for each statement execute function lapse.refuse_change();

-- reach lists the relations that a delete on target touches through foreign keys: `deletes` where rows go with it
-- (ON DELETE CASCADE, to any depth), and otherwise only updated (SET NULL, SET DEFAULT, and what follows such an update
-- by ON UPDATE); a relation to which both happens is listed twice. Partitions are listed one by one, as the WAL names
-- them. The target itself is listed only where a foreign key leads back to it.
create function lapse.reach(target oid) returns table (relation oid, deletes boolean)
language sql stable
set search_path = pg_catalog, pg_temp
as $lapse$
  with recursive up(relation) as (
    select target
    union
    select i.inhparent from pg_inherits i join up on i.inhrelid = up.relation
  ), key(relation, references_to, on_delete, on_update, columns, referenced) as (
    select c.conrelid, c.confrelid, c.confdeltype, c.confupdtype,
           array(select a.attname from pg_attribute a where a.attrelid = c.conrelid and a.attnum = any (c.conkey)),
           array(select a.attname from pg_attribute a where a.attrelid = c.confrelid and a.attnum = any (c.confkey))
      from pg_constraint c
     where c.contype = 'f'
  ), down(relation, deletes, updated) as (
    select k.relation, k.on_delete = 'c', case when k.on_delete = 'c' then '{}' else k.columns end
      from key k
     where k.on_delete in ('c', 'n', 'd') and k.references_to in (select up.relation from up)
    union
    select next.relation, next.deletes, next.updated
      from down
     cross join lateral (
       select k.relation, k.on_delete = 'c', case when k.on_delete = 'c' then '{}' else k.columns end
         from key k
        where down.deletes and k.on_delete in ('c', 'n', 'd') and k.references_to = down.relation
       union all
       select k.relation, false, k.columns
         from key k
        where k.on_update in ('c', 'n', 'd') and k.references_to = down.relation and k.referenced && down.updated
       union all
       select i.inhrelid, down.deletes, down.updated from pg_inherits i where i.inhparent = down.relation
     ) as next(relation, deletes, updated)
  )
  select distinct down.relation, down.deletes
    from down
    join pg_class r on r.oid = down.relation
   where r.relkind = 'r'
$lapse$;

-- intruders lists the triggers, rules and functions that would run inside a deletion from target, by table and name. PostgreSQL's own
-- triggers are told by their functions: up to 14 a partition's copy of a user's trigger counts as internal too. A cascade
-- names a partitioned table by its root, so that statement triggers and rules of the root run; a batch names the leaf.
create function lapse.intruders(target oid) returns table (relation oid, name name)
language sql stable
set search_path = pg_catalog, pg_temp
as $lapse$
  with recursive reached(relation, deletes) as (
    select r.relation, r.deletes from lapse.reach(target) r
    union
    select i.inhparent, reached.deletes
      from reached
      join pg_inherits i on i.inhrelid = reached.relation
      join pg_class p on p.oid = i.inhparent and p.relkind = 'p'
  ), touched(relation, deletes) as (
    select target, true
    union
    select reached.relation, reached.deletes from reached
  )
  select t.tgrelid, t.tgname
    from pg_trigger t
    join touched on touched.relation = t.tgrelid
    join pg_proc f on f.oid = t.tgfoid
   where t.tgenabled <> 'D'
     and not (t.tgisinternal and f.pronamespace = 'pg_catalog'::regnamespace
              and (f.proname like 'RI\_FKey\_%' or f.proname = 'unique_key_recheck'))
     and (t.tgtype::int & case when touched.deletes then 8 else 16 end) > 0
  union
  select w.ev_class, w.rulename
    from pg_rewrite w join touched on touched.relation = w.ev_class
   where w.ev_enabled <> 'D' and w.ev_type = (case when touched.deletes then '4' else '2' end)::"char"
  union
  -- Functions that PostgreSQL evaluates while it plans or carries out the deletion: in indexes and statistics, and where
  -- rows are only updated, in checks, defaults and generated columns too. A superuser's may do what they like anyway.
  select used.relation, f.proname
    from (select touched.relation, 'pg_class'::regclass as class, i.indexrelid as object
            from touched join pg_index i on i.indrelid = touched.relation
          union all
          select touched.relation, 'pg_statistic_ext'::regclass, s.oid
            from touched join pg_statistic_ext s on s.stxrelid = touched.relation
          union all
          select touched.relation, 'pg_constraint'::regclass, c.oid
            from touched join pg_constraint c on c.conrelid = touched.relation and c.contype = 'c' and not touched.deletes
          union all
          select touched.relation, 'pg_attrdef'::regclass, a.oid
            from touched join pg_attrdef a on a.adrelid = touched.relation and not touched.deletes
         ) used
    join pg_depend d on d.classid = used.class and d.objid = used.object and d.refclassid = 'pg_proc'::regclass
    join pg_proc f on f.oid = d.refobjid
    join pg_roles owner on owner.oid = f.proowner
   where not owner.rolsuper and f.pronamespace <> 'pg_catalog'::regnamespace
$lapse$;

-- unseen lists the relations whose deletes, made by a batch on target, the audit would not see, or not by their key:
-- those in no publication of ours (or there with a filter), and those without a usable replica identity. With the audit
-- off it lists none.
create function lapse.unseen(target oid) returns table (relation oid)
language sql stable
set search_path = pg_catalog, pg_temp
as $lapse$
  with recursive touched(relation) as (
    select target
    union
    select r.relation from lapse.reach(target) r where r.deletes
  ), up(relation, ancestor) as (
    select touched.relation, touched.relation from touched
    union
    select up.relation, i.inhparent from up join pg_inherits i on i.inhrelid = up.ancestor
  )
  select touched.relation
    from touched
    join pg_class c on c.oid = touched.relation
   where (select i.audit_required from lapse.installation i)
     and (not exists (
            select from up
              join pg_publication_rel m on m.prrelid = up.ancestor
              join pg_publication p on p.oid = m.prpubid
             where up.relation = touched.relation and p.pubname in ('lapse_deletes', 'lapse_changes') and p.pubdelete
               and to_jsonb(m) ->> 'prqual' is null and to_jsonb(m) ->> 'prattrs' is null)
          or c.relpersistence <> 'p'
          or not exists (
            select from pg_index k
             where k.indrelid = c.oid and k.indisvalid and k.indimmediate
               and case c.relreplident when 'd' then k.indisprimary when 'i' then k.indisreplident else false end))
$lapse$;

-- advance_arming opens an arming policy's gate once the auditor has confirmed the position at which its table was
-- published. Its first call, after the publishing transaction has committed, takes that position down; each later one
-- looks whether the auditor has passed it. It returns the state that is in force afterwards. Idempotent.
create function lapse.advance_arming(policy int) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  g lapse.gate;
  i lapse.installation;
begin
  select * into g from lapse.gate where policy_id = policy for update;
  if not found then
    raise exception 'there is no policy %', policy using errcode = 'no_data_found';
  end if;
  if g.state <> 'arming' then
    return g.state;
  end if;
  select * into i from lapse.installation;
  if g.arming_lsn is null then
    update lapse.gate set arming_lsn = pg_current_wal_insert_lsn() where policy_id = policy;
    -- A published row above that position, so that an auditor on a quiet database gets there at once.
    insert into lapse.policy_state (policy_id, version, state, reason)
    values (g.policy_id, g.version, 'arming', 'waiting for the auditor');
    return g.state;
  end if;
  if i.audit_required and not exists (
    select from pg_replication_slots s
     where s.slot_name = i.slot and s.database = current_database() and s.confirmed_flush_lsn >= g.arming_lsn
  ) then
    return g.state;
  end if;
  update lapse.gate set state = 'armed' where policy_id = policy;
  insert into lapse.policy_state (policy_id, version, state, reason)
  values (g.policy_id, g.version, 'armed', 'the auditor has passed ' || g.arming_lsn);
  return 'armed';
end
$lapse$;

-- beat is the auditor's sign of life. One row a minute, kept for a day; published, so that it also moves an idle slot.
create function lapse.beat(timeline int) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
  delete from lapse.heartbeat h where h.at < clock_timestamp() - interval '1 day';
  insert into lapse.heartbeat (system_identifier, database_oid, database, timeline)
  select (case when c.system_identifier < 0 then c.system_identifier::numeric + 18446744073709551616
               else c.system_identifier::numeric end)::text,
         d.oid, d.datname, timeline
    from pg_control_system() c, pg_database d
   where d.datname = current_database();
$lapse$;

revoke all on all functions in schema lapse from public;
grant execute on function lapse.reach(oid), lapse.intruders(oid), lapse.unseen(oid) to {{.Deleter}}, {{.Executor}};
grant execute on function lapse.advance_arming(int) to {{.Executor}};
grant execute on function lapse.beat(int) to {{.Auditor}};

grant select on all tables in schema lapse to {{.Deleter}}, {{.Executor}};
grant select on lapse.installation, lapse.policy, lapse.policy_state, lapse.gate, lapse.heartbeat to {{.Auditor}};
grant update (locking) on lapse.gate to {{.Deleter}};
grant update on lapse.shard to {{.Deleter}};
grant insert on lapse.batch, lapse.batch_result to {{.Deleter}};
grant insert, delete on lapse.run, lapse.shard to {{.Executor}};
grant update (holder, term, lease_until) on lapse.shard to {{.Executor}};
