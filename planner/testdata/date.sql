-- Deletes rows of public.visits that are due under policy 'visits' version 1, and nothing else.
-- Called once per transaction, as its only work. Every refusal is an error: the transaction ends with nothing deleted.
create function lapse.delete_3_1(
  claim_system text, claim_database oid, claim_xid xid8, claim_started timestamptz, claim_batch uuid, claim_run uuid,
  claim_cutoff timestamptz, claim_hold_version bigint, claim_target oid, claim_cascades oid[], claim_mac bytea,
  shard_id bigint, shard_term bigint, shard_holder text, row_limit int
) returns table (picked bigint, deleted bigint, finished boolean, by_relation jsonb)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = 'postgres'
set extra_float_digits = 1
set standard_conforming_strings = on
set row_security = off
as $lapse$
#variable_conflict use_column
declare
  gate     record;
  shard    record;
  leaf     text;
  bound    date;
  rows_at  tid[];
  last_row text[];
  touched  oid[];
  before   bigint[];
  n_picked bigint;
  n_gone   bigint;
  n_target bigint;
  counts   jsonb;
  at_end   boolean;
  over     boolean;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'a batch runs under read committed, not %', current_setting('transaction_isolation')
      using errcode = 'LP001';
  end if;
  if current_setting('track_counts') <> 'on' then
    raise exception 'track_counts is off, so that what triggers delete beside us would go unseen'
      using errcode = 'LP010', hint = 'alter system set track_counts = on';
  end if;

  -- The lock is a statement of its own: what is read below is what was in force when the lock was granted.
  perform from lapse.gate g where g.policy_id = 3 for share;
  select g.version, g.state, g.hold_version, g.table_oid into gate from lapse.gate g where g.policy_id = 3;
  if gate.version is distinct from 1 or gate.state is distinct from 'armed'
     or gate.hold_version is distinct from claim_hold_version then
    raise exception 'policy % version 1 at hold version % is not in force, but version %, %, at hold version %',
      'visits', claim_hold_version, gate.version, gate.state, gate.hold_version using errcode = 'LP002';
  end if;

  if claim_xid is distinct from pg_current_xact_id() or claim_started is distinct from now()
     or claim_database is distinct from (select d.oid from pg_database d where d.datname = current_database()) then
    raise exception 'the claim is of another transaction or database' using errcode = 'LP009';
  end if;
  if claim_cutoff is null or claim_cutoff > clock_timestamp() then
    raise exception 'the cutoff lies in the future' using errcode = 'LP003';
  end if;
  if row_limit is null or row_limit not between 1 and 1000 then
    raise exception 'the row limit is not between 1 and 1000' using errcode = 'LP004';
  end if;

  -- The leaf is named by oid and locked by name; the name is looked up again once nobody can rename it any more.
  select format('%I.%I', n.nspname, c.relname) into leaf
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
   where c.oid = claim_target;
  if leaf is null then
    raise exception 'relation % is gone', claim_target using errcode = 'LP005';
  end if;
  execute 'lock table only ' || leaf || ' in row exclusive mode';
  if to_regclass(leaf)::oid is distinct from claim_target
     or not exists (select from pg_class c where c.oid = claim_target and c.relkind = 'r')
     or not exists (select from pg_class c where c.oid = gate.table_oid and c.oid = to_regclass('public.visits')::oid)
     or (claim_target <> gate.table_oid
         and not exists (select from pg_partition_tree(gate.table_oid) p where p.relid = claim_target and p.isleaf)) then
    raise exception '% is not a leaf of %', leaf, 'public.visits' using errcode = 'LP005';
  end if;
  -- A column that was made anew, renamed or given another type is not the one that the policy speaks of.
  if exists (
    select from (values ('day', 2, 'date'), ('id', 1, null)) w(name, number, type)
     where not exists (
       select from pg_attribute a
        where a.attrelid = gate.table_oid and a.attname = w.name and a.attnum = w.number and not a.attisdropped
          and (w.type is null or format_type(a.atttypid, null) = w.type))
  ) then
    raise exception 'the columns of % are not those that the policy was applied to', 'public.visits' using errcode = 'LP011';
  end if;
  if exists (select from lapse.unseen(claim_target)) then
    raise exception 'deletes from % or from what its foreign keys reach would not be seen by the audit', leaf
      using errcode = 'LP012';
  end if;
  if exists (select from lapse.intruders(claim_target)) then
    raise exception 'triggers, rules or functions on % or on what its foreign keys reach would run inside the deletion', leaf
      using errcode = 'LP006';
  end if;
  select coalesce(array_agg(r.relation order by r.relation) filter (where r.deletes), '{}') into touched
    from lapse.reach(claim_target) r;
  if touched is distinct from claim_cascades then
    raise exception 'the relations that foreign keys reach are not those of the claim' using errcode = 'LP002';
  end if;

  select s.cursor, s.pass into shard
    from lapse.shard s
   where s.id = shard_id and s.holder = shard_holder and s.term = shard_term and s.lease_until > clock_timestamp()
     and s.policy_id = 3 and s.version = 1 and s.run = claim_run and s.leaf = claim_target
     and s.cutoff = claim_cutoff and not s.done
     for update;
  if not found then
    raise exception 'the lease on shard % is lost, or the shard is not of this claim', shard_id using errcode = 'LP007';
  end if;

  bound := ((claim_cutoff - interval '2 days' - interval '1 mon' + interval '4 days') at time zone 'UTC')::date;
  execute 'with pick as materialized (
select t.ctid as at, t."day" as k1, t."id" as k2
  from only ' || leaf || ' as t
 where t."day" <= $2
   and case when t."day" between ''4713-01-01 BC'' and $2 then (t."day"::timestamp at time zone ''UTC'') + interval ''1 mon 2 days'' <= $1 else false end'
      || case when shard.cursor is null then '' else '
   and (t."day", t."id") > (($4[1])::date, ($4[2])::uuid)' end || '
 order by t."day", t."id"
 limit $3
   for update skip locked
)
select count(*), array_agg(p.at), array[((array_agg(p.k1))[count(*)])::text, ((array_agg(p.k2))[count(*)])::text] from pick p'
    into n_picked, rows_at, last_row
    using claim_cutoff, bound, row_limit, shard.cursor;

  n_gone := 0;
  counts := '{}';
  if n_picked > 0 then
    -- From here on the transaction has published changes: the ledger row first, the result last.
    insert into lapse.batch (batch, policy_id, policy, policy_version, run, cutoff, hold_version, target, cascades,
                             system_identifier, database_oid, xid, started_at, mac)
    values (claim_batch, 3, 'visits', 1, claim_run, claim_cutoff, claim_hold_version, claim_target,
            claim_cascades, claim_system, claim_database, claim_xid, claim_started, claim_mac);
    perform pg_logical_emit_message(true, 'lapse', jsonb_build_object(
      'transaction_tag', 'RowDeletionPolicy', 'is_system_transaction', true, 'policy', 'visits', 'version', 1,
      'run', claim_run, 'batch', claim_batch, 'cutoff', claim_cutoff)::text);

    touched := claim_target || touched;
    select array_agg(coalesce(pg_stat_get_xact_tuples_deleted(t.oid), 0) order by t.n) into before
      from unnest(touched) with ordinality t(oid, n);

    execute 'delete from only ' || leaf || ' as t
       where t.ctid = any ($3) and case when t."day" between ''4713-01-01 BC'' and $2 then (t."day"::timestamp at time zone ''UTC'') + interval ''1 mon 2 days'' <= $1 else false end'
      using claim_cutoff, bound, rows_at;
    get diagnostics n_gone = row_count;
    -- Deferred constraints and their triggers run here, inside, and not at COMMIT.
    set constraints all immediate;

    select pg_stat_get_xact_tuples_deleted(claim_target) - before[1],
           coalesce(jsonb_object_agg(t.oid::text, pg_stat_get_xact_tuples_deleted(t.oid) - before[t.n])
                    filter (where pg_stat_get_xact_tuples_deleted(t.oid) > before[t.n]), '{}')
      into n_target, counts
      from unnest(touched) with ordinality t(oid, n);
    if n_target <> n_gone then
      raise exception '% rows left % where the statement deleted %', n_target, leaf, n_gone using errcode = 'LP008';
    end if;
    insert into lapse.batch_result (batch, picked, deleted, by_relation) values (claim_batch, n_picked, n_gone, counts);
  end if;

  -- A short pick is the end of a pass. The first pass is followed by a residual one from the start, for rows that were
  -- locked or moved while it went by, unless it was a single empty look.
  at_end := n_picked < row_limit;
  over := at_end and (shard.pass = 2 or (n_picked = 0 and shard.cursor is null));
  update lapse.shard s
     set cursor = case when at_end then null else last_row end,
         pass = case when at_end then 2 else s.pass end,
         picked = s.picked + n_picked, deleted = s.deleted + n_gone, done = over,
         lease_until = clock_timestamp() + interval '30 seconds'
   where s.id = shard_id;

  return query select n_picked, n_gone, over, counts;
end
$lapse$;

-- Counts the rows of public.visits that are due under policy visits at an instant. It returns counts and instants, never values.
create function lapse.survey_3_1(at_cutoff timestamptz)
returns table (due bigint, oldest timestamptz, newest timestamptz, seen pg_snapshot)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set row_security = off
as $lapse$
#variable_conflict use_variable
declare
  bound date := ((at_cutoff - interval '2 days' - interval '1 mon' + interval '4 days') at time zone 'UTC')::date;
begin
  return query
    select count(*), min((t."day"::timestamp at time zone 'UTC')), max((t."day"::timestamp at time zone 'UTC')), pg_current_snapshot()
      from public.visits as t
     where t."day" <= bound
       and case when t."day" between '4713-01-01 BC' and bound then (t."day"::timestamp at time zone 'UTC') + interval '1 mon 2 days' <= at_cutoff else false end;
end
$lapse$;

revoke all on function lapse.delete_3_1(text, oid, xid8, timestamptz, uuid, uuid, timestamptz, bigint, oid, oid[], bytea, bigint, bigint, text, int) from public;
grant execute on function lapse.delete_3_1(text, oid, xid8, timestamptz, uuid, uuid, timestamptz, bigint, oid, oid[], bytea, bigint, bigint, text, int) to "lapse_executor";
alter function lapse.delete_3_1(text, oid, xid8, timestamptz, uuid, uuid, timestamptz, bigint, oid, oid[], bytea, bigint, bigint, text, int) owner to "lapse_deleter";
revoke all on function lapse.survey_3_1(timestamptz) from public;
grant execute on function lapse.survey_3_1(timestamptz) to "lapse_executor";
alter function lapse.survey_3_1(timestamptz) owner to "lapse_deleter";
