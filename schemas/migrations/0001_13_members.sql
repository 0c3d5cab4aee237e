-- Which tables a hold covers: where its table, and what was below it, have moved since, and what became of them.

-- hold_relation lists everything that a hold ever covered: its table, and what was below it at any time. All of it stays held, wherever it is
-- attached later. A relation that was attached below a policy's table, and whose former place is unknown, may have been below a held
-- table too, unnoticed: a hold with the same owner and columns covers it as well.
create table lapse.hold_relation (
  id          bigint generated always as identity primary key,
  hold        int not null references lapse.hold,
  relation    oid not null,
  name        text not null,
  attached    boolean not null,
  ended       boolean not null,
  columns     jsonb,
  recorded_at timestamptz not null default clock_timestamp()
);
create index on lapse.hold_relation (relation, hold, id);
create index on lapse.hold_relation (hold, relation, id);
create trigger append_only before update or delete or truncate on lapse.hold_relation
  for each statement execute function lapse.refuse_change();
alter table lapse.hold_relation replica identity full;
comment on table lapse.hold_relation is 'Every relation that a hold ever covered: append-only, published. The last row of a relation counts.';
comment on column lapse.hold_relation.id is 'Order of the rows.';
comment on column lapse.hold_relation.hold is 'The hold.';
comment on column lapse.hold_relation.relation is 'The held table, or what was below it.';
comment on column lapse.hold_relation.name is 'Its name then, quoted as in SQL.';
comment on column lapse.hold_relation.attached is 'It was attached below a policy''s table, and may have been below the held one before.';
comment on column lapse.hold_relation.ended is 'It was dropped.';
comment on column lapse.hold_relation.columns is 'Its columns that the condition reads, as in lapse.hold, when it was found; null if it was dropped.';
comment on column lapse.hold_relation.recorded_at is 'When that was found.';

-- holds_on returns the holds that cover rows of each leaf: those on a table that the leaf, or a table above it, is or was a part of; and those
-- on a table that it may have been a part of: with the same owner, who alone may attach it, and with the hold's columns. A leaf's history
-- is known if the transaction that made it also attached it, or if it was attached before the hold. pg_inherits has only the lower 32
-- bits of that transaction's number, which are read as the latest transaction with these bits: a leaf older than a hold may seem younger, but
-- never the other way round.
create function lapse.holds_on(leaves oid[]) returns table (leaf oid, hold int)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $lapse$
#variable_conflict use_column
begin
  return query
  with recursive e as materialized (
    select n.hold, n.table_oid, n.columns, n.since, (select c.relowner from pg_class c where c.oid = n.table_oid) as owner,
           exists (select from pg_class c where c.oid = n.table_oid and (c.relkind = 'p' or c.relhassubclass))
             or (select count(distinct r.relation) from lapse.hold_relation r where r.hold = n.hold and not r.attached)
                > 1 + (select count(*) from lapse.hold_state m where m.hold = n.hold and m.table_oid is not null) as divided
      from lapse.enforced_holds() n
  ), up(leaf, relation, attached) as (
    select l.relation, l.relation, 0::bigint from (select distinct unnest(holds_on.leaves)) l(relation)
    union all
    select up.leaf, p.inhparent, greatest(up.attached, p.attached)
      from up
     cross join lateral (
       select i.inhparent, case when a.xmin = i.xmin then 0 else s.next - ((s.next - i.xmin::text::bigint) & 4294967295) end as attached
         from pg_inherits i
         join pg_attribute a on a.attrelid = i.inhrelid and a.attnum = -6 -- tableoid, which nobody but a grant on it changes after the table was made
        cross join (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next) s
        where i.inhrelid = up.relation
       offset 0) p
  )
  select up.leaf, e.hold from up join e on e.table_oid = up.relation
  union
  select up.leaf, e.hold
    from up
   cross join lateral (
     select distinct on (r.hold) r.hold, r.ended from lapse.hold_relation r where r.relation = up.relation order by r.hold, r.id desc) r
    join e on e.hold = r.hold
   where not r.ended
  union
  select w.leaf, e.hold
    from (select up.leaf, max(up.attached) as attached from up group by up.leaf) w
    join e on e.divided and w.attached >= e.since and e.owner = (select c.relowner from pg_class c where c.oid = w.leaf)
   where not exists (select from jsonb_to_recordset(e.columns) k(name name, type text)
                      where not exists (select from pg_attribute a
                                         where a.attrelid = w.leaf and a.attname = k.name and not a.attisdropped and format_type(a.atttypid, null) = k.type));
end
$lapse$;
comment on function lapse.holds_on is 'The holds on rows of each of these tables and partitions.';

-- follow_holds records what was added below held tables, what may have been there before it was attached to a policy's table, and what of it
-- was dropped. Two sessions at once may write the same row twice.
create function lapse.follow_holds() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $lapse$
declare
  enforced jsonb := (select jsonb_agg(jsonb_build_object('hold', e.hold, 'table_oid', e.table_oid, 'columns', e.columns, 'since', e.since)) from lapse.enforced_holds() e);
begin
  if enforced is null then
    return;
  end if;
  insert into lapse.hold_relation (hold, relation, name, attached, ended, columns)
  with recursive e as materialized (
    select n.hold, n.table_oid, n.columns, n.since from jsonb_to_recordset(enforced) n(hold int, table_oid oid, columns jsonb, since bigint)
  ), known as materialized (
    select distinct on (r.hold, r.relation) r.hold, r.relation, r.name, r.attached, r.ended
      from e
      join lapse.hold_relation r on r.hold = e.hold
     order by r.hold, r.relation, r.id desc
  ), live as materialized (
    select k.hold, k.relation from known k where not k.ended
  ), below(hold, relation) as ( -- that is not yet known
    (select e.hold, e.table_oid from e
     union all
     select live.hold, i.inhrelid from live join pg_inherits i on i.inhparent = live.relation
     except
     select live.hold, live.relation from live)
    union
    select below.hold, i.inhrelid
      from below
      join pg_inherits i on i.inhparent = below.relation
     where not exists (select from live where live.hold = below.hold and live.relation = i.inhrelid)
  ), moved as materialized ( -- since the first hold, as holds_on reads it
    select i.inhrelid as relation, i.xmin as moved_in
      from pg_inherits i
     cross join (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next offset 0) s
     where s.next - ((s.next - i.xmin::text::bigint) & 4294967295) >= (select min(e.since) from e)
  ), lately as materialized (
    select distinct l.relation
      from moved m
     cross join lateral (select from pg_attribute a where a.attrelid = m.relation and a.attnum = -6 and a.xmin <> m.moved_in offset 0) a
     cross join lateral lapse.leaves(m.relation) l
     where exists (select from pg_partition_ancestors(l.relation) p join lapse.gate g on g.table_oid = p.relid and g.state <> 'dropped')
       -- Until somebody has accepted what is here now, the catalog's numbers may be of another server.
       and lapse.system_identifier() = (select y.system_identifier from lapse.history y order by y.number desc limit 1)
  ), found(hold, relation, attached) as (
    select below.hold, below.relation, false from below
    union all
    select o.hold, o.leaf, true
      from lapse.holds_on(array(select lately.relation from lately)) o
     where exists (select from lately)
       and not exists (select from below where below.hold = o.hold and below.relation = o.leaf)
       and not exists (select from live where live.hold = o.hold and live.relation = o.leaf)
  )
  select f.hold, f.relation, c.name, f.attached, false,
         (select coalesce(jsonb_agg(jsonb_build_object('name', a.attname, 'number', a.attnum, 'type', format_type(a.atttypid, null), 'made', lapse.made(a.attrelid, a.attnum))), '[]')
            from jsonb_to_recordset(e.columns) w(name name)
            join pg_attribute a on a.attrelid = f.relation and a.attname = w.name and not a.attisdropped)
    from found f
    join e on e.hold = f.hold
   cross join lateral (
     select format('%I.%I', n.nspname, c.relname) as name from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = f.relation offset 0) c
  union all
  select k.hold, k.relation, k.name, k.attached, true, null
    from known k
   where not k.ended and not exists (select from pg_class c where c.oid = k.relation)
   order by 1, 2;
end
$lapse$;
comment on function lapse.follow_holds is 'Records what was added below held tables, and what of it was dropped.';

-- changed_part returns a relation that a hold ever covered, whose columns have changed since it was found; null for none. It ignores what
-- was detached, and what a hold was moved from.
create function lapse.changed_part(hold int, relations oid[]) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $lapse$
  select min(format('%I.%I', n.nspname, c.relname))
    from unnest(changed_part.relations) l(relation)
   cross join lateral (select r.columns from lapse.hold_relation r where r.hold = changed_part.hold and r.relation = l.relation order by r.id desc limit 1) r
    join pg_class c on c.oid = l.relation
    join pg_namespace n on n.oid = c.relnamespace
   where exists (
     select from jsonb_to_recordset(r.columns) w(name name, number int2, type text, made text)
      where not exists (
        select from pg_attribute a
         where a.attrelid = l.relation and a.attnum = w.number and a.attname = w.name and not a.attisdropped and format_type(a.atttypid, null) = w.type
           and case when a.attgenerated = '' then '' else lapse.made(a.attrelid, a.attnum) end = w.made))
$lapse$;
comment on function lapse.changed_part is 'A relation that a hold ever covered and whose columns have changed; null for none.';

-- overwrites returns the foreign keys of some relations through which a deletion elsewhere sets a column (ON DELETE SET NULL, SET DEFAULT)
-- that a hold on rows there reads: the hold would no longer match these rows. child is the relation, or the root of the partitions.
create function lapse.overwrites(relations oid[]) returns table (key oid, child oid, holds int[])
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $lapse$
#variable_conflict use_column
begin
  return query
  with e as materialized (
    select n.hold, array(select w.name from jsonb_to_recordset(n.columns) w(name name)) as columns from lapse.enforced_holds() n
  ), k as materialized (
    select distinct c.oid, c.conrelid, s.columns
      from unnest(overwrites.relations) r(oid)
     cross join lateral (select r.oid as relation union select a.relid from pg_partition_ancestors(r.oid) a) u
     cross join lateral (
       select c.oid, c.conrelid, c.conkey, to_jsonb(c) -> 'confdelsetcols' as few
         from pg_constraint c
        where c.conrelid = u.relation and c.contype = 'f' and c.conparentid = 0 and c.confdeltype in ('n', 'd')
       offset 0) c
     cross join lateral (
       select array_agg(a.attname) as columns -- and what may be generated of them
         from pg_attribute a
        where a.attrelid = c.conrelid
          and (a.attgenerated <> '' or a.attnum = any (c.conkey) and (coalesce(c.few, 'null') = 'null' or c.few @> to_jsonb(a.attnum)))) s
     where exists (select from e where e.columns && s.columns)
  )
  select k.oid, coalesce(pg_partition_root(k.conrelid)::oid, k.conrelid), array_agg(distinct e.hold)
    from k
   cross join lateral lapse.holds_on(array(select l.relation from lapse.leaves(k.conrelid) l)) o
    join e on e.hold = o.hold and e.columns && k.columns
   group by k.oid, k.conrelid;
end
$lapse$;
comment on function lapse.overwrites is 'The foreign keys through which a deletion sets a column that a hold on the row reads.';

-- strayed names a held table in which this transaction deleted rows that the batch did not check for holds; null for none. Those are rows of a
-- table that foreign keys reach, if more were deleted than the batch had locked, and rows of any other table. Only two things can cause
-- that: code that the policy trusts, or an insert that refers to a locked row without the foreign key's check, as a subscription makes.
create function lapse.strayed(claim lapse.claim, before lapse.tally, locked oid[]) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  more oid[];
begin
  if strayed.locked is null and not exists (
    select from lapse.policy p where p.id = claim.policy_id and p.version = claim.policy_version and p.trusted <> '[]') then
    return null;
  end if;
  more := array(
    select r.oid
      from unnest(strayed.before.relations, strayed.before.deleted) r(oid, deleted)
      left join (select l.oid, count(*) as n from unnest(strayed.locked) l(oid) group by l.oid) l on l.oid = r.oid
     where r.oid <> claim.target and coalesce(pg_stat_get_xact_tuples_deleted(r.oid), 0) - r.deleted > coalesce(l.n, 0));
  if more = '{}' then
    return null;
  end if;
  return (
    select format('rows of %I.%I were deleted beside those that a batch of policy %s had asked about, and hold %s is on that table: nobody can tell whether these are held. '
                  'Have triggers and rules that the policy trusts leave that table alone, or release the hold', n.nspname, c.relname, claim.policy, o.hold)
      from lapse.holds_on(more) o
      join pg_class c on c.oid = o.leaf
      join pg_namespace n on n.oid = c.relnamespace
     order by o.hold, o.leaf
     limit 1);
end
$lapse$;
comment on function lapse.strayed is 'A held table in which this transaction deleted rows that the batch did not check for holds; null for none.';

-- hold_faults says what is wrong with the tables of holds. Each fault stops policies.
create function lapse.hold_faults() returns table (hold int, fault text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
begin
  return query
  select e.hold,
         case when e.gone then lapse.hold_fault('gone', e.hold, e.table_name)
              when c.oid is not null then lapse.hold_fault('swapped', e.hold, e.table_name)
              when not lapse.same_columns(e.table_oid, e.columns, true) then lapse.hold_fault('changed', e.hold, e.table_name) end
    from lapse.enforced_holds() e
    left join (pg_class c join pg_namespace n on n.oid = c.relnamespace) on format('%I.%I', n.nspname, c.relname) = e.table_name and c.oid <> e.table_oid and c.relkind in ('r', 'p')
   where e.gone or c.oid is not null
      or exists (select from pg_class t where t.oid = e.table_oid) and not lapse.same_columns(e.table_oid, e.columns, true)
  union all
  select e.hold, lapse.hold_fault('changed', e.hold, p.name)
    from lapse.enforced_holds() e
   cross join lateral lapse.changed_part(e.hold, array(select r.relation from lapse.hold_relation r where r.hold = e.hold and r.relation <> e.table_oid)) p(name)
   where p.name is not null
   order by 1;
end
$lapse$;
comment on function lapse.hold_faults is 'What is wrong with the tables of the holds that are enforced, each with what to do.';

-- hold_fault words the fault of a hold whose table is gone, whose name another table has, or whose columns have changed.
create function lapse.hold_fault(fault text, hold int, table_name text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $lapse$
  select format(case hold_fault.fault
    when 'gone' then 'hold %1$s is on %2$s, which is gone, and nobody has said what took its place: '
      'lapse hold move %1$s --to SCHEMA.TABLE --reason TEXT, or lapse hold release %1$s --reason TEXT'
    when 'swapped' then '%2$s is not the table that hold %1$s was placed on: lapse hold move %1$s --to %2$s --reason TEXT (what it was on before stays held), '
      'or lapse hold release %1$s --now --reason TEXT'
    when 'changed' then 'the columns of %2$s are not those that hold %1$s was placed on: place it once more, then lapse hold release %1$s --now --reason TEXT'
    end, hold_fault.hold, hold_fault.table_name)
$lapse$;
comment on function lapse.hold_fault is 'Text for a person about a hold whose table has changed, with what to do.';
