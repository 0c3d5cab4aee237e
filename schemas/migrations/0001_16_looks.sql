-- Looks: the whole cost of a policy with nothing due. A function for each policy version, lapse.due_<id>_<version>, returns the leaves that have
-- a due row, in one statement that changes nothing; a run is opened only for these. It calls the functions here to find which leaves can
-- have one, and whether it may read a leaf.

create table lapse.looked (
  policy_id  int primary key,
  at         timestamptz,
  counted_at timestamptz,
  due        bigint check (due >= 0),
  exact      boolean,
  oldest     timestamptz check (isfinite(oldest))
) with (fillfactor = 50);
comment on table lapse.looked is 'What was last seen of a policy''s due rows outside its runs. Written at most once a minute.';
comment on column lapse.looked.policy_id is 'The policy.';
comment on column lapse.looked.at is 'When a look last found nothing due, by the server''s clock; null: none has.';
comment on column lapse.looked.counted_at is 'When due rows were last counted while something kept the policy from deleting them; null: never.';
comment on column lapse.looked.due is 'How many rows were due then.';
comment on column lapse.looked.exact is 'Whether that is the exact number; otherwise there are more, or it is PostgreSQL''s estimate.';
comment on column lapse.looked.oldest is 'When the oldest of them fell due; null if not known.';

-- looked records that a look has found nothing due under an armed policy. It records the server's time, unless that is so far after the last
-- time that a deletion would need a person's acceptance of the clock: see measure.
create function lapse.looked(policy int, version int) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may call this', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  perform lapse.follow_holds();
  insert into lapse.looked as l (policy_id, at)
  select g.policy_id, clock_timestamp()
    from lapse.gate g
   cross join lateral lapse.measure(g.policy_id) m
   where g.policy_id = looked.policy and g.version = looked.version and g.state = 'armed'
     and clock_timestamp() between m.last and m.last + m.reach
  on conflict (policy_id) do update set at = excluded.at;
end
$lapse$;
comment on function lapse.looked is 'Records that a look has found nothing due. For the executor.';

-- counted records how much is due under a policy that cannot delete. Only status and metrics use it.
create function lapse.counted(policy int, version int, due bigint, exact boolean, oldest timestamptz) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may count', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  insert into lapse.looked as l (policy_id, counted_at, due, exact, oldest)
  select g.policy_id, clock_timestamp(), counted.due, counted.exact, case when isfinite(counted.oldest) then counted.oldest end
    from lapse.gate g
   where g.policy_id = counted.policy and g.version = counted.version and g.state <> 'dropped'
  on conflict (policy_id) do update
     set counted_at = excluded.counted_at, due = excluded.due, exact = excluded.exact, oldest = excluded.oldest;
end
$lapse$;
comment on function lapse.counted is 'Records how much is due under a policy that cannot delete. For the executor.';

-- tree stores how a partitioned table is divided: for each leaf, the range that its bounds allow for a column. Its signature covers only
-- pg_inherits: bounds change only when a partition is detached and attached again.
create table lapse.tree (
  id         bigint generated always as identity primary key,
  policy_id  int not null,
  version    int not null,
  ordered_by name not null,
  signature  bytea not null,
  parents    oid[] not null,
  leaves     oid[] not null,
  floors     timestamp[] not null,
  ceilings   timestamp[] not null
);
create index on lapse.tree (policy_id, version, ordered_by, id);
comment on table lapse.tree is 'How partitioned tables are divided, so that a look leaves out partitions that cannot have due rows.';
comment on column lapse.tree.id is 'The newest of a policy version counts.';
comment on column lapse.tree.policy_id is 'The policy.';
comment on column lapse.tree.version is 'Its version.';
comment on column lapse.tree.ordered_by is 'The column that the bounds are of.';
comment on column lapse.tree.signature is 'Digest of the row versions of pg_inherits below parents.';
comment on column lapse.tree.parents is 'The partitioned tables: the policy''s and those below it.';
comment on column lapse.tree.leaves is 'The relations that hold rows.';
comment on column lapse.tree.floors is 'For each leaf, what its bounds let the column be at least, in UTC; null: anything.';
comment on column lapse.tree.ceilings is 'For each leaf, what its bounds let the column be at most, in UTC; null: anything.';

create function lapse.tree_signature(parents oid[]) returns bytea
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $lapse$
begin
  return (select sha256(convert_to(coalesce(string_agg(r.at, ''), ''), 'UTF8'))
            from unnest(parents) v(oid)
           cross join lateral (select concat(i.xmin, i.ctid) as at from pg_inherits i where i.inhparent = v.oid offset 0) r);
end
$lapse$;
comment on function lapse.tree_signature is 'Digest of the row versions of pg_inherits below these tables.';

-- tree_of computes how a table is divided. It ignores bounds on another column, and bounds that are no instants. It passes no relation to
-- pg_get_expr, which would lock it: a lock on one partition must not block the look at the others.
create function lapse.tree_of(root oid, ordered_by name)
returns table (signature bytea, parents oid[], leaves oid[], floors timestamp[], ceilings timestamp[])
language plpgsql stable
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set jit = off
as $lapse$
#variable_conflict use_variable
begin
  with recursive tree(relation, kind, floor, ceiling) as (
    select c.oid, c.relkind, null::timestamp, null::timestamp from pg_class c where c.oid = root
    union all
    select c.oid, c.relkind, greatest(tree.floor, b.range[1]::timestamp), least(tree.ceiling, b.range[2]::timestamp)
      from tree
      join pg_inherits i on i.inhparent = tree.relation and not i.inhdetachpending
      join pg_class c on c.oid = i.inhrelid and c.relispartition
      left join pg_partitioned_table k on k.partrelid = tree.relation
      left join pg_attribute a on a.attrelid = k.partrelid and a.attnum = k.partattrs[0] and k.partstrat = 'r'
            and a.attname = ordered_by and a.atttypid in ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype)
     cross join lateral (
       select case when a.attnum is not null then
                regexp_match(pg_get_expr(c.relpartbound, 0),
                  $re$^FOR VALUES FROM \((?:'([^']*)'|MINVALUE)(?:, .*)?\) TO \((?:'([^']*)'|MAXVALUE)(?:, .*)?\)$$re$) end as range
     ) b
  )
  select array_agg(tree.relation order by tree.relation) filter (where tree.kind = 'p'),
         array_agg(tree.relation order by tree.relation) filter (where tree.kind <> 'p'),
         array_agg(tree.floor order by tree.relation) filter (where tree.kind <> 'p'),
         array_agg(tree.ceiling order by tree.relation) filter (where tree.kind <> 'p')
    into parents, leaves, floors, ceilings
    from tree;
  parents := coalesce(parents, '{}');
  leaves := coalesce(leaves, '{}');
  floors := coalesce(floors, '{}');
  ceilings := coalesce(ceilings, '{}');
  signature := lapse.tree_signature(parents);
  return next;
end
$lapse$;
comment on function lapse.tree_of is 'How a partitioned table is divided: its leaves, and between which instants their bounds let a column be.';

-- few_leaves is up to how many leaves are always read: that costs less than reading the statistics, which are a file on PostgreSQL 14.
create function lapse.few_leaves() returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
as $lapse$
  select 16::bigint
$lapse$;
comment on function lapse.few_leaves is 'Up to how many leaves that can have due rows are always read, whatever was written to them.';

-- filled removes leaves whose files are empty. Reading a file's size takes a lock, and a session that has locked one leaf must not block a look
-- at the others: then filled returns all of them.
create function lapse.filled(leaves oid[]) returns oid[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set lock_timeout = '1ms'
as $lapse$
begin
  return array(select l.leaf from unnest(leaves) l(leaf) where pg_relation_size(l.leaf) is distinct from 0);
exception
  when lock_not_available then
    return leaves;
end
$lapse$;
comment on function lapse.filled is 'Leaves whose files are not empty; all leaves if another session has locked one.';

-- candidates lists the leaves of a policy's table whose bounds allow the column to be at or below upto, with their names; all of them if upto
-- is null or the bounds say nothing. A row without a leaf means that the division is not stored; acquaint should store it.
--
-- If these are more than few_leaves, those with an empty file are left out. If they are still more, each gets a mark: a digest of how many
-- rows were ever written to it, by PostgreSQL's statistics. A leaf whose mark is in quiet is left out: the caller has read it, nothing was
-- due, and nothing was written since. It is settled if time alone will make none of its rows due, because its bounds keep the column at or
-- below that instant. Statistics come late, may be lost, and can be switched off. So a caller must not use a mark in quiet after until:
-- half the policy's latitude later.
create function lapse.candidates(policy int, version int, ordered_by name, upto timestamp, settled timestamp, quiet bigint[])
returns table (leaf oid, name text, mark bigint, settled_leaf boolean, until timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $lapse$
#variable_conflict use_variable
declare
  root   oid;
  tree   record;
  near   oid[];
  marked boolean;
  ends   timestamptz;
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may call this', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  -- Whether a table that is its own leaf is still the policy's, its entry says, which acquaint made. A look locks a sidecar before that.
  return query
  select c.oid, format('%I.%I', n.nspname, c.relname), null::bigint, false, null::timestamptz
    from lapse.policy p join pg_class c on c.oid = p.table_oid join pg_namespace n on n.oid = c.relnamespace
   where p.id = candidates.policy and p.version = candidates.version and p.joined = '[]' and c.relkind = 'r';
  if found then
    return;
  end if;
  root := lapse.same_table(candidates.policy, candidates.version);
  select x.leaves, x.floors, x.ceilings into tree
    from (select t.signature, t.parents, t.leaves, t.floors, t.ceilings
            from lapse.tree t
           where t.policy_id = candidates.policy and t.version = candidates.version and t.ordered_by = candidates.ordered_by
           order by t.id desc
           limit 1) x
   where x.signature = lapse.tree_signature(x.parents);
  if not found then
    return next;
    select x.leaves, x.floors, x.ceilings into tree from lapse.tree_of(root, candidates.ordered_by) x;
  end if;
  near := array(select l.leaf from unnest(tree.leaves, tree.floors) l(leaf, floor) where l.floor is null or candidates.upto is null or l.floor <= candidates.upto);
  if cardinality(near) > lapse.few_leaves() then
    near := lapse.filled(near);
  end if;
  marked := current_setting('track_counts')::boolean and cardinality(near) > lapse.few_leaves();
  ends := clock_timestamp() + lapse.half_latitude(candidates.policy, candidates.version);
  return query
  select c.oid, format('%I.%I', n.nspname, c.relname), l.mark, coalesce(l.ceiling <= candidates.settled, false), ends
    from (select l.leaf, l.ceiling,
                 case when marked then hashtextextended(concat_ws(' ', l.leaf, pg_relation_filenode(l.leaf), pg_postmaster_start_time(),
                   pg_stat_get_tuples_inserted(l.leaf), pg_stat_get_tuples_updated(l.leaf)), 0) end as mark
            from unnest(tree.leaves, tree.ceilings) l(leaf, ceiling)
           where l.leaf in (select e.leaf from unnest(near) e(leaf))
          offset 0) l
    join pg_class c on c.oid = l.leaf
    join pg_namespace n on n.oid = c.relnamespace
   where l.mark is null or l.mark not in (select q.mark from unnest(candidates.quiet) q(mark) where q.mark is not null)
   order by c.oid;
end
$lapse$;
comment on function lapse.candidates is 'Which leaves of a policy''s table can have due rows, by their bounds and by what was written to them. For looks.';

-- inspect makes, for a policy's whole table, the checks that check_leaf makes for one leaf, before a survey reads the table: for every leaf,
-- for every partitioned partition without leaves, and so for everything above them. It returns the table.
create function lapse.inspect(policy int, version int) returns oid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  root oid;
  ends oid[];
  stranger text;
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may count what is due', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  root := lapse.same_table(inspect.policy, inspect.version);
  ends := array(
    with recursive tree(relation) as (
      select root
      union
      select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.relation
    )
    select tree.relation from tree
     where not exists (select from pg_inherits i where i.inhparent = tree.relation)
       and (select f.signature from lapse.familiar(inspect.policy, inspect.version, tree.relation) f) is null);
  -- Of a leaf that is as it was when it was checked, the answer is known.
  if ends = '{}' then
    return root;
  end if;
  stranger := lapse.distrusted(inspect.policy, inspect.version, ends || lapse.joined(inspect.policy, inspect.version));
  if stranger is not null then
    raise exception '% would run, and is not what the policy was applied to', stranger using errcode = 'LP006';
  end if;
  return root;
end
$lapse$;
comment on function lapse.inspect is 'Makes the checks of check_leaf for a policy''s whole table, before a survey reads it.';

-- inspect_leaf says whether the checks of a leaf were made and hold, before a look reads it; name is the one that was locked. spared is as in
-- lapse.place. Without kept, spared is null: the leaf must not be read, and acquaint is to make the checks. low is as in lapse.place, and is valid
-- until low_until.
create function lapse.inspect_leaf(
  policy int, version int, leaf oid, name text, proof bytea, out spared text, out kept boolean, out low timestamptz, out low_until timestamptz
)
returns record
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  known record;
  has   record;
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may call this', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  known := lapse.familiar(inspect_leaf.policy, inspect_leaf.version, inspect_leaf.leaf);
  kept := known.signature is not null;
  -- Most leaves have none of these, and a function that finds out costs more than to look here. So does the question of who asks: it is left out
  -- where the answer is that nothing is known of any row.
  select exists (select from lapse.hold) as held,
         exists (select from lapse.quarantine q where q.policy_id = inspect_leaf.policy and q.leaf = inspect_leaf.leaf) as quarantined,
         exists (select from lapse.low_water l where l.policy_id = inspect_leaf.policy and l.leaf = inspect_leaf.leaf) as marked
    into has;
  if not kept or has.held or has.quarantined or has.marked then
    perform lapse.check_caller(inspect_leaf.policy, inspect_leaf.version, inspect_leaf.proof);
  end if;
  if not kept then
    return;
  end if;
  if known.name is distinct from inspect_leaf.name then
    raise exception '% is not a leaf of the policy''s table', inspect_leaf.name using errcode = 'LP005';
  end if;
  spared := concat_ws(' or ',
    case when has.held then lapse.held(inspect_leaf.policy, inspect_leaf.version, inspect_leaf.leaf) end,
    case when has.quarantined then lapse.quarantined(inspect_leaf.policy, inspect_leaf.version, inspect_leaf.leaf) end);
  if has.marked then
    select m.upto, m.until into low, low_until
      from lapse.low_mark(inspect_leaf.policy, inspect_leaf.version, inspect_leaf.leaf) m;
  end if;
end
$lapse$;
comment on function lapse.inspect_leaf is 'Whether a leaf''s checks were made and hold, before a look reads it, and which of its rows must stay.';
