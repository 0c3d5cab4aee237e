-- Policies, their versions, and what is in force.

create table lapse.policy (
  id           int not null,
  version      int not null check (version > 0),
  name         text not null check (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
  table_oid    oid not null,
  table_name   text not null,
  columns      jsonb not null,
  spec         jsonb not null,
  made_at      timestamptz not null default clock_timestamp(),
  made_by      text not null default session_user,
  reason       text not null default '',
  entry        text check (octet_length(entry) <= 65536),
  former_entry text check (octet_length(former_entry) <= 65536),
  trusted      jsonb,
  joined       jsonb not null default '[]',
  primary key (id, version)
);
create trigger append_only before update or delete or truncate on lapse.policy
  for each statement execute function lapse.refuse_change();
alter table lapse.policy replica identity full;
comment on table lapse.policy is 'Every version of every policy, append-only and published. Written by lapse apply.';
comment on column lapse.policy.id is 'Number of the policy. A name keeps its number forever.';
comment on column lapse.policy.version is 'Number of the version, from 1.';
comment on column lapse.policy.name is 'Name of the policy.';
comment on column lapse.policy.table_oid is 'The table that the version deletes from.';
comment on column lapse.policy.table_name is 'Its name when the version was made: schema.table, quoted as in SQL.';
comment on column lapse.policy.columns is 'The columns that the functions were made for: name, number and type of each. A type may be null.';
comment on column lapse.policy.spec is 'The entry of the policy file in canonical form, and what apply resolved: key, cascades, owner of the table.';
comment on column lapse.policy.made_at is 'When the version was made.';
comment on column lapse.policy.made_by is 'Login that applied it.';
comment on column lapse.policy.reason is 'Why, as given by the person who applied it.';
comment on column lapse.policy.entry is 'The entry of the policy file as it was written.';
comment on column lapse.policy.former_entry is 'The entry of the version before. Null in the first version, and where that has none.';
comment on column lapse.policy.trusted is 'the triggers, rules and functions that may run inside the deletions: [{relation, kind, name, digest}]; null where none may';
comment on column lapse.policy.joined is 'the relations that the condition reads in addition to the table: [{oid, name, columns}]';

create table lapse.policy_state (
  policy_id  int not null,
  version    int not null,
  state      text not null check (state in ('observing', 'arming', 'armed', 'paused', 'dropped')),
  changed_at timestamptz not null default clock_timestamp(),
  changed_by text not null default session_user,
  reason     text not null default '',
  continues  boolean not null default false,
  foreign key (policy_id, version) references lapse.policy
);
create index on lapse.policy_state (policy_id, changed_at);
create trigger append_only before update or delete or truncate on lapse.policy_state
  for each statement execute function lapse.refuse_change();
alter table lapse.policy_state replica identity full;
comment on table lapse.policy_state is 'Every change of a policy''s state, append-only and published. Written by lapse apply and lapse policy, and by advance_arming.';
comment on column lapse.policy_state.policy_id is 'The policy.';
comment on column lapse.policy_state.version is 'The version that was in force then.';
comment on column lapse.policy_state.state is 'observing: deletes nothing; arming: waits for the auditor; armed: deletes; paused: stopped by a person; dropped.';
comment on column lapse.policy_state.changed_at is 'When.';
comment on column lapse.policy_state.changed_by is 'Login that did it.';
comment on column lapse.policy_state.reason is 'Why, as given by the person who did it.';
comment on column lapse.policy_state.continues is 'The file was edited, and the version takes the place of a live one, and lets no more rows fall due. Nobody has said yes to what is due, or to the clock.';

-- One row per policy. A batch locks the table ROW SHARE until it commits. What stops a batch or changes its text first locks the table EXCLUSIVE,
-- and so waits until no batch runs under the former state. Arming and new holds lock the row alone: batches compare the number of the holds.
create table lapse.gate (
  policy_id    int primary key,
  name         text not null,
  table_oid    oid not null,
  version      int not null,
  state        text not null check (state in ('observing', 'arming', 'armed', 'paused', 'dropped')),
  held_back    int,
  hold_version bigint not null default 0,
  arming_lsn   pg_lsn,
  soft         boolean not null default false,
  foreign key (policy_id, version) references lapse.policy
);
create unique index gate_name on lapse.gate (name) where state <> 'dropped';
create unique index gate_table on lapse.gate (table_oid, soft) where state <> 'dropped';
alter table lapse.gate replica identity full;
comment on table lapse.gate is 'One row per policy: what is in force now; published. A batch locks the table ROW SHARE until it commits, and what stops batches or changes their text locks it EXCLUSIVE first. Written by lapse apply and lapse policy, and by advance_arming.';
comment on column lapse.gate.policy_id is 'The policy.';
comment on column lapse.gate.name is 'Its name.';
comment on column lapse.gate.table_oid is 'The table that it deletes from.';
comment on column lapse.gate.version is 'The version in force.';
comment on column lapse.gate.state is 'The state, as in policy_state.';
comment on column lapse.gate.held_back is 'The version that waits until a person accepts it, because more rows are due under it; null for none. If it is the version in force, nothing is deleted until then.';
comment on column lapse.gate.hold_version is 'Number of the last change of legal holds that concerns the policy. A batch with another one is refused.';
comment on column lapse.gate.arming_lsn is 'While arming: the position that the auditor must have confirmed before the policy deletes. Null: not recorded yet, or not arming.';
comment on column lapse.gate.soft is 'Whether the policy sets a column of its rows, and deletes none: a table may have one policy of each kind.';

-- Written before an index is made, so that the remains of an interrupted attempt are known to be Lapse's. Lapse drops no other index.
create table lapse.made_index (
  relation oid not null,
  schema   name not null,
  name     name not null,
  policy   text not null,
  index    oid,
  made_at  timestamptz not null default clock_timestamp(),
  primary key (relation, name)
);
comment on table lapse.made_index is 'Indexes that lapse apply made because a policy says index: create, one row each; written by setup (apply)';
comment on column lapse.made_index.relation is 'the table or partition that the index is of';
comment on column lapse.made_index.schema is 'the schema of table and index';
comment on column lapse.made_index.name is 'the name that the index was made with';
comment on column lapse.made_index.policy is 'the policy for which it was made';
comment on column lapse.made_index.index is 'the index; null while it is made, and if making it was interrupted';
comment on column lapse.made_index.made_at is 'when Lapse began to make it';

-- deleter_of returns the role that deletes for a policy.
create function lapse.deleter_of(policy int, version int) returns name
language sql stable
set search_path = pg_catalog, pg_temp
as $lapse$
  select d.role from lapse.policy p join pg_class c on c.oid = p.table_oid join lapse.deleter d on d.owner = c.relowner
   where p.id = deleter_of.policy and p.version = deleter_of.version
$lapse$;
comment on function lapse.deleter_of is 'The role that deletes for a policy.';

-- sets reports whether a policy version sets a column of its rows instead of deleting them ("action: soft"). Its batches have an UPDATE
-- instead of the DELETE, so no foreign key deletes anything, and the checks for cascades are skipped. Checked instead is what code an
-- update of the target would run, and that the audit sees updates.
--
-- Rows that are set stay; later changes of them are no events. One other policy, which deletes the rows, may be in force on the same
-- table: a table may have one policy of each kind.
create function lapse.sets(policy int, version int) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return coalesce((select p.spec ->> 'action' = 'soft' from lapse.policy p where p.id = sets.policy and p.version = sets.version), false);
end
$lapse$;
comment on function lapse.sets is 'Whether a policy version sets a column of its rows, and deletes none.';

-- joined lists the relations that a policy version's condition reads in addition to its table: a sidecar. They are checked for changes
-- since apply, as the table is, and a batch that reads them must run no foreign code.
create function lapse.joined(policy int, version int) returns oid[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return array(select r.oid
                 from lapse.policy p
                cross join lateral jsonb_to_recordset(p.joined) r(oid oid)
                where p.id = joined.policy and p.version = joined.version);
end
$lapse$;
comment on function lapse.joined is 'Relations that a policy version''s condition reads in addition to its table.';

-- parts lists types and, to any depth, the types that they consist of, as far as PostgreSQL did not make them: base types of domains,
-- elements of arrays and ranges, fields of rows.
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
comment on function lapse.parts is 'Types, and the types that they consist of, without PostgreSQL''s own.';

-- meaning returns, as a JSON object, what determines the result of an expression over a column, apart from the type's name. Each label of
-- an enum is listed by its oid, so an enum with one more label still has all that it had. Under "" is a digest of everything else:
-- collation, what the type consists of, and user-defined casts from and to it; empty for PostgreSQL's own types with their own collation.
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
comment on function lapse.meaning is 'What determines the result of an expression over a column, apart from the name of its type.';

-- made returns a digest of a generated column's expression, '' for any other column.
create function lapse.made(relation oid, number int2) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $lapse$
  select coalesce((select md5(d.adbin::text)
                     from pg_attribute a join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
                    where a.attrelid = made.relation and a.attnum = made.number and a.attgenerated <> ''), '')
$lapse$;
comment on function lapse.made is 'A digest of the expression of a generated column; empty for another one.';

-- with_meaning adds the meaning of each column to columns of a relation.
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
comment on function lapse.with_meaning is 'Columns of a relation, each with its meaning: see meaning.';

-- same_columns reports whether a relation has these columns: by name and type, and, if numbered, by number and a generated column's
-- expression too. A partition may have other numbers than its table.
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

-- changed_columns says which of a policy's columns have changed since apply: recreated, renamed, of another type, or of a type that means
-- something else. Labels added to an enum change no row's answer. Null for none.
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

-- same_table returns the policy version's table. It raises an error if the table or its columns have changed since apply.
create function lapse.same_table(policy int, version int) returns oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  p       record;
  j       record;
  changed text;
begin
  select v.table_oid, v.table_name, v.columns, v.joined into p
    from lapse.policy v
   where v.id = same_table.policy and v.version = same_table.version;
  if not exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                  where c.oid = p.table_oid and format('%I.%I', n.nspname, c.relname) = p.table_name) then
    raise exception '% is gone, renamed or another table', p.table_name using errcode = 'LP005';
  end if;
  changed := lapse.changed_columns(p.table_oid, p.columns);
  if changed is not null then
    raise exception 'the columns of % are not those that the policy was applied to: %; run `lapse apply` again', p.table_name, changed
      using errcode = 'LP011';
  end if;
  for j in select * from jsonb_to_recordset(p.joined) r(oid oid, name text, columns jsonb) loop
    if not exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                    where c.oid = j.oid and c.relkind = 'r' and not c.relispartition and format('%I.%I', n.nspname, c.relname) = j.name
                      and c.relowner = (select t.relowner from pg_class t where t.oid = p.table_oid)) then
      raise exception '%, which says when rows of % are due, is gone, renamed, another table or another owner''s', j.name, p.table_name
        using errcode = 'LP005';
    end if;
    changed := lapse.changed_columns(j.oid, j.columns);
    if changed is not null then
      raise exception 'the columns of % are not those that the policy was applied to: %; run `lapse apply` again', j.name, changed
        using errcode = 'LP011';
    end if;
  end loop;
  return p.table_oid;
end
$lapse$;
comment on function lapse.same_table is 'A policy version''s table; an error unless table and columns are those that apply saw.';

-- set_key names a foreign key, in either direction, that contains the column that a policy version sets: PostgreSQL would look up the new
-- value in another table, or pass it on to rows that refer to it.
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
comment on function lapse.set_key is 'A foreign key that contains the column that a policy version sets; null for none.';

-- advance_arming opens an arming policy's gate once the auditor has confirmed the position at which the policy's table was published. The
-- first call, after the publishing transaction has committed, records that position; each later one checks whether the auditor has
-- passed it. It returns the resulting state. Idempotent.
create function lapse.advance_arming(policy int) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  g         lapse.gate;
  i         lapse.installation;
  continues boolean;
begin
  -- A caller that only asks takes no lock that a pause would wait for.
  if exists (select from lapse.gate o where o.policy_id = advance_arming.policy and o.state <> 'arming') then
    return (select o.state from lapse.gate o where o.policy_id = advance_arming.policy);
  end if;
  select * into g from lapse.gate o where o.policy_id = advance_arming.policy for update;
  if not found then
    raise exception 'there is no policy %', policy using errcode = 'no_data_found';
  end if;
  if g.state <> 'arming' then
    return g.state;
  end if;
  select * into i from lapse.installation;
  continues := coalesce((
    select s.continues from lapse.policy_state s
     where s.policy_id = g.policy_id and s.version = g.version and s.state = 'arming'
     order by s.changed_at desc limit 1), false);
  if g.arming_lsn is null then
    update lapse.gate set arming_lsn = pg_current_wal_insert_lsn() where policy_id = policy;
    -- A published row above that position, so that an auditor on a quiet database gets there at once.
    insert into lapse.policy_state (policy_id, version, state, reason, continues)
    values (g.policy_id, g.version, 'arming', case when i.audit_required then 'waiting for the auditor' else 'no auditor to wait for (audit: off)' end, continues);
    return g.state;
  end if;
  if i.audit_required and not exists (
    select from pg_replication_slots s
     where s.slot_name = i.slot and s.database = current_database() and s.confirmed_flush_lsn >= g.arming_lsn
  ) then
    return g.state;
  end if;
  update lapse.gate set state = 'armed' where policy_id = policy;
  insert into lapse.policy_state (policy_id, version, state, reason, continues)
  values (g.policy_id, g.version, 'armed', case when i.audit_required then 'the auditor has passed ' || g.arming_lsn else 'no auditor to wait for (audit: off)' end, continues);
  return 'armed';
end
$lapse$;
comment on function lapse.advance_arming is 'Arms an arming policy once the auditor has read past the moment at which its table was published; with audit: off at the second call. For the executor.';
