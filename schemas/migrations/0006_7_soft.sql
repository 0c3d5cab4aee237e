-- A policy that sets a column of its rows once, and deletes none ("action: soft"). Its batches are those of 0003_4_batch.sql, with an
-- update in the place of the deletion: rows go nowhere and take nothing along, so that what follows a deletion by foreign keys is not
-- asked about. What updates on the target would run is asked instead, and that the audit sees updates.
--
-- Rows that are set stay, and are no event when somebody changes them later. The one policy that may stand beside it on its table
-- deletes them: of each table one of the two kinds may be in force.

-- sets reports whether a policy version sets a column, and deletes nothing.
create function lapse.sets(policy int, version int) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return coalesce((select p.spec ->> 'action' = 'soft' from lapse.policy p where p.id = sets.policy and p.version = sets.version), false);
end
$lapse$;
comment on function lapse.sets is 'Whether a policy version sets a column of its rows, and deletes none.';

-- set_key names a foreign key that has the column which a policy version sets, on either side: what is set would be looked up in another
-- table, or handed on to the rows that refer to it.
create function lapse.set_key(policy int, version int, leaf oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return (select min(quote_ident(k.conname))
            from lapse.policy p
            join pg_attribute a on a.attrelid = set_key.leaf and a.attname = p.spec -> 'soft' ->> 'name' and not a.attisdropped
            join pg_constraint k on k.contype = 'f' and (k.conrelid = a.attrelid and a.attnum = any (k.conkey)
                                                         or k.confrelid = a.attrelid and a.attnum = any (k.confkey))
           where p.id = set_key.policy and p.version = set_key.version);
end
$lapse$;
comment on function lapse.set_key is 'A foreign key that has the column which a policy version sets; null for none.';

-- removed counts the rows that were deleted from a relation in this transaction. Rolled-back subtransactions stay counted.
create function lapse.removed(relation oid) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return coalesce(pg_stat_get_xact_tuples_deleted(removed.relation), 0);
end
$lapse$;
comment on function lapse.removed is 'How many rows were deleted from a relation in this transaction so far.';

-- gone counts what a batch did in this transaction so far: the rows that were deleted from the target and from each relation of the
-- claim, in their order; of a batch that sets a column, the rows of the target that were updated, and those that were deleted.
create function lapse.gone(claim lapse.claim, soft boolean) returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if soft then
    return array[coalesce(pg_stat_get_xact_tuples_updated(claim.target), 0), lapse.removed(claim.target)];
  end if;
  return array(select lapse.removed(t.oid) from unnest(claim.target || claim.cascades) with ordinality t(oid, n) order by t.n);
end
$lapse$;
comment on function lapse.gone is 'How many rows a batch has deleted, or set, by relation, so far.';

-- code is as 0005_2_trusted.sql describes it.
drop function lapse.code(oid[]);
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
comment on function lapse.code is 'Intruders with a digest of what each would do: what triggers: trusted is held to.';

-- distrusted is as 0005_2_trusted.sql describes it.
drop function lapse.distrusted(int, int, oid[]);
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
comment on function lapse.distrusted is 'One of what would run inside a deletion and is not what the policy version trusts, null for none.';

-- unseen is as 0003_2_reach.sql describes it; updates asks for those of updates.
drop function lapse.unseen(oid[]);
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
comment on function lapse.unseen is 'Relations whose deletes, or updates, the audit would not see, or not by their key.';

revoke all on function lapse.sets(int, int), lapse.set_key(int, int, oid), lapse.removed(oid), lapse.gone(lapse.claim, boolean), lapse.code(oid[], boolean), lapse.distrusted(int, int, oid[]),
  lapse.unseen(oid[], boolean) from public;
grant execute on function lapse.code(oid[], boolean), lapse.unseen(oid[], boolean) to {{.Executor}};

comment on column lapse.gate.soft is 'Whether the policy sets a column of its rows, and deletes none: a table may have one policy of each kind.';
comment on column lapse.batch.soft is 'Whether the batch sets a column of the target''s rows, and deletes none.';
