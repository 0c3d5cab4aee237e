-- Partitions that are dropped whole ("action: drop_partition"). A function per policy, lapse.drop_<id>_<version>, calls these in this
-- order, in one transaction that does nothing else. The same policy deletes the rows of partitions that it does not drop.
--
--   enter, check_leaf as in a batch
--   part              may the leaf be dropped, by the catalog?
--                     (the policy's function keeps writers out of the leaf and counts its rows)
--   record_drop       ledger row, tag
--                     (the policy's function drops the leaf)
--   leave_drop        the shard is done, or is left to row deletion

-- What the catalog shows about a partition, without reading its rows.
create type lapse.part as (parent text, spare text, upper text, referred boolean, referring text, why text);
comment on type lapse.part is 'A partition that may be dropped whole, by the system catalog.';
comment on column lapse.part.parent is 'The name in SQL of what it is a partition of.';
comment on column lapse.part.spare is 'The name in SQL of its parent''s default partition; null if there is none. Dropping locks that too.';
comment on column lapse.part.upper is 'The exclusive end of its range of the column that rows expire by, as text; null if its range is of another column.';
comment on column lapse.part.referred is 'Foreign keys refer to it: it must be detached first, and PostgreSQL then checks for rows that refer to it.';
comment on column lapse.part.referring is 'SQL that is true if a row refers to one of its rows; null if no foreign key does.';
comment on column lapse.part.why is 'Why it may not be dropped, whatever its rows are; null if nothing prevents it.';

create type lapse.dropping as (dropped boolean, rows bigint, why text);
comment on type lapse.dropping is 'What became of a partition that was to be dropped.';
comment on column lapse.dropping.dropped is 'It is gone.';
comment on column lapse.dropping.rows is 'The rows that it had.';
comment on column lapse.dropping.why is 'Why it is left to row deletion; null if it is not.';

create table lapse.dropped (
  batch             uuid primary key,
  policy_id         int not null,
  policy            text not null check (octet_length(policy) <= 63),
  policy_version    int not null,
  run               uuid not null,
  cutoff            timestamptz not null,
  hold_version      bigint not null,
  target            oid not null,
  cascades          oid[] not null check (cardinality(cascades) <= 100000),
  functions         bytea not null check (octet_length(functions) = 32),
  system_identifier text not null check (octet_length(system_identifier) <= 20),
  database_oid      oid not null,
  history           int not null,
  timeline          int not null,
  xid               xid8 not null,
  started_at        timestamptz not null,
  mac               bytea not null check (octet_length(mac) = 32),
  relation          text not null check (octet_length(relation) <= 300),
  root              text not null check (octet_length(root) <= 300),
  rows              bigint not null check (rows > 0),
  oldest            timestamptz not null,
  newest            timestamptz not null,
  dropped_at        timestamptz not null default clock_timestamp()
);
create trigger append_only before update or delete or truncate on lapse.dropped
  for each statement execute function lapse.refuse_change();
comment on table lapse.dropped is 'The partitions that were dropped whole: append-only and published.';
comment on column lapse.dropped.batch is 'The claim''s id, as of a batch.';
comment on column lapse.dropped.policy_id is 'The policy''s number.';
comment on column lapse.dropped.policy is 'The policy''s name.';
comment on column lapse.dropped.policy_version is 'The policy''s version.';
comment on column lapse.dropped.run is 'The run that it was part of.';
comment on column lapse.dropped.cutoff is 'The instant at which all of its rows were due.';
comment on column lapse.dropped.hold_version is 'The holds that were checked.';
comment on column lapse.dropped.target is 'The partition''s former oid. Another relation may have it now.';
comment on column lapse.dropped.cascades is 'As in lapse.batch: the relations that foreign keys would have reached. None of their rows was deleted.';
comment on column lapse.dropped.functions is 'HMAC by the tag key over the text of what ran.';
comment on column lapse.dropped.system_identifier is 'The cluster''s identifier.';
comment on column lapse.dropped.database_oid is 'The database''s oid.';
comment on column lapse.dropped.history is 'The history that was in force.';
comment on column lapse.dropped.timeline is 'The server''s timeline.';
comment on column lapse.dropped.xid is 'The transaction.';
comment on column lapse.dropped.started_at is 'When it began.';
comment on column lapse.dropped.mac is 'HMAC-SHA-256 over the claim, with a key that is not in the database. It differs from that of a batch.';
comment on column lapse.dropped.relation is 'The partition''s name in SQL.';
comment on column lapse.dropped.root is 'The name in SQL of the policy''s table, which it was a partition of.';
comment on column lapse.dropped.rows is 'The rows that it had, all of them due.';
comment on column lapse.dropped.oldest is 'The oldest instant of what its rows expired by.';
comment on column lapse.dropped.newest is 'The newest.';
comment on column lapse.dropped.dropped_at is 'When it was dropped.';

-- part_of returns what the catalog says about a leaf of root. A partition may be dropped only if no new rows belong in it; otherwise the
-- application's next insert would fail. So it, or a partition above it, must be a range that is over. If the range is of due_column, the
-- column that rows expire by, the caller decides that from its end. Any other range of time is over at the cutoff if its end is not
-- later; a range of numbers, if a later one has rows. part_of locks nothing.
create function lapse.part_of(root oid, leaf oid, cutoff timestamptz, due_column name) returns lapse.part
language plpgsql stable
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set jit = off
as $lapse$
declare
  part  lapse.part;
  chain oid[];
  step  record;
  past  boolean := false;
  times constant oid[] := array['timestamptz', 'timestamp', 'date']::regtype[];
  whole constant oid[] := array['int2', 'int4', 'int8', 'numeric']::regtype[];
begin
  chain := array(
    with recursive up(relation, n) as (
      select part_of.leaf, 1
      union all
      select i.inhparent, up.n + 1
        from up join pg_inherits i on i.inhrelid = up.relation and not i.inhdetachpending
       where up.relation <> part_of.root
    )
    select up.relation from up order by up.n);
  if chain[cardinality(chain)] is distinct from part_of.root then
    raise exception '% is not a leaf of the policy''s table', part_of.leaf::regclass using errcode = 'LP005';
  end if;
  if cardinality(chain) = 1 then
    part.why := 'the table is not partitioned';
    return part;
  end if;
  select format('%I.%I', n.nspname, p.relname),
         (select format('%I.%I', m.nspname, d.relname) from pg_class d join pg_namespace m on m.oid = d.relnamespace where d.oid = t.partdefid)
    into part.parent, part.spare
    from pg_class p
    join pg_namespace n on n.oid = p.relnamespace
    join pg_partitioned_table t on t.partrelid = p.oid
   where p.oid = chain[2];
  part.referred := exists (
    select from pg_trigger t join pg_constraint c on c.oid = t.tgconstraint
     where t.tgrelid = any (chain) and c.contype = 'f' and c.confrelid = any (chain));
  for step in
    select c.oid, c.relowner, t.partdefid = c.oid as spare, t.partrelid, t.partstrat, t.partattrs[0] as number, a.attname, a.atttypid,
           (regexp_match(pg_get_expr(c.relpartbound, 0), ' TO \(''?([^'',)]*)'))[1] as upper
      from unnest(chain) with ordinality u(oid, n)
      join pg_class c on c.oid = u.oid
      join pg_partitioned_table t on t.partrelid = chain[u.n + 1]
      left join pg_attribute a on a.attrelid = t.partrelid and a.attnum = t.partattrs[0] and t.partattrs[0] > 0
     order by u.n
  loop
    if step.spare then
      part.why := 'it is a default partition, or part of one';
      return part;
    end if;
    if step.partstrat <> 'r' or step.upper in ('MAXVALUE', 'MINVALUE') or not step.atttypid = any (times || whole) then
      continue;
    end if;
    if step.attname = part_of.due_column then
      part.upper := step.upper;
    elsif step.atttypid = any (times) then
      past := past or case when step.atttypid = 'timestamptz'::regtype then step.upper::timestamptz
                           else step.upper::timestamp at time zone 'UTC' end <= part_of.cutoff;
    else
      past := past or exists (
        select from pg_inherits i
          join pg_class o on o.oid = i.inhrelid
         cross join lateral (select (regexp_match(pg_get_expr(o.relpartbound, 0), ' TO \(''?([^'',)]*)'))[1] as upper) b
         where i.inhparent = step.partrelid and i.inhrelid <> step.oid and not i.inhdetachpending
           and case when b.upper = 'MAXVALUE' then true when b.upper = 'MINVALUE' then false else b.upper::numeric > step.upper::numeric end
           and exists (select from lapse.leaves(o.oid) l join pg_class k on k.oid = l.relation where k.relpages > 0));
    end if;
  end loop;
  if part.upper is null and not past then
    part.why := 'its bounds do not say that nothing new belongs into it';
  elsif (select l.relowner <> r.relowner from pg_class l, pg_class r where l.oid = part_of.leaf and r.oid = part_of.root) then
    part.why := 'it belongs to another role than the table';
  end if;
  return part;
end
$lapse$;
comment on function lapse.part_of is 'What the system catalog says about a partition that may be dropped whole.';

-- part is part_of for the leaf of a batch that was entered.
create function lapse.part(claim lapse.claim, work lapse.work, due_column name) returns lapse.part
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  shard record;
  known lapse.part;
begin
  select s.policy_id, s.version, s.by_rows, s.tries, num_nonnulls(s.lower, s.upper, s.modulus) = 0 and not s.residual as whole,
         p.table_oid, p.spec ->> 'action' as action
    into shard
    from lapse.shard s
    join lapse.policy p on p.id = s.policy_id and p.version = s.version
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target;
  if not found or not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  known := lapse.part_of(shard.table_oid, claim.target, claim.cutoff, part.due_column);
  if known.why is not null then
    return known;
  end if;
  known.why := case
    when shard.action <> 'drop_partition' or not shard.whole then 'the policy does not drop partitions'
    when exists (select from lapse.enforced_holds() e where e.table_oid = claim.target) then 'a hold is on it by name'
    when shard.by_rows then 'it could not be dropped before in this run'
    when shard.tries >= 5 then 'somebody held a lock on it in several runs'
    when exists (select from lapse.intruders(array[claim.target], false) i where i.class in ('pg_trigger'::regclass, 'pg_rewrite'::regclass))
      then 'triggers or rules run when its rows are deleted' end;
  if known.referred then
    known.referring := lapse.referring(claim.target);
  end if;
  return known;
end
$lapse$;
comment on function lapse.part is 'Whether the leaf of a batch that was entered may be dropped whole, by the system catalog.';

-- referring is SQL that is true if a row of any table, its own included, refers to a row of the leaf by a key that is enforced; null if no
-- foreign key could.
create function lapse.referring(leaf oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $lapse$
begin
  return (
    with recursive up(relation) as (
      select referring.leaf
      union all
      select i.inhparent from up join pg_inherits i on i.inhrelid = up.relation
    )
    select coalesce(string_agg(format('exists (select from %s%I.%I c join only %s t on %s)', case when r.relkind = 'r' then 'only ' else '' end, n.nspname, r.relname,
                             (select format('%I.%I', ln.nspname, l.relname) from pg_class l join pg_namespace ln on ln.oid = l.relnamespace where l.oid = referring.leaf),
                             (select string_agg(format('c.%I operator(%I.%s) t.%I', a.attname, s.nspname, o.oprname, f.attname), ' and ' order by m.n)
                                from unnest(k.conkey, k.confkey, k.conpfeqop) with ordinality m(near, far, operator, n)
                                join pg_attribute a on a.attrelid = k.conrelid and a.attnum = m.near
                                join pg_attribute f on f.attrelid = k.confrelid and f.attnum = m.far
                                join pg_operator o on o.oid = m.operator
                                join pg_namespace s on s.oid = o.oprnamespace)), ' or ' order by k.oid)
                      filter (where coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true)), case when count(*) > 0 then 'false' end)
      from up
      join pg_constraint k on k.confrelid = up.relation and k.contype = 'f' and k.conparentid = 0
      join pg_class r on r.oid = k.conrelid
      join pg_namespace n on n.oid = r.relnamespace);
end
$lapse$;
comment on function lapse.referring is 'SQL that is true if a row refers to a row of the partition; null if no foreign key does.';

-- awaited reports whether a session waits for a lock on a relation.
create function lapse.awaited(relation oid) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $lapse$
  select exists (select from pg_locks l
                  where l.locktype = 'relation' and l.relation = awaited.relation and not l.granted
                    and l.database = (select d.oid from pg_database d where d.datname = current_database()))
$lapse$;
comment on function lapse.awaited is 'Whether a session waits for a lock on a relation.';

-- record_drop writes the ledger row of a drop, which is the transaction's first published change, and the tag for other readers of the log. It
-- returns why the partition must not be dropped; null if it wrote the row.
create function lapse.record_drop(claim lapse.claim, mac bytea, work lapse.work, rows bigint, oldest timestamptz, newest timestamptz) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  shard record;
  rest  bigint;
begin
  select s.run, s.policy_id, p.table_oid, r.most
    into shard
    from lapse.shard s
    join lapse.run r on r.run = s.run
    join lapse.policy p on p.id = s.policy_id and p.version = s.version
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target
     and p.spec ->> 'action' = 'drop_partition' and not exists (select from lapse.batch b where b.batch = claim.batch);
  if not found or not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  if shard.most is not null then
    -- Who takes rows waits for the end of this transaction. A statement of its own, as in take_rows.
    insert into lapse.allowance (policy_id) values (shard.policy_id) on conflict do nothing;
    perform from lapse.allowance a where a.policy_id = shard.policy_id for update;
    rest := shard.most - (select coalesce(sum(s.deleted + case when s.id <> work.shard and not s.done then s.allowed else 0 end), 0)
                            from lapse.shard s
                           where s.run = shard.run);
    if record_drop.rows > rest then
      return 'it has more rows than max_rows_per_run leaves of this run';
    end if;
  end if;
  insert into lapse.dropped (batch, policy_id, policy, policy_version, run, cutoff, hold_version, target, cascades, functions,
                             system_identifier, database_oid, history, timeline, xid, started_at, mac, relation, root, rows,
                             oldest, newest)
  select claim.batch, claim.policy_id, claim.policy, claim.policy_version, claim.run, claim.cutoff, claim.hold_version,
         claim.target, claim.cascades, claim.functions, claim.system_identifier, claim.database_oid, claim.history,
         claim.timeline, claim.xid, claim.started_at, record_drop.mac, format('%I.%I', n.nspname, c.relname),
         (select format('%I.%I', m.nspname, r.relname) from pg_class r join pg_namespace m on m.oid = r.relnamespace where r.oid = shard.table_oid),
         record_drop.rows, record_drop.oldest, record_drop.newest
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
   where c.oid = claim.target;
  perform pg_logical_emit_message(true, 'lapse', jsonb_build_object(
    'transaction_tag', 'PartitionDropPolicy', 'is_system_transaction', true, 'policy', claim.policy,
    'version', claim.policy_version, 'run', claim.run, 'batch', claim.batch, 'cutoff', claim.cutoff, 'rows', record_drop.rows)::text);
  return null;
end
$lapse$;
comment on function lapse.record_drop is 'Writes the ledger row of a partition before it is dropped.';

-- leave_drop ends the shard of a dropped partition, and leaves any other shard to row deletion.
create function lapse.leave_drop(claim lapse.claim, work lapse.work, why text) returns lapse.dropping
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  went bigint;
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member')
     or not exists (select from lapse.shard s
                     where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch
                       and s.leaf = claim.target) then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  went := (select d.rows from lapse.dropped d where d.batch = claim.batch);
  if exists (select from pg_class c where c.oid = claim.target) is distinct from (leave_drop.why is not null)
     or (went is null) is distinct from (leave_drop.why is not null) then
    raise exception 'the ledger does not say what became of relation %', claim.target using errcode = 'LP008';
  end if;
  update lapse.shard s
     set batch = null, by_rows = leave_drop.why is not null, dropped = leave_drop.why is null, done = leave_drop.why is null,
         picked = s.picked + coalesce(went, 0), deleted = s.deleted + coalesce(went, 0),
         batches = s.batches + (went is not null)::int, cursor = case when leave_drop.why is null then null else s.cursor end,
         lease_until = clock_timestamp() + lapse.lease_time()
   where s.id = work.shard;
  update lapse.run r set dropped_partitions = r.dropped_partitions + 1, dropped_rows = r.dropped_rows + went where r.run = claim.run and went is not null;
  return row(leave_drop.why is null, coalesce(went, 0), leave_drop.why);
end
$lapse$;
comment on function lapse.leave_drop is 'Ends the shard of a partition that was dropped, or leaves it to row deletion. Last in every dropping function.';
