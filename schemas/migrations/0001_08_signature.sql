-- The results of the catalog checks of batches, each with a signature: the row versions (xmin, ctid) of everything that was checked. A batch
-- reads those again, and repeats the checks only if one differs. PostgreSQL never reuses a row version's place and transaction for
-- other content, and what it changes in place (numbers of pages and rows) is not checked.
--
-- A check is a chain of look-ups by key: the triggers of this relation, the constraint of that trigger. The signature covers the rows of each
-- look-up, also of empty ones, for every relation that the chain leads to. So while it is the same, the chain leads to the same rows
-- and the same result. It does not cover pg_depend, because what an object depends on changes together with the object's own row. The
-- rows of roles are not readable, so it covers the property that matters: who is a superuser.
--
-- An entry is a fact, not a permission: with these row versions, the checks found nothing. Only lapse.check_leaf and lapse.acquaint write it,
-- and they make the checks themselves, in the signature's snapshot. Writers do not wait for each other: a leaf may have several entries,
-- and the newest counts.

create table lapse.examined (
  id        bigint generated always as identity primary key,
  policy_id int not null,
  version   int not null,
  leaf      oid not null,
  name      text not null,
  touched   oid[] not null,
  signature bytea not null,
  relations oid[] not null,
  parents   oid[] not null,
  functions oid[] not null,
  operators oid[] not null,
  types     oid[] not null
);
create index on lapse.examined (policy_id, version, leaf, id);
comment on table lapse.examined is 'What the catalog checks of batches found, and the row versions that they read.';
comment on column lapse.examined.id is 'The newest of a leaf counts.';
comment on column lapse.examined.policy_id is 'The policy.';
comment on column lapse.examined.version is 'Its version.';
comment on column lapse.examined.leaf is 'The partition, or the table itself.';
comment on column lapse.examined.name is 'The leaf''s name, with its schema, quoted.';
comment on column lapse.examined.touched is 'The relations whose rows a cascade deletes through foreign keys, in order.';
comment on column lapse.examined.signature is 'Digest of the row versions of all that was checked.';
comment on column lapse.examined.relations is 'The relations that were checked.';
comment on column lapse.examined.parents is 'Those of them whose partitions were read.';
comment on column lapse.examined.functions is 'The functions that may run there.';
comment on column lapse.examined.operators is 'The operators in expressions there.';
comment on column lapse.examined.types is 'The types of columns and expressions there, and what they are made of.';

-- signature is the digest of the row versions of relations and everything that belongs to them, and of functions, operators and types. The
-- rows come in the order of the catalog's indexes. If that order changed, it would only cost another check.
create function lapse.signature(relations oid[], parents oid[], functions oid[], operators oid[], types oid[]) returns bytea
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $lapse$
declare
  own  text;
  acts boolean;
  code text;
  more text;
begin
  -- Most tables have none of these, and PostgreSQL prepares each subquery whether it runs or not.
  if cardinality(parents || functions || operators || types) > 0 then
    code := concat(
      'below', (select string_agg(concat(r.xmin, r.ctid), '') from unnest(parents) v(oid)
                 cross join lateral (select i.xmin, i.ctid from pg_inherits i where i.inhparent = v.oid offset 0) r),
      'functions', (select string_agg(concat(r.xmin, r.ctid, n.xmin, n.ctid, o.rolsuper), '') from unnest(functions) v(oid)
                     cross join lateral (select f.xmin, f.ctid, f.pronamespace, f.proowner from pg_proc f where f.oid = v.oid offset 0) r
                     cross join lateral (select s.xmin, s.ctid from pg_namespace s where s.oid = r.pronamespace offset 0) n
                     cross join lateral (select u.rolsuper from pg_roles u where u.oid = r.proowner offset 0) o),
      'operators', (select string_agg(concat(r.xmin, r.ctid), '') from unnest(operators) v(oid)
                     cross join lateral (select o.xmin, o.ctid from pg_operator o where o.oid = v.oid offset 0) r),
      'types', (select string_agg(concat(r.xmin, r.ctid), '') from unnest(types) v(oid)
                 cross join lateral (select y.xmin, y.ctid from pg_type y where y.oid = v.oid offset 0) r),
      'domains', (select string_agg(concat(r.xmin, r.ctid), '') from unnest(types) v(oid)
                   cross join lateral (select c.xmin, c.ctid from pg_constraint c where c.contypid = v.oid offset 0) r),
      'labels', (select string_agg(concat(r.xmin, r.ctid), '') from unnest(types) v(oid)
                  cross join lateral (select e.xmin, e.ctid from pg_enum e where e.enumtypid = v.oid offset 0) r));
  end if;
  -- One list: PostgreSQL prepares each subquery with an aggregate of its own, which costs more than its rows.
  select string_agg(concat(r.kind, r.at), ''), bool_or(r.acts) into own, acts
    from (select 'relation' as kind, concat(c.xmin, c.ctid, n.xmin, n.ctid) as at,
                 c.relhastriggers or c.relhasrules or c.relchecks > 0 or c.relkind = 'p' as acts
            from pg_class c
           cross join lateral (select n.xmin, n.ctid from pg_namespace n where n.oid = c.relnamespace offset 0) n
           where c.oid = any (relations)
           union all
          select 'column', concat(a.xmin, a.ctid), null from pg_attribute a where a.attrelid = any (relations) and a.attnum > 0
           union all
          select 'index', concat(i.xmin, i.ctid), null from pg_index i where i.indrelid = any (relations)
           union all
          select 'default', concat(d.xmin, d.ctid), null from pg_attrdef d where d.adrelid = any (relations)
           union all
          select 'statistics', concat(s.xmin, s.ctid), null from pg_statistic_ext s where s.stxrelid = any (relations)
           union all
          select 'above', concat(i.xmin, i.ctid), null from pg_inherits i where i.inhrelid = any (relations)
           union all
          select 'published', concat(m.xmin, m.ctid), null from pg_publication_rel m where m.prrelid = any (relations)
           union all
          select 'publication', concat(p.xmin, p.ctid), null from pg_publication p where p.pubname in ('lapse_changes', 'lapse_deletes')
           union all
          -- Those that others than PostgreSQL made, of whatever types: there is no index by the target, and few of them.
          select 'cast', concat(c.xmin, c.ctid), null from pg_cast c where c.oid >= 16384
           union all
          select 'collation', concat(c.xmin, c.ctid), null from pg_collation c where c.oid >= 16384
           union all
          select 'audited', i.audit_required::text, null from lapse.installation i) r;
  -- A relation's first trigger, rule or check makes another version of its row in pg_class.
  if acts then
    more := (
      select string_agg(concat(r.kind, r.at), '')
        from (select 'trigger' as kind, concat(t.xmin, t.ctid, c.xmin, c.ctid) as at
                from pg_trigger t
                left join lateral (select c.xmin, c.ctid from pg_constraint c where c.oid = t.tgconstraint offset 0) c on true
               where t.tgrelid = any (relations)
               union all
              select 'rule', concat(w.xmin, w.ctid) from pg_rewrite w where w.ev_class = any (relations)
               union all
              -- A table that refers to a partitioned one has a constraint for each partition; none of them is a check.
              select 'constraint', concat(c.xmin, c.ctid)
                from (select c.oid from pg_class c where c.oid = any (relations) and (c.relchecks > 0 or c.relkind = 'p') offset 0) r
               cross join lateral (select c.xmin, c.ctid from pg_constraint c where c.conrelid = r.oid offset 0) c) r);
  end if;
  return sha256(convert_to(concat(own, 'more', more, 'code', code), 'UTF8'));
end
$lapse$;
comment on function lapse.signature is 'Digest of the catalog''s row versions of these relations, functions, operators and types.';

-- familiar returns the newest entry of a leaf if nothing that was checked has changed; otherwise nulls.
create function lapse.familiar(policy int, version int, leaf oid, out name text, out touched oid[], out signature bytea) returns record
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  e record;
begin
  select x.name, x.touched, x.signature, x.relations, x.parents, x.functions, x.operators, x.types into e
    from lapse.examined x
   where x.policy_id = familiar.policy and x.version = familiar.version and x.leaf = familiar.leaf
   order by x.id desc
   limit 1;
  if e.signature = lapse.signature(e.relations, e.parents, e.functions, e.operators, e.types) then
    name := e.name;
    touched := e.touched;
    signature := e.signature;
  end if;
end
$lapse$;
comment on function lapse.familiar is 'The entry of a leaf, if nothing that was checked has changed since.';

-- unpromised returns a column that the policy promises in its events or as evidence, but that a leaf's replica identity lacks; null for none.
-- The log contains only the columns of the replica identity.
create function lapse.unpromised(policy int, version int, leaf oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return (
    select min(quote_ident(w.name))
      from lapse.policy v
     cross join lateral (
       select jsonb_array_elements_text(v.spec -> 'events' -> 'columns')
       union
       select v.spec -> 'due' ->> 'column'
     ) w(name)
     where v.id = unpromised.policy and v.version = unpromised.version and w.name is not null
       and not exists (
         select from pg_class c
           join pg_index i on i.indrelid = c.oid and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident else false end
           join pg_attribute a on a.attrelid = c.oid and a.attnum = any ((i.indkey::int2[])[0:i.indnkeyatts - 1])
          where c.oid = unpromised.leaf and a.attname = w.name));
end
$lapse$;
comment on function lapse.unpromised is 'A column of the policy''s evidence that the leaf''s replica identity does not have.';

-- examine makes all the checks of each of some leaves, and returns the contents of their entries. It raises an error if a check fails. What is the
-- same for all of them is read once.
create function lapse.examine(policy int, version int, leaves oid[])
returns table (leaf oid, name text, touched oid[], signature bytea, relations oid[], parents oid[], functions oid[], operators oid[], types oid[])
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  root     oid := lapse.same_table(examine.policy, examine.version);
  beside   oid[] := lapse.joined(examine.policy, examine.version);
  soft     boolean := lapse.sets(examine.policy, examine.version);
  hidden   boolean := exists (select from lapse.unseen(examine.leaves, soft));
  around   record;
  stranger text;
  key      text;
begin
  for around in
    select s.leaf, bool_or(s.part = 'intruder') as intruders,
           coalesce(array_agg(distinct s.relation) filter (where s.part = 'along' and s.deletes), '{}') as touched,
           array_agg(distinct s.relation) as relations,
           coalesce(array_agg(distinct s.relation) filter (where s.part = 'beyond'), '{}') as parents,
           coalesce(array_agg(distinct s.object) filter (where s.part = 'used' and s.class = 'pg_proc'::regclass), '{}') as functions,
           coalesce(array_agg(distinct s.object) filter (where s.part = 'used' and s.class = 'pg_operator'::regclass), '{}') as operators,
           coalesce(array_agg(distinct s.object) filter (where s.part = 'used' and s.class = 'pg_type'::regclass), '{}') as types
      from lapse.surroundings(examine.leaves, beside, soft) s
     group by s.leaf
  loop
    leaf := around.leaf;
    select format('%I.%I', n.nspname, c.relname) into name
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where c.oid = examine.leaf and c.relkind = 'r';
    if name is null
       or examine.leaf <> root and not exists (select from pg_partition_ancestors(examine.leaf) a where a.relid = root) then
      raise exception '% is not a leaf of the policy''s table', coalesce(name, examine.leaf::text) using errcode = 'LP005';
    end if;
    if hidden and exists (select from lapse.unseen(array[examine.leaf], soft)) then
      raise exception '% of % or of what its foreign keys reach would not be seen by the audit', case when soft then 'updates' else 'deletes' end, name
        using errcode = 'LP012';
    end if;
    key := lapse.unpromised(examine.policy, examine.version, examine.leaf);
    if key is not null then
      raise exception 'column % of % has left the replica identity, and the policy promises it in the evidence', key, name using errcode = 'LP012';
    end if;
    stranger := case when around.intruders then lapse.distrusted(examine.policy, examine.version, array[examine.leaf] || beside) end;
    if stranger is not null then
      raise exception '% would run inside the deletion from %, and is not what the policy was applied to', stranger, name
        using errcode = 'LP006';
    end if;
    key := case when soft then lapse.set_key(examine.policy, examine.version, examine.leaf) end;
    if key is not null then
      raise exception 'the column of % that the policy sets has come into foreign key %', name, key using errcode = 'LP011';
    end if;
    touched := around.touched;
    if beside <> '{}' then -- a claim names what is reached from the leaf alone
      touched := array(select r.relation from lapse.reach(array[examine.leaf]) r where r.deletes and not soft order by r.relation);
    end if;
    relations := array(select distinct r.oid from unnest(around.relations || root) r(oid) order by r.oid);
    parents := around.parents;
    functions := around.functions || array(select distinct t.tgfoid from unnest(relations) v(oid) join pg_trigger t on t.tgrelid = v.oid order by t.tgfoid);
    operators := around.operators;
    types := case when around.types = '{}' then '{}' else array(select lapse.parts(around.types)) end;
    signature := lapse.signature(relations, parents, functions, operators, types);
    return next;
  end loop;
end
$lapse$;
comment on function lapse.examine is 'Makes all the checks of leaves, and says what was checked.';

-- keep makes the checks of leaves and writes their entries. It deletes older entries, unless another session is writing there.
create function lapse.keep(policy int, version int, leaves oid[]) returns table (name text, touched oid[], signature bytea)
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  delete from lapse.examined e
   where e.id in (select x.id from lapse.examined x
                   where x.policy_id = keep.policy and x.leaf = any (keep.leaves)
                     for update skip locked);
  -- One statement: checks and signature are of one snapshot.
  return query
  insert into lapse.examined as e (policy_id, version, leaf, name, touched, signature, relations, parents, functions, operators, types)
  select keep.policy, keep.version, x.leaf, x.name, x.touched, x.signature, x.relations, x.parents, x.functions, x.operators, x.types
    from lapse.examine(keep.policy, keep.version, keep.leaves) x
  returning e.name, e.touched, e.signature;
end
$lapse$;
comment on function lapse.keep is 'Checks leaves and keeps what it finds.';

-- acquaint makes entries for those leaves of a policy that have no valid one, and stores how the policy's table is divided by a column, so that
-- looks and batches need not find out again. It stores names as batches quote them, whatever the caller's settings. It raises the errors
-- of examine. A crash keeps the entries that former calls made.
create function lapse.acquaint(policy int, version int, leaves oid[], ordered_by name) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
as $lapse$
declare
  fresh oid[];
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may call this', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  perform lapse.follow_holds();
  fresh := array(select l.leaf from unnest(acquaint.leaves) l(leaf)
                  where (select f.signature from lapse.familiar(acquaint.policy, acquaint.version, l.leaf) f) is null);
  if fresh <> '{}' then
    perform lapse.keep(acquaint.policy, acquaint.version, fresh);
  end if;
  if acquaint.ordered_by is not null then
    delete from lapse.tree t
     where t.id in (select x.id from lapse.tree x where x.policy_id = acquaint.policy for update skip locked);
    insert into lapse.tree (policy_id, version, ordered_by, signature, parents, leaves, floors, ceilings)
    select acquaint.policy, acquaint.version, acquaint.ordered_by, x.signature, x.parents, x.leaves, x.floors, x.ceilings
      from lapse.tree_of(lapse.same_table(acquaint.policy, acquaint.version), acquaint.ordered_by) x;
    delete from lapse.low_water l where l.policy_id = acquaint.policy and not exists (select from pg_class c where c.oid = l.leaf);
  end if;
end
$lapse$;
comment on function lapse.acquaint is 'Checks leaves of a policy, and keeps what it finds. For the executor.';
