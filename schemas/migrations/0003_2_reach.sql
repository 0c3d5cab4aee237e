-- What a deletion reaches, and what would run inside it. These functions read nothing but the system catalog, with the
-- rights of whoever calls them, by its indexes: 8,000 foreign keys elsewhere cost nothing, and neither do 7,000 partitions
-- beside the one that is asked about. Left alone, PostgreSQL expects a recursive query to find millions of rows: it reads
-- whole catalogs, plans for each call, and sizes its hash tables by what it expects, which takes 20 ms. So "lateral (...
-- offset 0)" says in which order to look things up, row by row; the plan is kept; and hash tables begin small.

-- reach lists the relations that a delete on any of targets touches through foreign keys: `deletes` where rows go with it
-- (ON DELETE CASCADE, to any depth), and otherwise only updated (SET NULL, SET DEFAULT, and what follows such an update
-- by ON UPDATE); a relation to which both happens is listed twice. Partitions are listed one by one, as the WAL names
-- them. A target is listed only where a foreign key leads back to it. Foreign keys are found by their triggers on the
-- table that they refer to, since pg_constraint has no index on it.
create function lapse.reach(targets oid[]) returns table (relation oid, deletes boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set work_mem = '64kB'
as $lapse$
#variable_conflict use_column
begin
  return query
  with recursive up(relation) as (
    select unnest(targets)
    union
    select p.inhparent
      from up
     cross join lateral (select i.inhparent from pg_inherits i where i.inhrelid = up.relation offset 0) p
  ), down(relation, deletes, updated) as (
    select c.conrelid, c.confdeltype = 'c', case when c.confdeltype = 'c' then '{}' else k.columns end
      from up
     cross join lateral (select t.tgconstraint from pg_trigger t where t.tgrelid = up.relation and t.tgconstraint <> 0 offset 0) t
     cross join lateral (
       select c.* from pg_constraint c
        where c.oid = t.tgconstraint and c.contype = 'f' and c.confrelid = up.relation and c.confdeltype in ('c', 'n', 'd')
       offset 0
     ) c
     cross join lateral (
       select array(select a.attname from pg_attribute a where a.attrelid = c.conrelid and a.attnum = any (c.conkey)) as columns
     ) k
    union
    select n.relation, n.deletes, n.updated
      from down
     cross join lateral (
       select c.conrelid, down.deletes and c.confdeltype = 'c',
              case when down.deletes and c.confdeltype = 'c' then '{}' else k.columns end
         from (select t.tgconstraint from pg_trigger t where t.tgrelid = down.relation and t.tgconstraint <> 0 offset 0) t
        cross join lateral (
          select c.* from pg_constraint c where c.oid = t.tgconstraint and c.contype = 'f' and c.confrelid = down.relation offset 0
        ) c
        cross join lateral (
          select array(select a.attname from pg_attribute a where a.attrelid = c.conrelid and a.attnum = any (c.conkey)) as columns,
                 array(select a.attname from pg_attribute a where a.attrelid = c.confrelid and a.attnum = any (c.confkey)) as referenced
        ) k
        where down.deletes and c.confdeltype in ('c', 'n', 'd')
           or c.confupdtype in ('c', 'n', 'd') and k.referenced && down.updated
       union all
       select i.inhrelid, down.deletes, down.updated from pg_inherits i where i.inhparent = down.relation
     ) as n(relation, deletes, updated)
  )
  select distinct down.relation, down.deletes
    from down
   cross join lateral (select from pg_class r where r.oid = down.relation and r.relkind = 'r' offset 0) r;
end
$lapse$;

-- intruders lists what would run inside a deletion from targets, by table and name: triggers, rules, functions; and foreign
-- keys whose update would move a row to another partition, which is a delete and an insert to triggers and to whoever
-- reads the log. PostgreSQL's own triggers are told by their functions: up to 14 a partition's copy of a user's trigger
-- counts as internal too. A cascade names a partitioned table by its root, so that statement triggers and rules of the
-- root run; a batch names the leaf.
--
-- Functions run when PostgreSQL plans or carries out the deletion: of indexes, extended statistics, checks, generated
-- columns, partition keys and domains, of defaults where a foreign key sets them, behind an operator or not, and of casts
-- of a column's type to text or without being asked for. A superuser's may do what they like anyway. A table that refers
-- to what is deleted and whose rows stay is looked into as well, as its owner: there the functions of the targets' owners
-- may run, who may do what they like with the targets.
create function lapse.intruders(targets oid[]) returns table (relation oid, name name)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set work_mem = '64kB'
as $lapse$
#variable_conflict use_column
begin
  return query
  with recursive reached(relation, deletes) as (
    select unnest(targets), true
    union
    select r.relation, r.deletes from lapse.reach(targets) r
  ), touched(relation, deletes) as (
    select reached.relation, reached.deletes from reached
    union
    select p.inhparent, touched.deletes
      from touched
     cross join lateral (select i.inhparent from pg_inherits i where i.inhrelid = touched.relation offset 0) p
     cross join lateral (select from pg_class c where c.oid = p.inhparent and c.relkind = 'p' offset 0) c
     where touched.relation <> all (targets)
  ), above(relation) as (
    select unnest(targets)
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
       -- A table that refers to a partitioned one has a constraint for each partition, of which none is a check.
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
  )
  select t.tgrelid, t.tgname
    from touched
   cross join lateral (
     select t.tgrelid, t.tgname, t.tgfoid, t.tgisinternal
       from pg_trigger t
      where t.tgrelid = touched.relation and t.tgenabled <> 'D'
        and (t.tgtype::int & case when touched.deletes then 8 else 16 end) > 0
     offset 0
   ) t
   cross join lateral (select f.pronamespace, f.proname from pg_proc f where f.oid = t.tgfoid offset 0) f
   where not (t.tgisinternal and f.pronamespace = 'pg_catalog'::regnamespace
              and (f.proname like 'RI\_FKey\_%' or f.proname = 'unique_key_recheck'))
  union
  select w.ev_class, w.rulename
    from touched
   cross join lateral (
     select w.ev_class, w.rulename
       from pg_rewrite w
      where w.ev_class = touched.relation and w.ev_enabled <> 'D'
        and w.ev_type = (case when touched.deletes then '4' else '2' end)::"char"
     offset 0
   ) w
  union
  select c.conrelid, c.conname
    from touched
   cross join lateral (select p.oid from pg_class p where p.oid = touched.relation and p.relkind = 'p' offset 0) p
   cross join lateral (
     select c.conrelid, c.conname, c.conkey
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
  select used.relation, f.proname
    from used
   cross join lateral (
     select f.proname, f.proowner, f.pronamespace from pg_proc f where f.oid = used.object and used.class = 'pg_proc'::regclass offset 0
   ) f
   where f.pronamespace <> 'pg_catalog'::regnamespace
     and exists (select from pg_roles owner where owner.oid = f.proowner and not owner.rolsuper)
     and (not used.stays or f.proowner <> all (select c.relowner from pg_class c where c.oid = any (targets)))
  union
  -- PostgreSQL's own that run SQL, or build values of types with checks: query_to_xml, ts_rewrite, jsonb_populate_record and
  -- their kin. Where rows are only updated, an expression can name them; what is built in is in no dependency.
  select x.relation, f.proname
    from (
      select used.relation, b.tree
        from used
       cross join lateral (
         select c.conbin::text from pg_constraint c where used.class = 'pg_constraint'::regclass and c.oid = used.object
         union all
         select d.adbin::text from pg_attrdef d where used.class = 'pg_attrdef'::regclass and d.oid = used.object
       ) b(tree)
       where exists (select from reached r where r.relation = used.relation and not r.deletes)
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
                                                         'anycompatible', 'refcursor']::regtype[]::oid[];
end
$lapse$;

-- unseen lists the relations whose deletes, made by a batch on targets, the audit would not see, or not by their key:
-- those in no publication of ours (or there with a filter), and those without a usable replica identity. With the audit
-- off it lists none.
create function lapse.unseen(targets oid[]) returns table (relation oid)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set work_mem = '64kB'
as $lapse$
#variable_conflict use_column
begin
  if not (select i.audit_required from lapse.installation i) then
    return;
  end if;
  return query
  with recursive touched(relation) as (
    select unnest(targets)
    union
    select r.relation from lapse.reach(targets) r where r.deletes
  ), up(relation, ancestor) as (
    select touched.relation, touched.relation from touched
    union
    select up.relation, p.inhparent
      from up
     cross join lateral (select i.inhparent from pg_inherits i where i.inhrelid = up.ancestor offset 0) p
  ), seen(relation) as (
    select up.relation
      from up
     cross join lateral (
       select m.prpubid
         from pg_publication_rel m
        where m.prrelid = up.ancestor and to_jsonb(m) ->> 'prqual' is null and to_jsonb(m) ->> 'prattrs' is null
       offset 0
     ) m
      join pg_publication p on p.oid = m.prpubid and p.pubname in ('lapse_deletes', 'lapse_changes') and p.pubdelete
  )
  select touched.relation
    from touched
   cross join lateral (select c.relpersistence, c.relreplident from pg_class c where c.oid = touched.relation offset 0) c
   where touched.relation not in (select seen.relation from seen)
      or c.relpersistence <> 'p'
      or not exists (
           select from pg_index k
            where k.indrelid = touched.relation and k.indisvalid and k.indimmediate
              and case c.relreplident when 'd' then k.indisprimary when 'i' then k.indisreplident else false end);
end
$lapse$;

-- leaves lists the relations that hold the rows of root: itself, or its partitions to any depth. It locks none of them.
create function lapse.leaves(root oid) returns table (relation oid, kind "char", name text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = 'force_generic_plan'
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $lapse$
#variable_conflict use_column
begin
  return query
  with recursive tree(relation) as (
    select root
    union
    select i.inhrelid
      from tree
      join pg_inherits i on i.inhparent = tree.relation and not i.inhdetachpending
      join pg_class p on p.oid = i.inhrelid and p.relispartition
  )
  select c.oid, c.relkind, format('%I.%I', n.nspname, c.relname)
    from tree
    join pg_class c on c.oid = tree.relation
    join pg_namespace n on n.oid = c.relnamespace
   where c.relkind <> 'p'
   order by c.oid;
end
$lapse$;
