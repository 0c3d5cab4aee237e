-- What a deletion reaches. These functions, and those of 0001_07_intruders.sql, read only the system catalog, through its indexes and with
-- the rights of their caller: 8,000 foreign keys on other tables, or 7,000 other partitions, cost nothing. For a recursive query
-- PostgreSQL expects millions of rows: it would read whole catalogs, plan each call again, and allocate hash tables of that size, which takes
-- 20 ms. So "lateral (... offset 0)" fixes the order of look-ups, row by row; the plan is cached; and hash tables start small.

-- reach lists the relations that a delete on any of targets touches through foreign keys. `deletes` is true if rows are deleted there
-- (ON DELETE CASCADE, to any depth), and false if they are only updated (SET NULL, SET DEFAULT, and what follows such an update by ON
-- UPDATE); a relation with both is listed twice. Partitions are listed one by one, as the WAL names them. A target is listed only if a
-- foreign key leads back to it. Foreign keys are found by their triggers on the referenced table, since pg_constraint has no index on it.
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
comment on function lapse.reach is 'Relations that a delete touches through foreign keys, and whether it deletes rows there.';

-- leaves lists the relations that hold the rows of root: root itself, or its partitions to any depth. It locks none of them.
create function lapse.leaves(root oid) returns table (relation oid, kind "char", name text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = 'force_generic_plan'
set work_mem = '64kB'
as $lapse$
#variable_conflict use_column
begin
  return query
  with recursive tree(relation) as (
    select root
    union
    select p.oid
      from tree
     cross join lateral (select i.inhrelid from pg_inherits i where i.inhparent = tree.relation and not i.inhdetachpending offset 0) i
     cross join lateral (select p.oid from pg_class p where p.oid = i.inhrelid and p.relispartition offset 0) p
  )
  select c.oid, c.relkind, format('%I.%I', c.nspname, c.relname)
    from tree
   cross join lateral (
     select c.oid, c.relkind, c.relname, n.nspname
       from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.oid = tree.relation and c.relkind <> 'p'
     offset 0
   ) c
   order by c.oid;
end
$lapse$;
comment on function lapse.leaves is 'Relations that hold a table''s rows: itself, or its partitions.';

-- unseen lists the relations for which the audit would not see the deletes of a batch on targets, or not see their key: relations in no
-- publication of ours (or with a filter there), and relations without a usable replica identity. With the audit off it lists none.
create function lapse.unseen(targets oid[], updates boolean) returns table (relation oid)
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
    select r.relation from lapse.reach(targets) r where r.deletes and not updates
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
      join pg_publication p on p.oid = m.prpubid and p.pubname in ('lapse_deletes', 'lapse_changes') and p.pubdelete and (p.pubupdate or not updates)
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
comment on function lapse.unseen is 'Relations whose deletes or updates the audit would not see, or not with their key.';

-- cascade_statement writes the statement that counts, table by table, the rows that ON DELETE CASCADE would delete, to any depth, with the due
-- rows of root; null if no such key leads away from root. due is SQL from its FROM on, in which t is root. The statement's parameters
-- are those of due, and $3: the number of due rows after which it stops; null means never. It returns a JSON array with an object for
-- each table: its name, and either rows or why they were not counted.
--
-- It reads only the system catalog, with the rights of its caller. A table of another role is not counted, because that role's code (an
-- index's function, a type's operator) could run with the rights of the login that counts. Tables that refer to each other in a circle are
-- not counted, because a recursive query cannot follow them; a table that refers to itself is. Tables beyond an uncounted one are not
-- counted either.
create function lapse.cascade_statement(root oid, due text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $lapse$
declare
  edges     jsonb;
  statement text;
  done      oid[] := array[root];
  results   text[] := '{}';
  node      record;
  rest      record;
begin
  -- A foreign key has triggers on the table that it refers to, or on its partitions.
  if exists (select from pg_class c where c.oid = root and c.relkind = 'r' and not c.relhastriggers) then
    return null;
  end if;
  -- An edge is a foreign key as it was written: between tables, or partitions of them.
  with recursive k as materialized (
    select c.oid, c.conrelid, c.confrelid, c.conkey, c.confkey, c.conpfeqop,
           coalesce(pg_partition_root(c.conrelid)::oid, c.conrelid) as child, coalesce(pg_partition_root(c.confrelid)::oid, c.confrelid) as parent
      from pg_constraint c
     where c.contype = 'f' and c.confdeltype = 'c' and c.conparentid = 0 and coalesce((to_jsonb(c) ->> 'conenforced')::boolean, true)
  ), reached(relation) as (
    select cascade_statement.root
    union
    select k.child from reached join k on k.parent = reached.relation
  )
  select jsonb_agg(jsonb_build_object(
           'child', k.child, 'parent', k.parent, 'below', k.confrelid,
           'from', (select case when r.relkind = 'r' then 'only ' else '' end || format('%I.%I', n.nspname, r.relname)
                      from pg_class r join pg_namespace n on n.oid = r.relnamespace where r.oid = k.conrelid),
           'whole', k.conrelid = k.child and k.confrelid = k.parent,
           'needs', array(select a.attname from pg_attribute a where a.attrelid = k.confrelid and a.attnum = any (k.confkey) order by a.attname),
           'condition', (select string_agg(format('p.%I operator(%I.%s) c.%I', f.attname, s.nspname, o.oprname, a.attname), ' and ' order by m.n)
                           from unnest(k.conkey, k.confkey, k.conpfeqop) with ordinality m(near, far, operator, n)
                           join pg_attribute a on a.attrelid = k.conrelid and a.attnum = m.near
                           join pg_attribute f on f.attrelid = k.confrelid and f.attnum = m.far
                           join pg_operator o on o.oid = m.operator
                           join pg_namespace s on s.oid = o.oprnamespace)))
    into edges
    from reached
    join k on k.parent = reached.relation
   where k.child <> cascade_statement.root;
  if edges is null then
    return null;
  end if;
  statement := format(E'with recursive d0 as (\n  select t.tableoid, t.ctid%s\n  %s\n  limit $3\n)',
    (select string_agg(format(', t.%I', c.name), '' order by c.name)
       from (select distinct jsonb_array_elements_text(e -> 'needs') as name from jsonb_array_elements(edges) e where (e ->> 'parent')::oid = root) c), due);
  loop
    -- The next table: one of ours after everything that leads to it is written.
    select e.child as relation, format('%I.%I', n.nspname, r.relname) as name,
           (select coalesce(string_agg(format(', c.%I', w.name), '' order by w.name), '')
              from (select distinct jsonb_array_elements_text(x -> 'needs') as name
                      from jsonb_array_elements(edges) x where (x ->> 'parent')::oid = e.child) w) as columns
      into node
      from (select (x ->> 'child')::oid as child,
                   bool_and((x ->> 'parent')::oid = any (done) or x ->> 'parent' = x ->> 'child') as ready,
                   count(*) filter (where x ->> 'parent' = x ->> 'child') as own,
                   bool_and((x ->> 'whole')::boolean) filter (where x ->> 'parent' = x ->> 'child') as whole
              from jsonb_array_elements(edges) x
             group by 1) e
      join pg_class r on r.oid = e.child
      join pg_namespace n on n.oid = r.relnamespace
     where e.ready and e.child <> all (done) and (e.own = 0 or e.whole)
       and has_table_privilege(e.child, 'select') and has_schema_privilege(n.oid, 'usage')
       and not exists (
             with recursive tree(relation) as (
               select e.child
               union
               select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.relation
             )
             select from tree
               join pg_class m on m.oid = tree.relation
               join pg_roles o on o.oid = m.relowner
               join pg_class t on t.oid = root
               join pg_roles h on h.oid = t.relowner
              where o.oid <> h.oid and not (o.rolsuper and h.rolsuper))
     order by name
     limit 1;
    exit when not found;
    statement := statement || format(E', d%s as (\n%s%s\n)', cardinality(done),
      (select string_agg(format(E'  select c.tableoid, c.ctid%s from %s as c\n   where exists (select from d%s p where %s%s)',
                node.columns, x ->> 'from', array_position(done, (x ->> 'parent')::oid) - 1, x ->> 'condition',
                case when x ->> 'below' = x ->> 'parent' then ''
                     else format(' and %s in (select p.tableoid union select a.relid::oid from pg_catalog.pg_partition_ancestors(p.tableoid) a)', x ->> 'below') end),
                E'\n  union\n' order by x::text)
         from jsonb_array_elements(edges) x
        where (x ->> 'child')::oid = node.relation and x ->> 'parent' <> x ->> 'child'),
      (select format(E'\n  union\n  select c.tableoid, c.ctid%s from %s as c join d%s p on %s', node.columns, min(x ->> 'from'), cardinality(done),
                string_agg(format('(%s)', x ->> 'condition'), ' or ' order by x::text))
         from jsonb_array_elements(edges) x
        where (x ->> 'child')::oid = node.relation and x ->> 'parent' = x ->> 'child'
       having count(*) > 0));
    results := results || format('(%s, %L, (select count(*) from d%s), null)', cardinality(done), node.name, cardinality(done));
    done := done || node.relation;
  end loop;
  for rest in
    select format('%I.%I', n.nspname, r.relname) as name, r.relowner <> t.relowner as foreign_owner
      from (select distinct (x ->> 'child')::oid as child from jsonb_array_elements(edges) x) e
      join pg_class r on r.oid = e.child
      join pg_namespace n on n.oid = r.relnamespace
      join pg_class t on t.oid = root
     where e.child <> all (done)
     order by name
  loop
    results := results || format('(%s, %L, null, %L)', cardinality(results) + 1, rest.name,
      case when rest.foreign_owner then 'it belongs to another role' else 'it is reached through a table that cannot be counted, or in a circle of foreign keys, or may not be read' end);
  end loop;
  return statement || format(E'\nselect coalesce(json_agg(json_build_object(''table'', v.name, ''rows'', v.went, ''why'', v.why) order by v.n), ''[]'')\n  from (values %s) v(n, name, went, why)',
    array_to_string(results, E',\n               '));
end
$lapse$;
comment on function lapse.cascade_statement is 'Writes the statement that counts the rows that ON DELETE CASCADE would delete with a table''s due rows. Called by the counting functions of policies.';
