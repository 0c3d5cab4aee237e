-- In two cases a batch locks, before the deletion, the rows that it deletes or changes through foreign keys: if a hold is on a table that the
-- deletion reaches, so that a row cannot come under the hold unnoticed; and if a batch failed because of such rows (work.careful). It leaves
-- out a row of the target if another session has locked rows that belong to it, or if rows that stay refer to it, and deletes the others.
--
-- It locks the rows of the target first, then what refers to them, step by step, each with FOR UPDATE SKIP LOCKED. No session can make a
-- row refer to one that is locked like that, so each step sees all rows that there will be. The DELETE is a new statement: what it reads
-- about holds is true for rows that no other session can change any more.

-- ways returns the foreign keys that a deletion of rows of a table follows, as they were defined; root is the table, or the root of the
-- partitions. If toward is given, these are the keys through which rows of these tables are deleted, and the named ones; otherwise all, also
-- those that only set a column (does: n, d) or keep the row (does: a, r). Each comes with names and the condition that finds a child c
-- of a row p.
create function lapse.ways(root oid, toward oid[], named oid[]) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return (
  with recursive k as materialized (
    select c.oid, c.conrelid, c.confrelid, c.conkey, c.confkey, c.conpfeqop, c.confdeltype::text as does,
           coalesce(pg_partition_root(c.conrelid)::oid, c.conrelid) as child, coalesce(pg_partition_root(c.confrelid)::oid, c.confrelid) as parent
      from pg_constraint c
     where c.contype = 'f' and c.conparentid = 0 and (c.confdeltype = 'c' or ways.toward is null or c.oid = any (ways.named))
       and coalesce((to_jsonb(c) ->> 'conenforced')::boolean, true) -- PostgreSQL 18 has keys that keep nothing
  ), down(node) as (
    select ways.root
    union
    select k.child from down join k on k.parent = down.node where k.does = 'c'
  ), up(node) as (
    select unnest(ways.toward)
    union
    select k.parent from up join k on k.child = up.node
  )
  select jsonb_agg(jsonb_build_object(
           'key', k.oid, 'does', k.does, 'parent', k.parent, 'child', k.child, 'refers', k.confrelid,
           'from', k.conrelid, 'only', c.relkind = 'r', 'name', format('%I.%I', n.nspname, c.relname),
           'to', case when f.relkind = 'r' then 'only ' else '' end || format('%I.%I', m.nspname, f.relname),
           'on', e.condition, 'trusted', e.trusted, 'width', cardinality(k.conkey),
           'column', (select quote_ident(a.attname) from pg_attribute a where a.attrelid = k.conrelid and a.attnum = k.conkey[1]))
           order by k.conrelid, k.confrelid, k.conkey, k.oid)
    from k
    join down on down.node = k.parent
    join pg_class c on c.oid = k.conrelid
    join pg_namespace n on n.oid = c.relnamespace
    join pg_class f on f.oid = k.confrelid
    join pg_namespace m on m.oid = f.relnamespace
   cross join lateral (
     select string_agg(format('%%s.%s operator(%s.%s) c.%s', replace(quote_ident(y.attname), '%', '%%'),
                              replace(quote_ident(s.nspname), '%', '%%'), replace(o.oprname, '%', '%%'),
                              replace(quote_ident(x.attname), '%', '%%')), ' and ' order by q.n) as condition,
            bool_and(u.rolsuper) as trusted
       from unnest(k.conkey, k.confkey, k.conpfeqop) with ordinality q(near, far, operator, n)
       join pg_attribute x on x.attrelid = k.conrelid and x.attnum = q.near
       join pg_attribute y on y.attrelid = k.confrelid and y.attnum = q.far
       join pg_operator o on o.oid = q.operator
       join pg_namespace s on s.oid = o.oprnamespace
       join pg_proc r on r.oid = o.oprcode
       join pg_roles u on u.oid = r.proowner
   ) e
   where ways.toward is null or k.child in (select up.node from up));
end
$lapse$;
comment on function lapse.ways is 'The foreign keys that a deletion of rows of a table follows: all, or those to some tables.';

-- to_lock returns the foreign keys along which a batch locks what a cascade deletes; null if it locks nothing. A careful batch locks along every
-- key that the deleter may lock along: it may read each child, and may update a column of it, as locking a row that is deleted or set
-- requires. Keys whose check would run an operator of the application are left out.
create function lapse.to_lock(policy int, version int, claim lapse.claim, careful boolean) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  root   oid := coalesce(pg_partition_root(claim.target)::oid, claim.target);
  reader name := lapse.deleter_of(to_lock.policy, to_lock.version);
  holds  int[] := array(select e.hold from lapse.enforced_holds() e);
  toward oid[];
  sets   oid[];
  ways   jsonb;
begin
  if lapse.sets(to_lock.policy, to_lock.version) then
    return null;
  end if;
  toward := array(
    select n.node
      from (select distinct coalesce(pg_partition_root(c.oid)::oid, c.oid) as node from unnest(claim.cascades) c(oid) where holds <> '{}' offset 0) n
     where lapse.held_on(n.node, holds) is not null);
  sets := array(select r.relation from lapse.reach(array[claim.target]) r where not r.deletes and holds <> '{}');
  toward := toward || array(select o.child from lapse.overwrites(sets) o);
  if toward <> '{}' then
    ways := lapse.ways(root, toward, array(select o.key from lapse.overwrites(sets) o));
  end if;
  if not careful then
    return ways;
  end if;
  return (select jsonb_agg(distinct a.way)
            from (select jsonb_array_elements(ways)
                  union all
                  select w
                    from jsonb_array_elements(lapse.ways(root, null, null)) w
                    join pg_class c on c.oid = (w ->> 'from')::oid
                   where (w ->> 'trusted')::boolean and has_schema_privilege(reader, c.relnamespace, 'usage') and has_table_privilege(reader, c.oid, 'select')
                     and (w ->> 'does' in ('a', 'r') or has_any_column_privilege(reader, c.oid, 'update'))) a(way));
end
$lapse$;
comment on function lapse.to_lock is 'The foreign keys along which a batch locks what a cascade deletes; null if it locks nothing.';

-- answers is SQL that finds the rows of a leaf that refer to its row at d.at and so keep it; null if there are none.
create function lapse.answers(leaf oid, ways jsonb) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $lapse$
  select string_agg(format('select c.ctid as at from only %1$s as p join only %1$s as c on %2$s where p.ctid = d.at', l.name,
                           (select format(w ->> 'on', variadic array_fill('p'::text, array[(w ->> 'width')::int])))), ' union all ' order by w::text)
    from jsonb_array_elements(ways) w
   cross join (select format('%I.%I', n.nspname, c.relname) as name from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = leaf) l
   where w ->> 'does' in ('a', 'r')
     and ((w ->> 'refers')::oid = leaf or exists (select from pg_partition_ancestors(leaf) a where a.relid = (w ->> 'refers')::oid))
     and ((w ->> 'from')::oid = leaf or exists (select from pg_partition_ancestors(leaf) a where a.relid = (w ->> 'from')::oid))
$lapse$;
comment on function lapse.answers is 'SQL that finds the rows of a leaf that refer to another of its rows and so keep it; null if no foreign key does.';

-- readable returns the name that a statement of the caller uses to read a relation's rows, filtered by tableoid: the relation itself, or the
-- nearest table above it that the caller may read and lock.
create function lapse.readable(relation oid) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $lapse$
  select case when c.relkind = 'r' then 'only ' else '' end || format('%I.%I', n.nspname, c.relname)
    from (select readable.relation as oid, 0 as n union select a.relid, a.n::int from pg_partition_ancestors(readable.relation) with ordinality a(relid, n)) r
    join pg_class c on c.oid = r.oid
    join pg_namespace n on n.oid = c.relnamespace
   order by not (has_table_privilege(c.oid, 'select') and has_any_column_privilege(c.oid, 'update')), r.n
   limit 1
$lapse$;
comment on function lapse.readable is 'A relation, or the next one above it that the caller may lock rows of, as a statement names it.';

-- locker returns a process that locks, or is changing, one of some rows; null if there is none any more. A row that several transactions
-- lock only has a multixact number, which names all of them.
create function lapse.locker(relation oid, rows_at tid[]) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  holders xid[];
  process int;
begin
  execute format('select array_agg(c.xmax) from (select x.xmax from %s as x where x.tableoid = $1 and x.ctid = any ($2) limit 100) c where c.xmax::text <> ''0''',
    lapse.readable(locker.relation)) into holders using locker.relation, locker.rows_at;
  select l.pid into process
    from pg_locks l
   where l.locktype = 'transactionid' and l.transactionid = any (holders) and l.granted and l.mode = 'ExclusiveLock' and l.pid <> pg_backend_pid()
   order by l.pid
   limit 1;
  if process is null and cardinality(holders) > 0 then
    select l.pid into process
      from unnest(holders) h(id)
     cross join lateral pg_get_multixact_members(h.id) m
      join pg_locks l on l.locktype = 'transactionid' and l.transactionid = m.xid and l.granted and l.mode = 'ExclusiveLock'
     where l.pid <> pg_backend_pid()
     order by l.pid
     limit 1;
  end if;
  return process;
exception when others then -- it was no number of several, or is none any more
  return null;
end
$lapse$;
comment on function lapse.locker is 'The process that has locked one of some rows, if it can be found.';

create function lapse.lock_along(leaf oid, rows_at tid[], ways jsonb) returns lapse.along
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  -- The rows of one step, each with the row of the leaf that it goes with.
  seeds tid[] := rows_at;
  rels  oid[] := array_fill(leaf, array[cardinality(rows_at)]);
  ats   tid[] := rows_at;
  -- Those of all steps; what they lead to, and by what; and what keeps them.
  all_seeds tid[] := '{}'; all_rels oid[] := '{}'; all_ats tid[] := '{}';
  found_seeds tid[]; found_rels oid[]; found_ats tid[]; found_go boolean[];
  kept_seeds tid[] := '{}'; kept_rels oid[] := '{}'; kept_ats tid[] := '{}'; kept_by oid[] := '{}';
  some_seeds tid[]; some_rels oid[]; some_ats tid[];
  got   tid[];
  lost  tid[] := '{}';
  way   record;
  keys  oid[];
  along lapse.along;
begin
  loop
    found_seeds := '{}'; found_rels := '{}'; found_ats := '{}'; found_go := '{}';
    for way in
      select r.rel, w.*
        from (select distinct u.rel from unnest(rels) u(rel)) r
        join jsonb_to_recordset(ways) as w(key oid, does text, refers oid, name text, "only" boolean, "on" text, width int)
          on w.refers = r.rel or exists (select from pg_partition_ancestors(r.rel) a where a.relid = w.refers)
    loop
      -- From the one row to what refers to it, as the deletion itself goes: never the other way round.
      execute format('select array_agg(f.seed), array_agg(x.rel), array_agg(x.at) from unnest($1, $2, $3) f(seed, rel, at)
         cross join lateral (select c.tableoid as rel, c.ctid as at from %s as p join %s as c on %s where p.tableoid = $4 and p.ctid = f.at offset 0) x
         where f.rel = $4', lapse.readable(way.rel), case when way.only then 'only ' else '' end || way.name,
         (select format(way."on", variadic array_fill('p'::text, array[way.width]))))
        into some_seeds, some_rels, some_ats using seeds, rels, ats, way.rel;
      perform lapse.pin();
      continue when some_seeds is null;
      if way.does in ('a', 'r') then
        kept_seeds := kept_seeds || some_seeds; kept_rels := kept_rels || some_rels; kept_ats := kept_ats || some_ats;
        kept_by := kept_by || array_fill(way.key, array[cardinality(some_ats)]);
      else
        found_seeds := found_seeds || some_seeds; found_rels := found_rels || some_rels; found_ats := found_ats || some_ats;
        found_go := found_go || array_fill(way.does = 'c', array[cardinality(some_ats)]);
      end if;
    end loop;
    for way in select distinct f.rel from unnest(found_rels) f(rel) loop
      some_ats := array(select distinct f.at from unnest(found_rels, found_ats) f(rel, at) where f.rel = way.rel);
      execute format('select array_agg(l.at) from (select c.ctid as at from %s as c where c.tableoid = $1 and c.ctid = any ($2) for update skip locked) l',
        lapse.readable(way.rel)) into got using way.rel, some_ats;
      continue when cardinality(got) = cardinality(some_ats);
      some_ats := array(select unnest(some_ats) except select unnest(got));
      lost := lost || array(select f.seed from unnest(found_seeds, found_rels, found_ats) f(seed, rel, at)
                             where f.rel = way.rel and f.at in (select unnest(some_ats)));
      along.locker := coalesce(along.locker, lapse.locker(way.rel, some_ats));
    end loop;
    select array_agg(n.seed), array_agg(n.rel), array_agg(n.at) into seeds, rels, ats
      from (select f.seed, f.rel, f.at from unnest(found_seeds, found_rels, found_ats, found_go) f(seed, rel, at, go)
             where f.go and f.seed not in (select unnest(lost))
            except select a.seed, a.rel, a.at from unnest(all_seeds, all_rels, all_ats) a(seed, rel, at)) n;
    exit when seeds is null;
    all_seeds := all_seeds || seeds; all_rels := all_rels || rels; all_ats := all_ats || ats;
  end loop;
  along.free := array(select unnest(rows_at) except select unnest(lost));
  along.referred := '{}';
  if kept_seeds <> '{}' then
    select coalesce(array_agg(k.seed order by k.seed), '{}'), array_agg(k.by order by k.seed) into some_seeds, keys
      from lapse.kept_by(array[leaf], along.free, all_seeds, all_rels, all_ats, kept_seeds, kept_rels, kept_ats, kept_by) k;
    along.referred := some_seeds;
    along.keys := keys;
    along.free := array(select unnest(along.free) except select unnest(along.referred));
  end if;
  along.locked := array(select a.rel from (select distinct x.rel, x.at from unnest(all_seeds, all_rels, all_ats) x(seed, rel, at) where x.seed in (select unnest(along.free))) a);
  return along;
end
$lapse$;
comment on function lapse.lock_along is 'Locks what a cascade would delete with rows of a leaf, and returns the rows for which that succeeded.';

-- kept_by returns the rows of a leaf that cannot be deleted because rows refer to them that are not deleted too, or only together with a row
-- that itself cannot be deleted. The arrays kept_* are the references that keep a row, each with
-- its row of the leaf.
create function lapse.kept_by(leaf oid[], free tid[], all_seeds tid[], all_rels oid[], all_ats tid[],
                              kept_seeds tid[], kept_rels oid[], kept_ats tid[], kept_by oid[])
returns table (seed tid, by oid)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_nestloop = off
as $lapse$
  with recursive going as materialized (
    select f.at as seed, leaf[1] as rel, f.at from unnest(free) f(at)
    union
    select a.seed, a.rel, a.at from unnest(all_seeds, all_rels, all_ats) a(seed, rel, at) where a.seed in (select unnest(free))
  ), kept as materialized (
    select distinct k.seed, k.rel, k.at, k.by from unnest(kept_seeds, kept_rels, kept_ats, kept_by) k(seed, rel, at, by) where k.seed in (select unnest(free))
  ), bad(seed, by) as (
    select k.seed, k.by from kept k left join going g on g.rel = k.rel and g.at = k.at where g.seed is null
    union
    select k.seed, k.by from bad b join going g on g.seed = b.seed join kept k on k.rel = g.rel and k.at = g.at
  )
  select b.seed, min(b.by) from bad b group by b.seed
$lapse$;
comment on function lapse.kept_by is 'The rows of a leaf that cannot be deleted because rows that stay refer to them.';

-- lock_rows locks the rows of a batch before the batch is recorded. It leaves out rows that other sessions have locked or changed and, if there
-- are ways, rows for which a row that a cascade deletes is locked, or that rows that stay refer to. It deletes nothing. source, due, lock and
-- key are parts of the deletion function's own text: the tables, the whole condition, the locking clause, and a row's key.
create function lapse.lock_rows(claim lapse.claim, work lapse.work, place lapse.place, aim lapse.aim, bound anyelement, source text, due text, lock text, key text)
returns lapse.aim
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  locks text := 'select coalesce(array_agg(p.at), ''{}'') from (select t.ctid as at from ' || source || ' where t.ctid = any ($7) and ' || due || ' ' || lock || ') p';
  tried tid[] := aim.rows_at;
  whole boolean := place.answers is null;
  along lapse.along;
  keys  text[];
begin
  execute locks into aim.rows_at using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, tried, place.modulus, place.remainder;
  perform lapse.pin();
  if aim.counted > cardinality(aim.rows_at) then
    aim.more := true;
    aim.locker := lapse.locker(claim.target, array(select unnest(tried) except select unnest(aim.rows_at)));
  end if;
  aim.counted := cardinality(aim.rows_at);
  if work.step_over then
    execute 'select ' || key || ' from only ' || place.leaf || ' as t where t.tableoid = $1 and t.ctid = any ($2)' into aim.key using claim.target, aim.rows_at;
    perform lapse.pin();
  end if;
  if place.ways is null or aim.counted = 0 then
    return aim;
  end if;
  -- What a cascade deletes is locked too. The DELETE then asks the holds, of rows that nobody can change any more.
  along := lapse.lock_along(claim.target, aim.rows_at, place.ways);
  perform lapse.pin();
  if along.free = '{}' and along.referred <> '{}' and place.answers is not null then
    -- What keeps them are rows of this leaf: where these are due all go, the last ones first, as many as one batch may delete.
    execute 'with recursive d(at) as (select unnest($7)
       union select n.at from d cross join lateral (' || place.answers || ' offset 0) n where exists (select from ' || source || ' where t.ctid = n.at and ' || due || '))
      select array_agg(s.at) from (select d.at from d limit $4 + 10000) s'
      into tried using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, place.modulus, place.remainder;
    perform lapse.pin();
    whole := cardinality(tried) < work.row_limit + 10000;
    execute locks into aim.rows_at using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, tried, place.modulus, place.remainder;
    perform lapse.pin();
    aim.more := aim.more or cardinality(aim.rows_at) < cardinality(tried);
    along := lapse.lock_along(claim.target, aim.rows_at, place.ways);
    perform lapse.pin();
  end if;
  aim.locker := coalesce(aim.locker, along.locker);
  aim.more := aim.more or cardinality(along.free || along.referred) < cardinality(aim.rows_at) or along.referred <> '{}' and not whole;
  if along.referred <> '{}' and whole then
    execute 'select array_agg((' || key || ')::text order by t.ctid) from only ' || place.leaf || ' as t where t.tableoid = $1 and t.ctid = any ($2)'
      into keys using claim.target, along.referred;
    perform lapse.pin();
    aim.quarantined := lapse.quarantine_kept(claim, work, keys, along.keys);
  end if;
  if cardinality(along.free) > work.row_limit then
    aim.again := true;
    aim.rows_at := array(select u.at from unnest(tried) with ordinality u(at, n) where u.at in (select unnest(along.free)) order by u.n desc limit work.row_limit);
    along := lapse.lock_along(claim.target, aim.rows_at, place.ways);
    perform lapse.pin();
    aim.more := aim.more or cardinality(along.free) < cardinality(aim.rows_at); -- a circle that is longer than a batch
  end if;
  aim.rows_at := along.free;
  aim.locked := along.locked;
  aim.counted := cardinality(aim.rows_at);
  return aim;
end
$lapse$;
comment on function lapse.lock_rows is 'Locks the rows of a batch, and what a cascade deletes with them, and leaves out what is locked or kept. For deletion functions.';

-- quarantine_kept enters rows of a careful batch that rows that stay refer to, as far as there is room: 10,000 of a policy's, in addition to
-- those whose deletion failed. Each run finds the others again, and they stop nothing: otherwise any login that may insert a row that refers to
-- a due one could stop the policy. The rows are tried again as those of lapse.resist are.
create function lapse.quarantine_kept(claim lapse.claim, work lapse.work, keys text[], by oid[]) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  shard record;
  at    timestamptz := clock_timestamp();
  room  bigint;
  rows  bigint;
begin
  select s.policy_id, s.run into shard
    from lapse.shard s
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target;
  if not found or not pg_has_role(session_user, {{.ExecutorText}}, 'member') or not coalesce(work.careful, false) then
    raise exception 'no batch that is careful was entered in this transaction' using errcode = 'LP018';
  end if;
  select 10000 - count(*) into room from lapse.quarantine q where q.policy_id = shard.policy_id and q.referred;
  insert into lapse.quarantine as q (policy_id, leaf, digest, key, sqlstate, relation, constraint_name, referred, retry_at)
  select shard.policy_id, claim.target, sha256(decode(replace(r.key, '\', '\\'), 'escape')), r.key::text[],
         case when k.confdeltype = 'r' and current_setting('server_version_num')::int >= 180000 then '23001' else '23503' end,
         format('%I.%I', n.nspname, c.relname), k.conname, true, at + interval '1 minute'
    from unnest(quarantine_kept.keys, quarantine_kept.by) with ordinality r(key, by, n)
    join pg_constraint k on k.oid = r.by
    join pg_class c on c.oid = k.conrelid
    join pg_namespace n on n.oid = c.relnamespace
   where r.n <= room
      or exists (select from lapse.quarantine o where o.policy_id = shard.policy_id and o.leaf = claim.target
                    and o.digest = sha256(decode(replace(r.key, '\', '\\'), 'escape')))
  on conflict (policy_id, leaf, digest) do update
     set sqlstate = excluded.sqlstate, relation = excluded.relation, constraint_name = excluded.constraint_name, column_name = null,
         trigger_name = null, trigger_function = null, referred = true, tries = q.tries + 1, tried_at = at,
         retry_at = at + least(interval '1 day', interval '1 minute' * 2 ^ least(q.tries, 11));
  get diagnostics rows = row_count;
  update lapse.shard s set left_some = true, stepped_over = s.stepped_over + rows where s.id = work.shard;
  return rows;
end
$lapse$;
comment on function lapse.quarantine_kept is 'Enters rows in the quarantine that rows that stay refer to. For deletion functions.';
