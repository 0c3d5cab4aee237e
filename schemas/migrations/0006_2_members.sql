-- On which tables a hold is: where its table and what was below it have gone since, and what became of it.

-- hold_relation is what a hold was ever on: its table, and whatever was below it at any time. All of that stays held, where else it may
-- be attached since. A relation that was attached below a policy's table, and of which nobody knows where it was before, may have been
-- below a held table too, between two looks of ours: a hold of which it has owner and columns is on it as well.
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
comment on table lapse.hold_relation is 'What each hold was ever on: append-only, published. The last row of a relation counts.';
comment on column lapse.hold_relation.id is 'Order of the rows.';
comment on column lapse.hold_relation.hold is 'The hold.';
comment on column lapse.hold_relation.relation is 'The held table, or what was below it.';
comment on column lapse.hold_relation.name is 'Its name then, quoted where SQL wants it.';
comment on column lapse.hold_relation.attached is 'It was attached below a policy''s table, and may have been below the held one before.';
comment on column lapse.hold_relation.ended is 'It was dropped.';
comment on column lapse.hold_relation.columns is 'Its columns that the condition reads, as in lapse.hold, when it was found; null where it was dropped.';
comment on column lapse.hold_relation.recorded_at is 'When that was found.';

revoke all on lapse.hold_relation from public;
grant select on lapse.hold_relation to {{.Executor}}, {{.Auditor}};
create trigger append_only before update or delete or truncate on lapse.hold_relation
  for each statement execute function lapse.refuse_change();

-- What a restore or an upgrade does to the numbers of transactions in the system catalog nobody can tell: a history begins with what is there.
alter table lapse.history add column xid xid8 not null default pg_snapshot_xmin(pg_current_snapshot());
comment on column lapse.history.xid is 'The oldest transaction that ran when the row was written.';

-- holds_on says which holds are on rows of which leaves: those of which a leaf, or what is above it, is or was a part; and those that
-- it may have been a part of: of the same owner, who alone may attach it, and with the hold's columns. A leaf is known to have been where it
-- is if it was made by the transaction that put it there, or was put there before the hold. pg_inherits has the 32 lower bits of that transaction's number, and is read as the last one that has them: so what is older
-- than a hold may seem younger, and not the other way round.
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
         join pg_attribute a on a.attrelid = i.inhrelid and a.attnum = -6 -- tableoid, which nothing changes after the table was made
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
comment on function lapse.holds_on is 'Which holds are on rows of which of these tables and partitions.';

-- overwrites are the foreign keys of some relations by which a deletion elsewhere sets a column (ON DELETE SET NULL, SET DEFAULT) that a hold
-- reads which is on rows there: the hold would be on these rows no longer. child is the relation, or the root of the partitions.
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
       select array_agg(a.attname) as columns
         from pg_attribute a
        where a.attrelid = c.conrelid and a.attnum = any (c.conkey) and (coalesce(c.few, 'null') = 'null' or c.few @> to_jsonb(a.attnum))) s
     where exists (select from e where e.columns && s.columns)
  )
  select k.oid, coalesce(pg_partition_root(k.conrelid)::oid, k.conrelid), array_agg(distinct e.hold)
    from k
   cross join lateral lapse.holds_on(array(select l.relation from lapse.leaves(k.conrelid) l)) o
    join e on e.hold = o.hold and e.columns && k.columns
   group by k.oid, k.conrelid;
end
$lapse$;
comment on function lapse.overwrites is 'The foreign keys by which a deletion sets a column that a hold on the row reads.';

-- follow_holds records what has come below held tables, what may have been there before it was attached to a policy's table, and what of
-- it was dropped. Two at once may write the same row twice.
create function lapse.follow_holds() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $lapse$
begin
  insert into lapse.hold_relation (hold, relation, name, attached, ended, columns)
  with recursive e as materialized (
    select n.hold, n.table_oid, n.columns from lapse.enforced_holds() n
  ), known as materialized (
    select distinct on (r.hold, r.relation) r.hold, r.relation, r.name, r.attached, r.ended
      from e
      join lapse.hold_relation r on r.hold = e.hold
     order by r.hold, r.relation, r.id desc
  ), below(hold, relation) as (
    select e.hold, e.table_oid from e
    union
    select k.hold, k.relation from known k where not k.ended
    union
    select below.hold, i.inhrelid from below join pg_inherits i on i.inhparent = below.relation
  ), lately(relation) as (
    select i.inhrelid
      from pg_inherits i
      join pg_attribute a on a.attrelid = i.inhrelid and a.attnum = -6 and a.xmin <> i.xmin
     where exists (select from pg_partition_ancestors(i.inhrelid) p join lapse.gate g on g.table_oid = p.relid and g.state <> 'dropped')
       and exists (select from e)
       -- Until somebody has accepted what is here now, the catalog's numbers may be of another server.
       and lapse.system_identifier() = (select y.system_identifier from lapse.history y order by y.number desc limit 1)
  ), found(hold, relation, attached) as (
    select below.hold, below.relation, false from below
    union all
    select o.hold, o.leaf, true
      from lapse.holds_on(array(select l.relation from lately cross join lateral lapse.leaves(lately.relation) l)) o
     where not exists (select from below where below.hold = o.hold and below.relation = o.leaf)
  )
  select f.hold, f.relation, format('%I.%I', n.nspname, c.relname), f.attached, false,
         (select coalesce(jsonb_agg(jsonb_build_object('name', a.attname, 'number', a.attnum, 'type', format_type(a.atttypid, null), 'made', lapse.made(a.attrelid, a.attnum))), '[]')
            from jsonb_to_recordset(e.columns) w(name name)
            join pg_attribute a on a.attrelid = c.oid and a.attname = w.name and not a.attisdropped)
    from found f
    join e on e.hold = f.hold
    join pg_class c on c.oid = f.relation
    join pg_namespace n on n.oid = c.relnamespace
    left join known k on k.hold = f.hold and k.relation = f.relation
   where k.hold is null or k.ended
  union all
  select k.hold, k.relation, k.name, k.attached, true, null
    from known k
   where not k.ended and not exists (select from pg_class c where c.oid = k.relation)
   order by 1, 2;
end
$lapse$;
comment on function lapse.follow_holds is 'Records what has come below held tables, and what of it was dropped.';

-- hold_faults says what is wrong with the tables of holds: policies stop for it.
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

-- hold_fault is what there is to say of a hold whose table is gone, of one whose name another table has, and of one whose columns are others.
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
comment on function lapse.hold_fault is 'What there is to say, and to do, about a hold whose table has changed.';

-- parts are types and what those are made of that others than PostgreSQL made, to any depth: what domains, arrays and ranges are over,
-- the fields of rows.
create function lapse.parts(types oid[]) returns setof oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return query
  with recursive part(oid) as (
    select unnest(parts.types)
    union
    select n.oid
      from part
      join pg_type y on y.oid = part.oid
     cross join lateral (
       select y.typbasetype
       union select y.typelem
       union select r.rngsubtype from pg_range r where y.oid in (r.rngtypid, r.rngmultitypid)
       union select a.atttypid from pg_attribute a where a.attrelid = y.typrelid and a.attnum > 0 and not a.attisdropped) n(oid)
     where n.oid >= 16384
  )
  select part.oid from part;
end
$lapse$;
comment on function lapse.parts is 'Types, and those that they are made of and that others than PostgreSQL made.';

-- meaning is what decides what an expression over a column says, besides the type's name, as an object of JSON. Each label of an enum
-- is there by its oid: an enum that got one more has all that it had. Under "" is a digest of everything else: collation, what the type is
-- made of, and the casts from and to it that others than PostgreSQL made; empty for PostgreSQL's own types with their own collation.
create function lapse.meaning(type oid, collated oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if meaning.type < 16384 and meaning.collated in (0, (select y.typcollation from pg_type y where y.oid = meaning.type)) then
    return '{"": ""}';
  end if;
  return (
    select jsonb_build_object('', md5(concat(
        (select concat_ws(' ', c.collnamespace::regnamespace, c.collname, c.collprovider, c.collisdeterministic, c.collversion,
                          coalesce(c.collcollate, r.j ->> 'colllocale', r.j ->> 'colliculocale'), nullif(c.collctype, c.collcollate), r.j ->> 'collicurules')
           from pg_collation c cross join lateral (select to_jsonb(c) as j) r
          where c.oid = meaning.collated),
        string_agg(concat(format_type(p.oid, null), ' ', format_type(y.typbasetype, y.typtypmod),
          (select json_agg(array[a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation::text] order by a.attnum)::text
             from pg_attribute a where a.attrelid = y.typrelid and a.attnum > 0 and not a.attisdropped),
          (select json_agg(array[k.castsource::regtype::text, k.casttarget::regtype::text, k.castfunc::regproc::text, k.castcontext::text] order by k.castsource, k.casttarget)::text
             from pg_cast k where p.oid >= 16384 and p.oid in (k.castsource, k.casttarget))), ' ' order by format_type(p.oid, null)))))
      || (select coalesce(jsonb_object_agg(e.oid, e.enumlabel), '{}')
            from lapse.parts(array[meaning.type]) n(oid) join pg_enum e on e.enumtypid = n.oid)
      from lapse.parts(array[meaning.type]) p(oid) join pg_type y on y.oid = p.oid)::text;
end
$lapse$;
comment on function lapse.meaning is 'What decides what an expression over a column says, besides the name of its type.';

-- made is a digest of the expression that a generated column has its values from, '' for another one.
create function lapse.made(relation oid, number int2) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $lapse$
  select coalesce((select md5(d.adbin::text)
                     from pg_attribute a join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
                    where a.attrelid = made.relation and a.attnum = made.number and a.attgenerated <> ''), '')
$lapse$;
comment on function lapse.made is 'A digest of the expression of a generated column; empty for another one.';

-- with_meaning adds to columns of a relation what decides what an expression over them says.
create function lapse.with_meaning(relation oid, columns jsonb) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return (select coalesce(jsonb_agg(w.value || jsonb_build_object('means', lapse.meaning(a.atttypid, a.attcollation), 'made', lapse.made(a.attrelid, a.attnum)) order by w.n), '[]')
            from jsonb_array_elements(with_meaning.columns) with ordinality w(value, n)
            join pg_attribute a on a.attrelid = with_meaning.relation and a.attname = w.value ->> 'name' and not a.attisdropped);
end
$lapse$;
comment on function lapse.with_meaning is 'Columns of a relation, with what decides what an expression over them says.';

-- same_columns says whether a relation has columns: name and type; number and a generated column's expression where these count, since a
-- partition may have others.
create function lapse.same_columns(relation oid, columns jsonb, numbered boolean) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return not exists (
    select from jsonb_to_recordset(same_columns.columns) w(name name, number int2, type text, means text, made text)
     where not exists (
       select from pg_attribute a
        where a.attrelid = same_columns.relation and a.attname = w.name and not a.attisdropped
          and (not same_columns.numbered or a.attnum = w.number and (w.made is null or lapse.made(a.attrelid, a.attnum) = w.made)) and (w.type is null or format_type(a.atttypid, null) = w.type)
          and (w.means is null or lapse.meaning(a.atttypid, a.attcollation) = w.means)));
end
$lapse$;
comment on function lapse.same_columns is 'Whether a relation has these columns: names, types, and numbers where they count.';

-- changed_part is one of some relations that a hold was ever on of which the columns are not those of the moment when it was found; null for
-- none. What was detached, or what a hold was moved from, goes its own way since.
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
comment on function lapse.changed_part is 'A relation that a hold was ever on, and that has other columns since; null for none.';

-- strayed says of which held table rows were deleted in this transaction that nobody has asked about; null for none: those of a table that
-- foreign keys reach where more went than the batch had locked, and those of others. Only code that the policy trusts can do that, or who
-- inserts rows that refer to a locked one without the foreign key's check, as a subscription does.
create function lapse.strayed(claim lapse.claim, policy int, version int, before bigint[], locked oid[]) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  more   oid[];
  trusts boolean := exists (select from lapse.policy p where p.id = strayed.policy and p.version = strayed.version and p.trusted <> '[]');
begin
  if not trusts and strayed.locked is null then
    return null;
  end if;
  more := array(
    select r.relation
      from (select unnest(claim.cascades)
            union
            select l.relation from lapse.enforced_holds() e cross join lateral lapse.leaves(e.table_oid) l where trusts
            union
            select r.relation from lapse.enforced_holds() e join lapse.hold_relation r on r.hold = e.hold and trusts) r(relation)
      left join unnest(claim.target || claim.cascades) with ordinality t(oid, n) on t.oid = r.relation
      left join (select l.oid, count(*) as n from unnest(strayed.locked) l(oid) group by l.oid) l on l.oid = r.relation
     where r.relation <> claim.target
       and coalesce(pg_stat_get_xact_tuples_deleted(r.relation), 0) - coalesce(strayed.before[t.n], 0) > coalesce(l.n, 0));
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
comment on function lapse.strayed is 'Of which held table rows were deleted in this transaction that nobody had asked about; null for none.';

-- changed_columns says which of a policy's columns are not those that apply saw: made anew, renamed, of another type, or of one that means
-- something else. Labels that an enum got since change no row's answer. Null for none.
create function lapse.changed_columns(relation oid, columns jsonb) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return (
    select string_agg(distinct quote_ident(w.name) ||
             case when a.attnum is null then '' else format(' (labels or casts of %s, or its collation)', w.type) end, ', ')
      from jsonb_to_recordset(changed_columns.columns) w(name name, number int2, type text, means text)
      left join pg_attribute a
        on a.attrelid = changed_columns.relation and a.attname = w.name and a.attnum = w.number and not a.attisdropped
       and (w.type is null or format_type(a.atttypid, null) = w.type)
     where a.attnum is null or not lapse.meaning(a.atttypid, a.attcollation)::jsonb @> w.means::jsonb);
end
$lapse$;
comment on function lapse.changed_columns is 'Which columns of a relation are not those that a policy was applied to; null for none.';

revoke all on function lapse.changed_part(int, oid[]), lapse.strayed(lapse.claim, int, int, bigint[], oid[]), lapse.overwrites(oid[]), lapse.holds_on(oid[]), lapse.follow_holds(), lapse.hold_faults(), lapse.hold_fault(text, int, text),
  lapse.same_columns(oid, jsonb, boolean), lapse.parts(oid[]), lapse.meaning(oid, oid), lapse.made(oid, int2), lapse.with_meaning(oid, jsonb), lapse.changed_columns(oid, jsonb) from public;
grant execute on function lapse.parts(oid[]), lapse.meaning(oid, oid), lapse.changed_columns(oid, jsonb) to {{.Executor}};
grant execute on function lapse.hold_faults() to {{.Executor}}, {{.Auditor}};
