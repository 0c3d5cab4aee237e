-- What would run inside a deletion. Triggers, rules and functions that a policy trusts ("triggers: trusted") may: apply records them, and
-- a batch continues only if everything that would run is among them, unchanged.

-- surroundings lists, for each of leaves, what a deletion from that leaf and from the tables beside it (its targets) involves. 'along' are the
-- tables that foreign keys lead to; 'used' each object that PostgreSQL uses to plan or carry out the deletion, by the relation that it belongs
-- to, and that relation itself; 'beyond' the tables whose partitions were asked for, and what refers to them: a partitioned table may have no
-- partition now, but once it gets one, rows of it would be deleted; 'intruder' what would run inside: see intruders.
-- updates: the targets' rows are not deleted, but updated in a column that no key has, so foreign keys lead nowhere.
--
-- Each leaf is followed by itself, by a plan that is prepared once for all of them.
create function lapse.surroundings(leaves oid[], beside oid[], updates boolean)
returns table (leaf oid, part text, relation oid, deletes boolean, stays boolean, class oid, object oid, name name)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set work_mem = '64kB'
as $lapse$
#variable_conflict use_column
begin
  return query
  select l.leaf, n.part, n.relation, n.deletes, n.stays, n.class, n.object, n.name
    from unnest(leaves) l(leaf)
   cross join lateral (select array[l.leaf] || beside as targets offset 0) g
   cross join lateral (
     with recursive along as materialized (
       select r.relation, r.deletes from lapse.reach(g.targets) r where not updates
     ), reached(relation, deletes) as (
       select unnest(g.targets), not updates
       union
       select along.relation, along.deletes from along
     ), touched(relation, deletes) as (
       select reached.relation, reached.deletes from reached
       union
       select p.inhparent, touched.deletes
         from touched
        cross join lateral (select i.inhparent from pg_inherits i where i.inhrelid = touched.relation offset 0) p
        cross join lateral (select from pg_class c where c.oid = p.inhparent and c.relkind = 'p' offset 0) c
        where touched.relation not in (select unnest(g.targets))
     ), above(relation) as (
       select unnest(g.targets)
       union
       select p.inhparent
         from above
        cross join lateral (select i.inhparent from pg_inherits i where i.inhrelid = above.relation offset 0) p
     ), planned(relation, stays) as (
       select touched.relation, false from touched
       union
       select above.relation, false from above
       union
       select c.conrelid, true
         from (select touched.relation from touched union select above.relation from above) r
        cross join lateral (select t.tgconstraint from pg_trigger t where t.tgrelid = r.relation and t.tgconstraint <> 0 offset 0) t
        cross join lateral (
          select c.conrelid from pg_constraint c where c.oid = t.tgconstraint and c.contype = 'f' and c.confrelid = r.relation offset 0
        ) c
       union
       -- An update of a column with a default is looked up in the tables that the column refers to. Triggers name them; of the
       -- constraints there is one for each partition.
       select c.tgconstrrelid, true
         from (select r.relation from reached r where not r.deletes) r
        cross join lateral (
          select t.tgconstrrelid from pg_trigger t where t.tgrelid = r.relation and t.tgconstraint <> 0 and t.tgconstrrelid <> 0 offset 0
        ) c
        where c.tgconstrrelid not in (select above.relation from above)
       union
       select p.inhrelid, true
         from planned
        cross join lateral (select i.inhrelid from pg_inherits i where i.inhparent = planned.relation and planned.stays offset 0) p
     ), used(relation, stays, class, object) as (
       select planned.relation, planned.stays, 'pg_class'::regclass::oid, planned.relation from planned
       union
       select planned.relation, planned.stays, o.class, o.object
         from planned
        cross join lateral (
          select 'pg_class'::regclass::oid, i.indexrelid from pg_index i where i.indrelid = planned.relation
          union all
          select 'pg_statistic_ext'::regclass, s.oid from pg_statistic_ext s where s.stxrelid = planned.relation
          union all
          -- A table that refers to a partitioned one has a constraint for each partition; none of them is a check.
          select 'pg_constraint'::regclass, c.oid
            from (select r.oid from pg_class r where r.oid = planned.relation and r.relchecks > 0 offset 0) r
           cross join lateral (select c.oid from pg_constraint c where c.conrelid = r.oid and c.contype = 'c' offset 0) c
          union all
          select 'pg_attrdef'::regclass, d.oid
            from (select d.oid, d.adrelid, d.adnum from pg_attrdef d where d.adrelid = planned.relation offset 0) d
           cross join lateral (select a.attgenerated from pg_attribute a where a.attrelid = d.adrelid and a.attnum = d.adnum offset 0) a
           where a.attgenerated <> ''
              or exists (select
                           from lateral (
                             select t.tgconstraint from pg_trigger t where t.tgrelid = d.adrelid and t.tgconstraint <> 0
                             union all
                             -- Up to 14 a partitioned table has no triggers for its own foreign keys.
                             select c.oid
                               from (select r.oid from pg_class r where r.oid = d.adrelid and r.relkind = 'p' offset 0) r
                              cross join lateral (select c.oid from pg_constraint c where c.conrelid = r.oid offset 0) c
                           ) t
                          cross join lateral (
                            select from pg_constraint c
                             where c.oid = t.tgconstraint and c.contype = 'f' and c.conrelid = d.adrelid and d.adnum = any (c.conkey)
                               and (c.confdeltype = 'd' or c.confupdtype = 'd')
                            offset 0
                          ) c)
        ) o(class, object)
       union
       select used.relation, used.stays, d.class, d.object
         from used
        cross join lateral (
          select d.refclassid, d.refobjid
            from pg_depend d
           where d.classid = used.class and d.objid = used.object
             and d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass)
             and used.class <> 'pg_proc'::regclass
             and (used.class <> 'pg_type'::regclass
                  or exists (select from pg_type y where y.oid = used.object and y.typtype = 'd'))
          union all
          select 'pg_constraint'::regclass, c.oid
            from pg_constraint c
           where used.class = 'pg_type'::regclass and c.contypid = used.object
          union all
          select 'pg_proc'::regclass, c.castfunc
            from pg_cast c
           where used.class = 'pg_type'::regclass and c.castsource = used.object and c.castfunc <> 0
             and (c.casttarget = 'text'::regtype or c.castcontext = 'i')
        ) d(class, object)
     ), beyond(relation) as (
       select planned.relation from planned where planned.stays
       union
       select reached.relation from reached where reached.relation not in (select unnest(g.targets))
       union
       select n.relation
         from beyond
        cross join lateral (select from pg_class p where p.oid = beyond.relation and p.relkind = 'p' offset 0) p
        cross join lateral (
          select c.conrelid
            from (select t.tgconstraint from pg_trigger t where t.tgrelid = beyond.relation and t.tgconstraint <> 0 offset 0) t
           cross join lateral (
             select c.conrelid from pg_constraint c where c.oid = t.tgconstraint and c.contype = 'f' and c.confrelid = beyond.relation offset 0
           ) c
          union all
          select i.inhrelid from pg_inherits i where i.inhparent = beyond.relation
        ) n(relation)
     ), intruder(relation, name, class, object) as (
       select t.tgrelid, t.tgname, 'pg_trigger'::regclass::oid, t.oid
         from touched
        cross join lateral (
          select t.oid, t.tgrelid, t.tgname, t.tgfoid, t.tgisinternal
            from pg_trigger t
           where t.tgrelid = touched.relation and t.tgenabled <> 'D'
             and (t.tgtype::int & case when touched.deletes then 8 else 16 end) > 0
          offset 0
        ) t
        cross join lateral (select f.pronamespace, f.proname from pg_proc f where f.oid = t.tgfoid offset 0) f
        where not (t.tgisinternal and f.pronamespace = 'pg_catalog'::regnamespace
                   and (f.proname like 'RI\_FKey\_%' or f.proname = 'unique_key_recheck'))
       union
       select w.ev_class, w.rulename, 'pg_rewrite'::regclass, w.oid
         from touched
        cross join lateral (
          select w.oid, w.ev_class, w.rulename
            from pg_rewrite w
           where w.ev_class = touched.relation and w.ev_enabled <> 'D'
             and w.ev_type = (case when touched.deletes then '4' else '2' end)::"char"
          offset 0
        ) w
       union
       select c.conrelid, c.conname, 'pg_constraint'::regclass, c.oid
         from touched
        cross join lateral (select p.oid from pg_class p where p.oid = touched.relation and p.relkind = 'p' offset 0) p
        cross join lateral (
          select c.oid, c.conrelid, c.conname, c.conkey
            from pg_constraint c
           where c.conrelid = p.oid and c.contype = 'f'
             and (c.confdeltype in ('n', 'd') or c.confupdtype in ('c', 'n', 'd'))
          offset 0
        ) c
        cross join lateral unnest(c.conkey) k(attnum)
        where not touched.deletes
          -- A column of a partition key depends on its own table.
          and exists (select
                        from (select d.* from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = p.oid and d.objsubid = k.attnum offset 0) d
                       where d.refclassid = 'pg_class'::regclass and d.refobjid = p.oid and d.refobjsubid = 0 and d.deptype = 'i')
       union
       select used.relation, f.proname, 'pg_proc'::regclass, used.object
         from used
        cross join lateral (
          select f.proname, f.proowner, f.pronamespace from pg_proc f where f.oid = used.object and used.class = 'pg_proc'::regclass offset 0
        ) f
        where f.pronamespace <> 'pg_catalog'::regnamespace
          and exists (select from pg_roles owner where owner.oid = f.proowner and not owner.rolsuper)
          and (not used.stays or f.proowner <> all (select c.relowner from pg_class c where c.oid = any (g.targets)))
       union
       -- PostgreSQL's own that run SQL, or build values of types with checks: query_to_xml, ts_rewrite, jsonb_populate_record and
       -- their kin. Where rows are only updated, an expression can name them; what is built in is in no dependency.
       select x.relation, f.proname, 'pg_proc'::regclass, k.oid
         from (
           select used.relation, b.tree
             from used
            cross join lateral (
              select c.conbin::text from pg_constraint c where used.class = 'pg_constraint'::regclass and c.oid = used.object
              union all
              select d.adbin::text from pg_attrdef d where used.class = 'pg_attrdef'::regclass and d.oid = used.object
            ) b(tree)
            where (used.relation in (select r.relation from reached r where not r.deletes)) is true -- hashed: as a join it is a loop over both
           offset 0
         ) x
        cross join lateral (select distinct m.part[1]::oid as oid from regexp_matches(x.tree, ':funcid (\d+)', 'g') m(part)) k
        cross join lateral (
          select f.proname, f.prorettype, f.proargtypes
            from pg_proc f
           where f.oid = k.oid and f.provolatile <> 'i' and f.pronamespace = 'pg_catalog'::regnamespace
          offset 0
        ) f
        where (f.proargtypes::oid[] || f.prorettype) && array['json', 'jsonb', 'xml', 'tsquery', 'record', 'anyelement', 'anyarray',
                                                              'anycompatible', 'refcursor']::regtype[]::oid[]
     )
     select 'along', along.relation, along.deletes, null::boolean, null::oid, null::oid, null::name from along
     union all
     select 'used', used.relation, null, used.stays, used.class, used.object, null from used
     union all
     select 'beyond', beyond.relation, null, null, null, null, null from beyond
     union all
     select 'intruder', intruder.relation, null, null, intruder.class, intruder.object, intruder.name from intruder
   ) n(part, relation, deletes, stays, class, object, name);
end
$lapse$;
comment on function lapse.surroundings is 'What a deletion from each of these relations involves: relations, the objects that PostgreSQL uses there, and what would run.';

-- intruders lists what would run inside a deletion from targets, by table and name: triggers, rules and functions, and foreign keys whose
-- update would move a row to another partition, which triggers and readers of the log see as a delete and an insert. PostgreSQL's own
-- triggers are recognized by their functions, because up to 14 a partition's copy of a user's trigger counts as internal too. A cascade
-- names a partitioned table by its root, so the root's statement triggers and rules run; a batch names the leaf.
--
-- Functions run when PostgreSQL plans or carries out the deletion: those of indexes, extended statistics, checks, generated columns,
-- partition keys, domains, of defaults that a foreign key sets, of operators, and of casts of a column's type to text or implicit ones. A
-- superuser's functions are allowed, because a superuser can do anything. A table whose rows refer to deleted ones and stay is checked
-- too, with its owner's rights: there the functions of the targets' owners may run, who may do anything with the targets.
create function lapse.intruders(targets oid[], updates boolean) returns table (relation oid, name name, class oid, object oid)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return query
  select s.relation, s.name, s.class, s.object from lapse.surroundings(targets[1:1], targets[2:], updates) s where s.part = 'intruder';
end
$lapse$;
comment on function lapse.intruders is 'What would run inside a deletion from these relations: triggers, rules, functions; and foreign keys that would move rows.';

-- code describes intruders so that a later check can recognize them: a partition's copy of a trigger counts as the root's, and a digest covers
-- everything that determines what runs, except what a function calls in turn.
create function lapse.code(targets oid[], updates boolean) returns table (relation oid, kind text, name name, digest text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $lapse$
#variable_conflict use_column
begin
  return query
  with recursive found as materialized (
    select i.relation, i.name, i.class, i.object from lapse.intruders(targets, updates) i
  ), up(object, at, parent) as (
    select t.oid, t.oid, t.tgparentid from found f join pg_trigger t on t.oid = f.object where f.class = 'pg_trigger'::regclass
    union all
    select up.object, t.oid, t.tgparentid from up join pg_trigger t on t.oid = up.parent
  ), described(relation, kind, name, text, function) as (
    select top.tgrelid, 'trigger', top.tgname, concat_ws(' ', pg_get_triggerdef(top.oid), own.tgenabled), own.tgfoid
      from up
      join pg_trigger top on top.oid = up.at
      join pg_trigger own on own.oid = up.object
     where up.parent = 0
    union all
    select f.relation, 'rule', f.name, concat_ws(' ', pg_get_ruledef(f.object), r.ev_enabled), null
      from found f join pg_rewrite r on r.oid = f.object
     where f.class = 'pg_rewrite'::regclass
    union all
    select f.relation, 'foreign key', f.name, '', null from found f where f.class = 'pg_constraint'::regclass
    union all
    select f.relation, 'function', f.name, '', f.object from found f where f.class = 'pg_proc'::regclass
  )
  select distinct d.relation, d.kind, d.name,
         encode(sha256(convert_to(concat_ws(' ', d.text, p.oid, p.proowner, pg_get_functiondef(p.oid)), 'UTF8')), 'hex')
    from described d
    left join pg_proc p on p.oid = d.function;
end
$lapse$;
comment on function lapse.code is 'Intruders with a digest of what each would do, for comparison with what triggers: trusted allows.';

-- distrusted names one thing that would run inside a deletion from targets and that the policy version does not trust; null for none.
create function lapse.distrusted(policy int, version int, targets oid[]) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  soft    boolean := lapse.sets(distrusted.policy, distrusted.version);
  trusted jsonb;
begin
  if not exists (select from lapse.intruders(targets, soft)) then
    return null;
  end if;
  trusted := (select p.trusted from lapse.policy p where p.id = distrusted.policy and p.version = distrusted.version);
  return (select format('%s %I on %s', c.kind, c.name, c.relation::regclass)
            from lapse.code(targets, soft) c
           where c.kind = 'foreign key'
              or not exists (select from jsonb_to_recordset(trusted) t(relation oid, kind text, name name, digest text)
                              where t.relation = c.relation and t.kind = c.kind and t.name = c.name and t.digest = c.digest)
           order by 1
           limit 1);
end
$lapse$;
comment on function lapse.distrusted is 'One thing that would run inside a deletion and that the policy version does not trust; null for none.';
