-- Legal holds. A row under a hold is not deleted, whatever a policy says, and neither is a row whose deletion would delete a held one by ON
-- DELETE CASCADE.
--
-- hold and hold_state are published: what was held, since when, by whom, but not the contents of rows. Keys and conditions identify rows,
-- and so people: they are in tables that are not published, bound to the published row by a salted digest, and are deleted when the hold
-- is over.
--
--   requested   enforced by every batch that begins from then on                         written by `lapse hold place`
--   effective   no batch that did not see it can commit any more                         the same, with all gates locked
--               again, with another table: it is moved there, and also stays where it was   `lapse hold move`
--   releasing   enforced until an instant                                                written by `lapse hold release`
--   released    over                                                                     the same, or the next reader after that instant

create table lapse.hold (
  id         int primary key check (id > 0),
  table_oid  oid not null,
  table_name text not null,
  columns    jsonb not null,
  keys       bigint check (keys > 0),
  digest     bytea not null check (octet_length(digest) = 32),
  matter     text not null check (char_length(matter) between 1 and 200),
  reason     text not null check (octet_length(reason) between 1 and 2000),
  placed_at  timestamptz not null default clock_timestamp(),
  placed_by  text not null default session_user,
  placed_in  xid8 not null default pg_snapshot_xmin(pg_current_snapshot())
);
create trigger append_only before update or delete or truncate on lapse.hold
  for each statement execute function lapse.refuse_change();
alter table lapse.hold replica identity full;
comment on table lapse.hold is 'Every legal hold; append-only, published.';
comment on column lapse.hold.id is 'Number of the hold.';
comment on column lapse.hold.table_oid is 'The table, or the partition.';
comment on column lapse.hold.table_name is 'schema.table when it was placed, quoted as in SQL.';
comment on column lapse.hold.columns is '[{name, number, type}] of the columns that the condition reads.';
comment on column lapse.hold.keys is 'How many keys are held; null for a condition.';
comment on column lapse.hold.digest is 'SHA-256 over the salt and the content, which are in hold_content and hold_key.';
comment on column lapse.hold.matter is 'Code of the legal matter.';
comment on column lapse.hold.reason is 'Why, as given with the command.';
comment on column lapse.hold.placed_at is 'When it was placed.';
comment on column lapse.hold.placed_by is 'The login that placed it.';
comment on column lapse.hold.placed_in is 'The oldest transaction that ran when it was placed: what an older one attached cannot have been a part of the table in between.';

create table lapse.hold_state (
  id             bigint primary key,
  hold           int not null references lapse.hold,
  state          text not null check (state in ('requested', 'effective', 'releasing', 'released')),
  enforced_until timestamptz check ((enforced_until is not null) = (state = 'releasing')),
  position       pg_lsn not null default pg_current_wal_insert_lsn(),
  changed_at     timestamptz not null default clock_timestamp(),
  changed_by     text not null default session_user,
  reason         text not null check (octet_length(reason) <= 2000),
  table_oid      oid,
  table_name     text,
  columns        jsonb,
  check (num_nulls(table_oid, table_name, columns) in (0, 3) and (table_oid is null or state = 'requested'))
);
create index on lapse.hold_state (hold, id);
create index on lapse.hold_state (changed_at);
create index on lapse.hold_state (enforced_until) where enforced_until is not null;
create trigger append_only before update or delete or truncate on lapse.hold_state
  for each statement execute function lapse.refuse_change();
alter table lapse.hold_state replica identity full;
comment on table lapse.hold_state is 'Every change of a hold''s state; append-only, published. The last one is in force.';
comment on column lapse.hold_state.id is 'Order of the changes. The last one of state requested is the hold version that batches claim.';
comment on column lapse.hold_state.hold is 'The hold.';
comment on column lapse.hold_state.state is 'requested, effective, releasing or released.';
comment on column lapse.hold_state.enforced_until is 'While releasing: when the hold ends.';
comment on column lapse.hold_state.position is 'End of the log when the row was written. Every commit above the position of state effective has seen the hold.';
comment on column lapse.hold_state.changed_at is 'When it changed.';
comment on column lapse.hold_state.changed_by is 'The login that changed it.';
comment on column lapse.hold_state.reason is 'Why, as given with the command.';
comment on column lapse.hold_state.table_oid is 'The table that the hold was moved to; null if it was not.';
comment on column lapse.hold_state.table_name is 'Its name then, quoted as in SQL.';
comment on column lapse.hold_state.columns is 'Its columns that the condition reads, as in lapse.hold.';

create table lapse.hold_content (
  hold      int primary key references lapse.hold,
  condition text not null,
  salt      bytea not null
);
comment on table lapse.hold_content is 'What is held, while the hold is in force; never published.';
comment on column lapse.hold_content.hold is 'The hold.';
comment on column lapse.hold_content.condition is 'SQL that is true for a held row t, written by lapse from the condition that it checked.';
comment on column lapse.hold_content.salt is 'Random bytes, so that nobody can guess the content from the digest.';

create table lapse.hold_key (
  hold int not null references lapse.hold_content on delete cascade,
  key  text[] not null
);
create index on lapse.hold_key (hold);
comment on table lapse.hold_key is 'The keys of holds that have keys, while they are in force; never published.';
comment on column lapse.hold_key.hold is 'The hold.';
comment on column lapse.hold_key.key is 'Values of the hold''s columns as their types write them.';

-- caller proves which role asks which rows must stay. A SECURITY DEFINER function cannot see who called it, but a view can: in it,
-- current_user is the role that reads the view. The proof is for that role, and is worthless in another session or transaction. So code that
-- a table's owner runs as the owner's deleter, with the executor's login, can prove to be only that deleter.
create table lapse.caller_secret (
  only_row boolean primary key default true check (only_row),
  secret   bytea not null check (octet_length(secret) = 32)
);
comment on table lapse.caller_secret is 'The secret from which lapse.caller makes its proofs. Only the catalog''s owner may read it; it is not published.';
comment on column lapse.caller_secret.only_row is 'There is one row.';
comment on column lapse.caller_secret.secret is 'Random bytes.';

insert into lapse.caller_secret (secret) select sha256(convert_to(concat(gen_random_uuid(), gen_random_uuid()), 'UTF8'));
create view lapse.caller as
  select sha256(convert_to(concat_ws(' ', pg_backend_pid(), extract(epoch from now()), current_user), 'UTF8') || s.secret) as proof
    from lapse.caller_secret s;
comment on view lapse.caller is 'Proves to a function of the catalog which role reads it. For deleters.';
comment on column lapse.caller.proof is 'Valid only in this session and transaction.';

-- is_caller reports whether a proof is for a role.
create function lapse.is_caller(role name, proof bytea) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return coalesce(is_caller.proof = (
    select sha256(convert_to(concat_ws(' ', pg_backend_pid(), extract(epoch from now()), is_caller.role), 'UTF8') || s.secret)
      from lapse.caller_secret s), false);
end
$lapse$;
comment on function lapse.is_caller is 'Whether a proof is for a role: see lapse.caller.';

-- check_caller refuses every role except the deleter of the present owner of a policy's table.
create function lapse.check_caller(policy int, version int, proof bytea) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not exists ( -- as is_caller says it; each batch asks this, and a call costs as much as the rest
    select from lapse.policy p
      join pg_class c on c.oid = p.table_oid
      join lapse.deleter d on d.owner = c.relowner
     cross join lapse.caller_secret s
     where p.id = check_caller.policy and p.version = check_caller.version
       and check_caller.proof = sha256(convert_to(concat_ws(' ', pg_backend_pid(), extract(epoch from now()), d.role), 'UTF8') || s.secret)) then
    raise exception 'only the deleter of the owner of its table may ask which rows policy % must leave', check_caller.policy
      using errcode = 'insufficient_privilege';
  end if;
end
$lapse$;
comment on function lapse.check_caller is 'Refuses every role except the deleter of the owner of a policy''s table.';

-- may_ask reports whether a deleter may read the keys of a hold. It searches upwards, from the hold's table.
create function lapse.may_ask(hold int, proof bytea) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
declare
  deleter record;
  on_it   oid[];
begin
  select d.role, d.owner into deleter from lapse.deleter d where lapse.is_caller(d.role, may_ask.proof);
  if not found then
    return false;
  end if;
  select array_agg(c.oid) into on_it
    from (select distinct on (r.relation) r.relation, r.ended from lapse.hold_relation r where r.hold = may_ask.hold order by r.relation, r.id desc) r
    join pg_class c on c.oid = r.relation
   where not r.ended;
  if exists (select from pg_class c where c.oid = any (on_it) and c.relowner = deleter.owner) then
    return true;
  end if;
  return exists (
    with recursive k as materialized (
      select coalesce(pg_partition_root(c.conrelid)::oid, c.conrelid) as child, coalesce(pg_partition_root(c.confrelid)::oid, c.confrelid) as parent
        from pg_constraint c
       where c.contype = 'f' and (c.confdeltype = 'c' or c.oid in (select o.key from lapse.overwrites(on_it) o where may_ask.hold = any (o.holds)))
    ), up(node) as (
      select coalesce(pg_partition_root(r.oid)::oid, r.oid) from unnest(on_it) r(oid)
       where has_table_privilege(deleter.role, r.oid, 'select') or has_table_privilege(deleter.role, pg_partition_root(r.oid), 'select')
      union
      select k.parent from up join k on k.child = up.node
    )
    select from up join pg_class c on c.oid = up.node where c.relowner = deleter.owner);
end
$lapse$;
comment on function lapse.may_ask is 'Whether the deleter that proves to be the caller may read the keys of a hold.';

-- enforced_holds lists the holds that batches obey, with their contents and each table that they cover. A hold counts as gone if its table is,
-- unless it was released after that was known: then a person has confirmed that nothing replaced the table. What was attached from
-- transaction since on may have been below the table.
create function lapse.enforced_holds()
returns table (hold int, table_oid oid, table_name text, columns jsonb, condition text, gone boolean, since bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
begin
  return query
  select h.id, n.table_oid, n.table_name, n.columns, c.condition,
         not exists (select from pg_class t where t.oid = n.table_oid)
           and not (s.state = 'releasing' and exists (select from lapse.hold_relation r
                                                       where r.hold = h.id and r.relation = n.table_oid and r.ended and r.recorded_at <= s.changed_at)),
         greatest(h.placed_in, (select y.xid from lapse.history y order by y.number desc limit 1))::text::bigint
    from lapse.hold h
   cross join lateral (select s.state, s.enforced_until, s.changed_at from lapse.hold_state s where s.hold = h.id order by s.id desc limit 1) s
   cross join lateral (
     select m.table_oid, m.table_name, m.columns
       from (select m.id, m.table_oid, m.table_name, m.columns from lapse.hold_state m where m.hold = h.id and m.table_oid is not null
             union all
             select 0, h.table_oid, h.table_name, h.columns) m
      order by m.id desc
      limit 1) n
    left join lapse.hold_content c on c.hold = h.id
   where s.state in ('requested', 'effective') or s.state = 'releasing' and s.enforced_until > clock_timestamp()
   order by h.id;
end
$lapse$;
comment on function lapse.enforced_holds is 'The holds that batches obey.';

-- held_keys returns the keys of a hold. Conditions call it, in a batch or a survey, as the deleter. It covers holds on tables of the
-- deleter's owner, and on tables that the deleter may read and that a foreign key from a table of that owner leads to by ON DELETE CASCADE,
-- or by setting a column that the hold reads.
create function lapse.held_keys(hold int, proof bytea) returns table (key text[])
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may ask which rows are held', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  if not lapse.may_ask(held_keys.hold, held_keys.proof) then
    raise exception 'hold % is on no table of the owner whose deleter asks, nor on one that it may read and its deletions reach', held_keys.hold
      using errcode = 'insufficient_privilege';
  end if;
  return query select k.key from lapse.hold_key k where k.hold = held_keys.hold;
  if not found then
    raise exception 'the keys of hold % are gone', held_keys.hold -- a batch that knew it before its release is tried again
      using errcode = case when exists (select from lapse.enforced_holds() e where e.hold = held_keys.hold) then 'LP024' else 'LP002' end;
  end if;
end
$lapse$;
comment on function lapse.held_keys is 'The keys of a hold, for the conditions of deletion and survey functions.';

-- held_on is SQL that is true for the rows t of a relation that at least one of some holds covers; null if none does. The relation is a
-- table, a partition, or a partitioned table; a hold may cover only some of its leaves.
create function lapse.held_on(relation oid, holds int[]) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  h     record;
  all_leaves oid[] := array(select l.relation from lapse.leaves(held_on.relation) l);
  parts text[] := '{}';
  changed text;
begin
  for h in
    select e.*, o.leaves, cardinality(o.leaves) = cardinality(all_leaves) as whole
      from lapse.enforced_holds() e
      join (select x.hold, array_agg(x.leaf order by x.leaf) as leaves from lapse.holds_on(all_leaves) x group by x.hold) o on o.hold = e.hold
     where e.hold = any (held_on.holds)
     order by e.hold
  loop
    if h.condition is null then
      raise exception 'what hold % is on is gone from lapse.hold_content', h.hold using errcode = 'LP024';
    end if;
    -- A column that was made again, renamed or given another type is not the one that the hold speaks of.
    changed := case when not lapse.same_columns(held_on.relation, h.columns, false)
                      or exists (select from pg_class c where c.oid = h.table_oid) and not lapse.same_columns(h.table_oid, h.columns, true) then h.table_name
                    else lapse.changed_part(h.hold, h.leaves) end;
    if changed is not null then
      raise exception '%', lapse.hold_fault('changed', h.hold, changed) using errcode = 'LP024';
    end if;
    parts := parts || case when h.whole then format('(%s)', h.condition)
                           else format('(t.tableoid = any (%L::pg_catalog.oid[]) and (%s))', h.leaves, h.condition) end;
  end loop;
  return nullif(array_to_string(parts, ' or '), '');
end
$lapse$;
comment on function lapse.held_on is 'SQL that is true for the rows of a relation that a hold covers; null if no hold does.';

-- held_along is SQL that is true for the rows t of a relation whose deletion would, through foreign keys of any depth, delete a row under one
-- of some holds, or set a column that the hold reads so that the hold would no longer match; null if no foreign key leads there. below are
-- the roots of the tables in which the deletion deletes, updated those in which it sets a column, and root the relation's own. The statement
-- follows the foreign keys from one row, using the indexes that the deletion itself needs; the other way round it would read all rows of
-- the child.
create function lapse.held_along(relation oid, root oid, below oid[], updated oid[], holds int[], reader name) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  conditions jsonb;
  edges      jsonb;
  unreadable record;
  seed       text;
  step       text;
  test       text;
begin
  select jsonb_object_agg(b.oid::text, c.condition) into conditions
    from (select unnest(held_along.below) as oid, held_along.holds
          union all
          select o.child, array_agg(h) from lapse.overwrites(held_along.updated) o cross join lateral unnest(o.holds) h where o.child <> all (held_along.below) group by o.child) b
   cross join lateral (select lapse.held_on(b.oid, b.holds) as condition) c
   where c.condition is not null;
  if conditions is null then
    return null;
  end if;
  edges := lapse.ways(held_along.root, array(select o.key::oid from jsonb_object_keys(conditions) o(key)), array(select o.key from lapse.overwrites(held_along.updated) o));
  -- What a cascade may delete is read, and locked: see 0001_15_ways.sql. A row can be locked with the right to update any column of it.
  select format('%I.%I', n.nspname, c.relname) as name, format('%I', n.nspname) as schema, min(r.col) as col,
         has_schema_privilege(held_along.reader, n.oid, 'usage') as used, s.hidden into unreadable
    from (select (e ->> 'from')::oid, e ->> 'column' from jsonb_array_elements(edges) e
          union select o.key::oid, null from jsonb_object_keys(conditions) o(key)) r(oid, col)
    join pg_class c on c.oid = r.oid
    join pg_namespace n on n.oid = c.relnamespace
   cross join lateral (
     select exists (select from (select l.relation from lapse.leaves(c.oid) l union select c.oid) l(relation)
                      join pg_class x on x.oid = l.relation
                      join pg_roles u on u.rolname = held_along.reader
                     where x.relrowsecurity and not u.rolbypassrls and not u.rolsuper
                       and (x.relforcerowsecurity or not pg_has_role(u.oid, x.relowner, 'usage'))) as hidden) s
   where s.hidden
      or not (has_table_privilege(held_along.reader, c.oid, 'select') and has_schema_privilege(held_along.reader, n.oid, 'usage')
              and (r.col is null or has_any_column_privilege(held_along.reader, c.oid, 'update')))
   group by c.oid, n.oid, c.relname, n.nspname, s.hidden
   order by 1
   limit 1;
  if found and unreadable.hidden then
    raise exception 'rows of % are held, or lie on the way to rows that are, and row security hides rows of it from %: have a superuser run: alter role % bypassrls',
      unreadable.name, held_along.reader, quote_ident(held_along.reader) using errcode = 'LP024';
  elsif found then
    raise exception 'rows of % are held, or lie on the way to rows that are, and % may not read and lock them: grant %select% on % to %', unreadable.name,
      held_along.reader, case when unreadable.used then '' else format('usage on schema %s to %I; grant ', unreadable.schema, held_along.reader) end,
      coalesce(', update (' || unreadable.col || ')', ''), unreadable.name, quote_ident(held_along.reader) using errcode = 'LP024';
  end if;
  select string_agg(format('select %s::pg_catalog.oid, c.tableoid, c.ctid from %s as c where %s%s', e ->> 'child',
                           case when (e ->> 'only')::boolean then 'only ' else '' end || (e ->> 'name'),
                           (select format(e ->> 'on', variadic array_fill('t'::text, array[(e ->> 'width')::int]))),
                           case when a.above then '' else format(' and t.tableoid = any (%L::pg_catalog.oid[])',
                             array(select l.relation from lapse.leaves((e ->> 'refers')::oid) l)) end),
                    ' union ' order by e::text) into seed
    from jsonb_array_elements(edges) e
   cross join lateral (
     select (e ->> 'refers')::oid = held_along.relation
            or exists (select from pg_partition_ancestors(held_along.relation) p where p.relid = (e ->> 'refers')::oid) as above,
            exists (select from pg_partition_ancestors((e ->> 'refers')::oid) p where p.relid = held_along.relation) as inside
   ) a
   where (e ->> 'parent')::oid = held_along.root and (a.above or a.inside);
  if seed is null then
    return null;
  end if;
  select string_agg(format('select %s::pg_catalog.oid as node, c.tableoid as rel, c.ctid as at from %s as p join %s as c on %s where d.node = %s and p.ctid = d.at and p.tableoid = d.rel',
                           e ->> 'child', e ->> 'to', case when (e ->> 'only')::boolean then 'only ' else '' end || (e ->> 'name'),
                           (select format(e ->> 'on', variadic array_fill('p'::text, array[(e ->> 'width')::int]))), e ->> 'parent'),
                    ' union all ' order by e::text) into step
    from jsonb_array_elements(edges) e
   where e ->> 'parent' in (select x ->> 'child' from jsonb_array_elements(edges) x);
  select string_agg(format('select from %s as t where d.node = %s and t.ctid = d.at and t.tableoid = d.rel and (%s)',
                           case when c.relkind = 'r' then 'only ' else '' end || format('%I.%I', n.nspname, c.relname), o.key, o.value),
                    ' union all ' order by o.key) into test
    from jsonb_each_text(conditions) o
    join pg_class c on c.oid = o.key::oid
    join pg_namespace n on n.oid = c.relnamespace;
  return format('exists (with recursive d(node, rel, at) as (%s%s) select from d cross join lateral (%s) h)', seed,
    ' union select n.node, n.rel, n.at from d cross join lateral (' || step || ') n', test);
end
$lapse$;
comment on function lapse.held_along is 'SQL that is true for the rows of a relation whose deletion would delete or change held rows; null if there are none.';

-- held is SQL that is true for the rows t of a relation that are held, or whose deletion would delete held rows; null if there are none. The
-- relation is the policy's table or a leaf of it. If a hold would no longer match anything, because another table has its name, its columns
-- have changed, or its table is gone, held raises an error. What replaced a missing table may have any name and any policy, so such a
-- hold stops every policy.
create function lapse.held(policy int, version int, leaf oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  own   oid[];
  roots oid[];
  along oid[];
  sets  oid[];
  named int[];
  wrong record;
  sql   text;
begin
  if not exists (select from lapse.hold) then
    return null;
  end if;
  if not exists (select from lapse.enforced_holds()) then
    return null;
  end if;
  own := array(
    with recursive tree(relation) as (
      select held.leaf
      union
      select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.relation
    )
    select tree.relation from tree union select a.relid from pg_partition_ancestors(held.leaf) a);
  -- Where a column is set, nothing is deleted by cascade.
  if not lapse.sets(held.policy, held.version) then
    select coalesce(array_agg(r.relation) filter (where r.deletes), '{}'), coalesce(array_agg(r.relation) filter (where not r.deletes), '{}')
      into along, sets
      from lapse.reach(own) r;
  end if;
  roots := array(select distinct coalesce(pg_partition_root(r.oid)::oid, r.oid) from unnest(along) r(oid));
  along := array(select unnest(along) union select a.relid from unnest(along) r(oid) cross join lateral pg_partition_ancestors(r.oid) a);
  select e.hold, e.table_name into wrong
    from lapse.enforced_holds() e
    join pg_class c on c.oid = any (own || along) and c.oid <> e.table_oid and c.relkind in ('r', 'p')
    join pg_namespace n on n.oid = c.relnamespace and format('%I.%I', n.nspname, c.relname) = e.table_name
   limit 1;
  if found then
    raise exception '%', lapse.hold_fault('swapped', wrong.hold, wrong.table_name) using errcode = 'LP024';
  end if;
  named := array(select o.hold from lapse.holds_on(own || along) o union select unnest(o.holds) from lapse.overwrites(sets) o);
  if named <> '{}' then
    sql := nullif(concat_ws(' or ', lapse.held_on(held.leaf, named),
      lapse.held_along(held.leaf, coalesce(pg_partition_root(held.leaf)::oid, held.leaf), roots, sets, named,
        lapse.deleter_of(held.policy, held.version))), '');
  end if;
  select e.hold, e.table_name into wrong from lapse.enforced_holds() e where e.gone limit 1;
  if found then
    raise exception '%', lapse.hold_fault('gone', wrong.hold, wrong.table_name) using errcode = 'LP024';
  end if;
  return sql;
end
$lapse$;
comment on function lapse.held is 'SQL that is true for the held rows of a leaf, or of the policy''s table; null if there are none.';

-- held_rows is held for the policy's whole table. The survey function calls it.
create function lapse.held_rows(policy int, version int, proof bytea) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may count what is due', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  perform lapse.check_caller(held_rows.policy, held_rows.version, held_rows.proof);
  return lapse.held(held_rows.policy, held_rows.version,
    (select p.table_oid from lapse.policy p where p.id = held_rows.policy and p.version = held_rows.version));
end
$lapse$;
comment on function lapse.held_rows is 'SQL that is true for the held rows of a policy''s table; null if there are none. For survey functions.';

-- set_hold_version tells batches which holds exist: a batch whose claim knows fewer is refused.
create function lapse.set_hold_version() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  update lapse.gate g set hold_version = n.version
    from (select coalesce(max(s.id), 0) as version from lapse.hold_state s where s.state = 'requested') n
   where g.hold_version <> n.version;
end
$lapse$;
comment on function lapse.set_hold_version is 'Writes the number of the last hold that was requested into every gate.';
