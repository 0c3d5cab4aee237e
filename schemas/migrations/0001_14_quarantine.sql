-- Rows that could not be deleted. A batch that steps over a row that resists enters it here, in its own transaction; until the row's next
-- try no batch finds it. The head of 0001_11_batch.sql says who calls these functions.
--
-- key is personal data: it appears in no log, metric or error, and only {{.Owner}} may read it. The executor reads the other columns.

create table lapse.quarantine (
  policy_id        int not null,
  leaf             oid not null,
  digest           bytea not null check (octet_length(digest) = 32),
  key              text[] not null check (array_position(key, null) is null),
  sqlstate         text not null check (octet_length(sqlstate) = 5),
  relation         text check (octet_length(relation) <= 300),
  constraint_name  text check (octet_length(constraint_name) <= 63),
  column_name      text check (octet_length(column_name) <= 63),
  trigger_name     text check (octet_length(trigger_name) <= 63),
  trigger_function text check (octet_length(trigger_function) <= 300),
  referred         boolean not null default false,
  tries            int not null default 1 check (tries > 0),
  entered_at       timestamptz not null default clock_timestamp(),
  tried_at         timestamptz not null default clock_timestamp(),
  retry_at         timestamptz not null,
  primary key (policy_id, leaf, digest)
);
comment on table lapse.quarantine is 'Rows that could not be deleted, and when each is tried again. Keys are personal data. Written by resist, forgive, apply and `lapse quarantine`.';
comment on column lapse.quarantine.policy_id is 'The policy.';
comment on column lapse.quarantine.leaf is 'The table or partition that has the row.';
comment on column lapse.quarantine.digest is 'SHA-256 of the key, so that keys of any length are told apart.';
comment on column lapse.quarantine.key is 'The row''s key, as texts in the order of the policy''s key. Personal data.';
comment on column lapse.quarantine.sqlstate is 'What PostgreSQL said to the last try.';
comment on column lapse.quarantine.relation is 'The table of the constraint, column or trigger; null if none blocked the row.';
comment on column lapse.quarantine.constraint_name is 'The constraint that blocked the row; null if none did.';
comment on column lapse.quarantine.column_name is 'The not-null column that would have been set to null; null if there is none.';
comment on column lapse.quarantine.trigger_name is 'The trigger that raised the error; null if none did, or if it is not known.';
comment on column lapse.quarantine.trigger_function is 'Its function.';
comment on column lapse.quarantine.referred is 'Whether a careful batch left the row out because something refers to it; false where its deletion failed.';
comment on column lapse.quarantine.tries is 'How often the row was tried.';
comment on column lapse.quarantine.entered_at is 'When it was tried first.';
comment on column lapse.quarantine.tried_at is 'When it was tried last.';
comment on column lapse.quarantine.retry_at is 'Not tried again before.';

-- The auditor learns how many rows enter and leave the quarantine: it must not read the table itself, which has keys.
create table lapse.quarantine_change (
  number     bigint generated always as identity primary key,
  policy_id  int not null,
  policy     text,
  leaf       oid not null,
  name       text,
  entered    bigint not null default 0,
  left_it    bigint not null default 0,
  changed_at timestamptz not null default clock_timestamp(),
  changed_by text not null default session_user
);
create index on lapse.quarantine_change (changed_at);
comment on table lapse.quarantine_change is 'How many rows one statement added to the quarantine or removed from it; published, and removed by prune. Written by the triggers of lapse.quarantine.';
comment on column lapse.quarantine_change.number is 'Order of the rows.';
comment on column lapse.quarantine_change.policy_id is 'The policy.';
comment on column lapse.quarantine_change.policy is 'Its name.';
comment on column lapse.quarantine_change.leaf is 'The table or partition that has the rows.';
comment on column lapse.quarantine_change.name is 'Its name, quoted as in SQL; null if it is gone.';
comment on column lapse.quarantine_change.entered is 'How many rows entered it.';
comment on column lapse.quarantine_change.left_it is 'How many rows left it: they were deleted, are no longer due, or a person had them tried again.';
comment on column lapse.quarantine_change.changed_at is 'When.';
comment on column lapse.quarantine_change.changed_by is 'The login.';

create function lapse.count_quarantine() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  insert into lapse.quarantine_change (policy_id, policy, leaf, name, entered, left_it)
  select r.policy_id, g.name, r.leaf, case when c.oid is not null then format('%I.%I', n.nspname, c.relname) end, case tg_op when 'INSERT' then r.rows else 0 end,
         case tg_op when 'DELETE' then r.rows else 0 end
    from (select h.policy_id, h.leaf, count(*) as rows from changed h group by h.policy_id, h.leaf) r
    left join lapse.gate g on g.policy_id = r.policy_id
    left join pg_class c on c.oid = r.leaf
    left join pg_namespace n on n.oid = c.relnamespace
   order by r.policy_id, r.leaf;
  return null;
end
$lapse$;
comment on function lapse.count_quarantine is 'Trigger that counts what enters and leaves the quarantine.';

create trigger entered after insert on lapse.quarantine referencing new table as changed
  for each statement execute function lapse.count_quarantine();
create trigger gone after delete on lapse.quarantine referencing old table as changed
  for each statement execute function lapse.count_quarantine();

-- quarantined_keys returns the keys of a leaf's rows that are in quarantine and must not be tried yet at an instant. Conditions call it, in a
-- batch, a look or a survey, as the deleter: if the keys were in a statement's text, the server would log them with the first error.
create function lapse.quarantined_keys(policy int, version int, leaf oid, at timestamptz, proof bytea) returns table (key text[])
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may ask which rows are in quarantine', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  perform lapse.check_caller(quarantined_keys.policy, quarantined_keys.version, quarantined_keys.proof);
  return query
  select q.key from lapse.quarantine q
   where q.policy_id = quarantined_keys.policy and q.leaf = quarantined_keys.leaf and q.retry_at > quarantined_keys.at;
end
$lapse$;
comment on function lapse.quarantined_keys is 'The keys of a leaf''s rows that must not be tried yet, for the conditions of deletion and look functions.';

-- quarantined is SQL that is true for the rows t of a leaf that are in quarantine and must not be tried yet; null if there are none.
create function lapse.quarantined(policy int, version int, leaf oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, YMD'
set timezone = 'UTC'
as $lapse$
declare
  at    timestamptz := clock_timestamp();
  names text;
  keys  text;
begin
  if not exists (select from lapse.quarantine q where q.policy_id = quarantined.policy and q.leaf = quarantined.leaf and q.retry_at > at) then
    return null;
  end if;
  select string_agg(case when k.plain then format('t.%I', k.name) else format('(t.%I)::text collate "C"', k.name) end, ', ' order by k.n),
         string_agg(format('(k.key[%s])::%s', k.n, case when k.plain then k.type else 'text' end), ', ' order by k.n)
    into names, keys
    from lapse.policy p
   cross join lateral rows from (jsonb_to_recordset(p.spec -> 'key') as (name text, type text, plain boolean)) with ordinality as k(name, type, plain, n)
   where p.id = quarantined.policy and p.version = quarantined.version;
  return format('(%s) in (select %s from lapse.quarantined_keys(%s, %s, %s, %L, (select caller.proof from lapse.caller)) k)', names, keys, quarantined.policy, quarantined.version,
    quarantined.leaf, at);
end
$lapse$;
comment on function lapse.quarantined is 'SQL that is true for the rows of a leaf that are in quarantine and must not be tried yet; null if there are none.';

-- resist enters the one row of a batch that steps over it, after its deletion failed and the subtransaction was rolled back. The row is tried
-- again after a minute, and after each further failure after twice as long, at most a day. It returns what record returned: what was
-- rolled back still counts. If the cause is another session's lock, resist enters nothing, and the row is found again. If the cause is not
-- the row (a deadlock, a server that stops or is out of space, damaged data, a refusal of ours), it enters nothing and returns null.
--
-- If at least as many rows of a run were entered as it has deleted, and a hundred of them in the last five minutes, or if a policy has 10,000
-- rows here, the cause must be the schema: resist refuses the batch, and the policy stops. A hundred in five minutes are allowed because the
-- oldest rows come first, and may be the only ones that resist. Rows that were here before the run, and rows that are only referred to
-- (lapse.quarantine_kept), do not count.
create function lapse.resist(claim lapse.claim, work lapse.work, key text[], state text, schema_name text, table_name text, constraint_name text,
                             column_name text, stack text)
returns lapse.tally
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  shard    record;
  at       timestamptz := clock_timestamp();
  obstacle record;
  thrower  record;
  entered  bigint;
  tried    bigint;
  lately   bigint;
  gone     bigint;
begin
  select s.policy_id, s.run, r.started_at into shard
    from lapse.shard s
    join lapse.run r on r.run = s.run
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target;
  if not found or not pg_has_role(session_user, {{.ExecutorText}}, 'member') or not coalesce(work.step_over and work.row_limit = 1, false) then
    raise exception 'no batch that steps over a row was entered in this transaction' using errcode = 'LP018';
  end if;
  if resist.state ~ '^(08|25|40|53|57|58|F0|LP|XX)' and resist.state <> '57014' or resist.state ~ '^55' and resist.state <> '55P03' then
    return null;
  end if;
  if resist.state = '55P03' then
    return lapse.tally_of(claim);
  end if;
  select count(*), count(*) filter (where q.entered_at >= shard.started_at),
         count(*) filter (where q.entered_at >= greatest(shard.started_at, at - interval '5 minutes'))
    into entered, tried, lately
    from lapse.quarantine q
   where q.policy_id = shard.policy_id and not q.referred;
  select coalesce(sum(s.deleted), 0) into gone from lapse.shard s where s.run = shard.run;
  if entered >= 10000 then
    raise exception '% rows are in quarantine', entered using errcode = 'LP030';
  elsif lately >= 100 and tried >= gone then
    raise exception '% of the % rows that this run tried could not be deleted', tried + 1, tried + 1 + gone using errcode = 'LP030';
  end if;
  -- Code that raises an error may give it any names: only those of a constraint, or of a column, that is there are kept. From PostgreSQL 18
  -- on a column that may not be null is a constraint too, which the error does not name.
  select format('%I.%I', n.nspname, c.relname) as relation, k.conname as constraint_name, a.attname as column_name into obstacle
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    left join pg_constraint k on k.conrelid = c.oid and k.conname = resist.constraint_name
    left join pg_attribute a on a.attrelid = c.oid and a.attname = resist.column_name and a.attnum > 0 and not a.attisdropped
   where n.nspname = resist.schema_name and c.relname = resist.table_name and (k.oid is not null or a.attnum is not null)
   limit 1;
  -- What went on when the error was raised is texts with values in them. Of a trigger whose function is named
  -- there, the name is kept: the innermost one's.
  select format('%I.%I', n.nspname, c.relname) as relation, g.tgname as name, format('%I.%I', s.nspname, p.proname) as function into thrower
    from pg_trigger g
    join pg_class c on c.oid = g.tgrelid
    join pg_namespace n on n.oid = c.relnamespace
    join pg_proc p on p.oid = g.tgfoid
    join pg_namespace s on s.oid = p.pronamespace
    join lateral (
      select min(l.n) as n
        from regexp_split_to_table(left(resist.stack, 20000), '\n') with ordinality l(line, n)
       where starts_with(l.line, format('PL/pgSQL function %I.%I() ', s.nspname, p.proname))
          or starts_with(l.line, format('PL/pgSQL function %I() ', p.proname))) called on called.n is not null
   where obstacle.relation is null and not g.tgisinternal and g.tgrelid = any (claim.target || claim.cascades)
   order by called.n, g.tgrelid <> claim.target, g.tgname
   limit 1;
  insert into lapse.quarantine as q (policy_id, leaf, digest, key, sqlstate, relation, constraint_name, column_name, trigger_name, trigger_function, retry_at)
  values (shard.policy_id, claim.target, sha256(decode(replace(resist.key::text, '\', '\\'), 'escape')), resist.key, resist.state,
          coalesce(obstacle.relation, thrower.relation), obstacle.constraint_name, obstacle.column_name, thrower.name, thrower.function, at + interval '1 minute')
  on conflict (policy_id, leaf, digest) do update
     set sqlstate = excluded.sqlstate, relation = excluded.relation, constraint_name = excluded.constraint_name,
         column_name = excluded.column_name, trigger_name = excluded.trigger_name, trigger_function = excluded.trigger_function,
         tries = q.tries + 1, tried_at = at,
         retry_at = at + least(case excluded.sqlstate when '55P03' then interval '5 minutes' else interval '1 day' end,
                               interval '1 minute' * 2 ^ least(q.tries, 11));
  update lapse.shard s set stepped_over = s.stepped_over + 1 where s.id = work.shard;
  return lapse.tally_of(claim);
end
$lapse$;
comment on function lapse.resist is 'Enters the row of a batch that steps over it in the quarantine. For deletion functions.';

-- forgive removes the rows that could have been tried since an instant, but were not: the policy's whole table was searched since then, so they
-- are gone or no longer due. It also removes rows of partitions that no longer belong to the table. Called by mistake, it only makes those
-- rows be tried again without a pause.
create function lapse.forgive(policy int, since timestamptz) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may say so', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  delete from lapse.quarantine q
   where q.policy_id = forgive.policy
     and (q.retry_at <= least(forgive.since, clock_timestamp()) and q.tried_at < forgive.since
          or not exists (select from lapse.gate g cross join lateral lapse.leaves(g.table_oid) l
                          where g.policy_id = forgive.policy and l.relation = q.leaf));
  if found then
    delete from lapse.low_water l where l.policy_id = forgive.policy; -- they may lie below it
  end if;
end
$lapse$;
comment on function lapse.forgive is 'Called after the policy''s whole table was searched: removes rows from the quarantine that could have been tried. For the executor.';
