-- What is the same for the batches of all policies; what these functions are for is described in 0003_4_batch.sql.

-- spared is SQL that is true of rows t which must stay, whatever the policy says: held (lapse.held), or resting because they
-- could not be deleted (lapse.resting). It is '' where there are none.
alter type lapse.place add attribute spared text;
-- low is where a pass may begin: rows that fell due by then are gone. Null: at the start, or the pass has begun. See 0006_4_low.sql.
alter type lapse.place add attribute low timestamptz;
-- shape says how the batch finds its rows; step_over, that it is one row which resists: it is entered in the quarantine, and stays.
alter type lapse.work add attribute shape text, add attribute step_over boolean;

-- A cursor is a place in the order of the index, or one in the table's file: a batch that goes by the other one begins anew.
alter table lapse.shard add column in_heap boolean not null default false;
-- What a pass says of the leaf when it is over: see 0006_4_low.sql.
alter table lapse.shard add column full_at timestamptz, add column left_some boolean not null default false;
-- What the batch in hand saw of the leaf and of what goes along: see look and leave.
alter table lapse.shard add column seen bytea check (octet_length(seen) = 32);
comment on column lapse.shard.seen is 'Signature of what the last batch saw of the leaf and of what its deletion reaches.';

-- A policy that sets a column once ("action: soft") and one that deletes may share a table: see 0006_7_soft.sql.
alter table lapse.gate add column soft boolean not null default false;
drop index lapse.gate_table;
create unique index gate_table on lapse.gate (table_oid, soft) where state <> 'dropped';
alter table lapse.batch add column soft boolean not null default false;
-- Whether the policy's events have hashes in the place of keys ("events: values: hashed_keys"): the auditor reads it here.
alter table lapse.batch add column hashed boolean not null default false;
comment on column lapse.batch.hashed is 'Whether the events of the batch have keyed hashes in the place of the rows'' keys.';
-- What else the policy wants of its events ("events: columns") and of its evidence ("evidence: due"): see lapse.unpromised.
alter table lapse.batch add column told jsonb check (octet_length(told::text) <= 32768), add column due jsonb check (octet_length(due::text) <= 32768);
comment on column lapse.batch.told is 'The columns that the batch''s events have as values beside the key; null for none.';
comment on column lapse.batch.due is 'How the auditor finds out from the log whether a row was due; null where it does not.';

drop function lapse.enter(lapse.claim, lapse.work, int, int, int);
create function lapse.enter(claim lapse.claim, work lapse.work, policy int, version int, largest int, proof bytea) returns lapse.place
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  gate  record;
  shard record;
  slot  record;
  leaf  text;
  fault text;
  low   timestamptz;
  began timestamptz;
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may delete', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'a batch runs under read committed, not %', current_setting('transaction_isolation')
      using errcode = 'LP001';
  end if;
  if current_setting('track_counts') <> 'on' then
    raise exception 'track_counts is off, so that what triggers delete beside us would go unseen'
      using errcode = 'LP010', hint = 'alter system set track_counts = on';
  end if;
  if current_setting('session_replication_role') <> 'origin' then
    raise exception 'session_replication_role is %, so that foreign keys would not be looked at',
      current_setting('session_replication_role') using errcode = 'LP013';
  end if;

  -- The lock is a statement of its own: what is read below is what was in force when the lock was granted.
  lock table lapse.gate in row share mode;
  select g.version, g.state, g.hold_version, i.slot, i.audit_required, coalesce(i.doubted, 0) as doubted,
         (select h.halted from lapse.halt h order by h.id desc limit 1) as halted,
         h.number as history, h.timeline as history_timeline, h.system_identifier as history_system
    into gate
    from lapse.gate g, lapse.installation i, (select * from lapse.history n order by n.number desc limit 1) h
   where g.policy_id = enter.policy;
  if gate.halted then
    raise exception 'every deletion in this database is paused' using errcode = 'LP014';
  end if;
  if claim.policy_id is distinct from enter.policy or claim.policy_version is distinct from enter.version
     or gate.version is distinct from enter.version or gate.state is distinct from 'armed'
     or gate.hold_version is distinct from claim.hold_version then
    raise exception 'policy % version % at hold version % is not in force, but version %, %, at hold version %',
      enter.policy, enter.version, claim.hold_version, gate.version, gate.state, gate.hold_version using errcode = 'LP002';
  end if;

  if claim.xid is distinct from pg_current_xact_id() or claim.started_at is distinct from now()
     or claim.database_oid is distinct from (select d.oid from pg_database d where d.datname = current_database()) then
    raise exception 'the claim is of another transaction or database' using errcode = 'LP009';
  end if;
  if claim.history is distinct from gate.history or claim.timeline is distinct from lapse.timeline() then
    raise exception 'the claim is of history %, timeline %; in force are %, %', claim.history, claim.timeline, gate.history,
      lapse.timeline() using errcode = 'LP019';
  end if;
  if not gate.audit_required
     and (gate.history_timeline is distinct from claim.timeline or gate.history_system is distinct from lapse.system_identifier()) then
    raise exception 'history % was accepted on another timeline or another server', gate.history
      using errcode = 'LP019', hint = 'lapse history accept --reason TEXT';
  end if;
  if claim.cutoff is null or claim.cutoff > clock_timestamp() then
    raise exception 'the cutoff lies in the future' using errcode = 'LP003';
  end if;
  if work.row_limit is null or work.row_limit not between 1 and enter.largest then
    raise exception 'the row limit is not between 1 and %', enter.largest using errcode = 'LP004';
  end if;
  if gate.audit_required then
    select s.database, s.wal_status into slot from pg_replication_slots s where s.slot_name = gate.slot;
    if slot.database is distinct from current_database() or slot.wal_status is not distinct from 'lost' then
      raise exception 'replication slot % is not there, so that nobody would see what is deleted', gate.slot
        using errcode = 'LP015';
    end if;
    -- An auditor that looked at this server as it is, lately. What the database says of itself proves nothing after a restore.
    if not exists (
      select from lapse.heartbeat b
       where b.at between clock_timestamp() - interval '2 minutes' and clock_timestamp() + interval '2 minutes'
         and b.history = claim.history and b.timeline = claim.timeline and b.server_start = pg_postmaster_start_time()
         and b.database_oid = claim.database_oid and b.id > gate.doubted
    ) then
      raise exception 'the auditor has not said within two minutes that it reads this server in this history'
        using errcode = 'LP020';
    end if;
    fault := lapse.publications_fault();
    if fault is not null then
      raise exception '%', fault using errcode = 'LP021';
    end if;
  end if;

  update lapse.shard s
     set entered = pg_current_xact_id(), batch = claim.batch
   where s.id = work.shard and s.holder = work.holder and s.term = work.term and s.lease_until > clock_timestamp()
     and s.policy_id = enter.policy and s.version = enter.version and s.run = claim.run and s.leaf = claim.target
     and s.cutoff = claim.cutoff and not s.done and not s.aside and s.entered is distinct from pg_current_xact_id()
  returning case when s.in_heap = coalesce(work.shape in ('heap', 'heap pick'), false) then s.cursor end as cursor, s.pass, s.lower, s.upper, s.modulus, s.remainder into shard;
  if not found then
    raise exception 'the lease on shard % is lost, or the shard is not of this claim', work.shard using errcode = 'LP007';
  end if;
  select format('%I.%I', n.nspname, c.relname) into leaf
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
   where c.oid = claim.target;
  if leaf is null then
    raise exception 'relation % is gone', claim.target using errcode = 'LP005';
  end if;
  perform lapse.check_caller(enter.policy, enter.version, enter.proof); -- what look returns says which rows are held
  if shard.cursor is null then
    select m.upto, m.full_at into low, began from lapse.low_mark(enter.policy, enter.version, claim.target) m;
    update lapse.shard s set full_at = coalesce(began, clock_timestamp()) where s.id = work.shard;
  end if;
  return row(leaf, shard.cursor, shard.pass, shard.lower, shard.upper, shard.modulus, shard.remainder, null::text, low, null::jsonb, null::text);
end
$lapse$;

-- look compares the leaf, which is locked, with what apply saw, and says which of its rows must stay: while the batch waited for the lock
-- the leaf may have got other columns and another place. leaf is the name that was locked. What it finds is kept, and the
-- checks are made again when something of it has changed: see 0006_8_signature.sql. The relations below the leaf are locked by the deletion
-- only: leave compares again what was seen of them.
drop function lapse.look(lapse.claim, lapse.work, text);
create function lapse.look(claim lapse.claim, work lapse.work, leaf text, out spared text, out ways jsonb, out answers text) returns record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  shard record;
  found_so record;
  held text;
begin
  select s.policy_id, s.version, s.seen into shard
    from lapse.shard s
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target;
  if not found or not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  select * into found_so from lapse.familiar(shard.policy_id, shard.version, claim.target);
  if not found then
    select * into found_so from lapse.keep(shard.policy_id, shard.version, claim.target);
  end if;
  if found_so.name is distinct from look.leaf then
    raise exception '% is not a leaf of the policy''s table', look.leaf using errcode = 'LP005';
  end if;
  held := lapse.held(shard.policy_id, shard.version, claim.target);
  if found_so.touched is distinct from claim.cascades then
    raise exception 'the relations that foreign keys reach are not those of the claim' using errcode = 'LP002';
  end if;
  spared := concat_ws(' or ', held, lapse.resting(shard.policy_id, shard.version, claim.target));
  if held is not null or work.careful then
    ways := lapse.to_lock(shard.policy_id, shard.version, claim, coalesce(work.careful, false));
    answers := case when ways is not null then lapse.answers(claim.target, ways) end;
  end if;
  if spared <> '' or ways is not null or claim.cascades <> '{}' or shard.seen is not null then
    update lapse.shard s
       set seen = case when ways is not null or claim.cascades <> '{}' then found_so.signature end, left_some = s.left_some or spared <> ''
     where s.id = work.shard;
  end if;
end
$lapse$;

-- record writes the transaction's first published change, the ledger row, and the tag for other readers of the log. It
-- returns how many rows have left the target and the relations of the claim in this transaction so far: see lapse.gone. Whether
-- the batch deletes or sets a column, and what its events have, is the word of gate and policy, not the caller's.
drop function lapse.record(lapse.claim, bytea, lapse.work);
create function lapse.record(claim lapse.claim, mac bytea, work lapse.work) returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  soft   boolean;
  hashed boolean;
  told   jsonb;
  due    jsonb;
begin
  select g.soft, coalesce(p.spec -> 'events' ->> 'values' = 'hashed_keys', false), p.spec -> 'events' -> 'columns', p.spec -> 'due'
    into soft, hashed, told, due
    from lapse.shard s
    join lapse.gate g on g.policy_id = s.policy_id
    join lapse.policy p on p.id = g.policy_id and p.version = g.version
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target;
  if soft is null or not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  insert into lapse.batch (batch, policy_id, policy, policy_version, run, cutoff, hold_version, target, cascades, functions,
                           system_identifier, database_oid, history, timeline, xid, started_at, mac, soft, hashed, told, due)
  values (claim.batch, claim.policy_id, claim.policy, claim.policy_version, claim.run, claim.cutoff, claim.hold_version,
          claim.target, claim.cascades, claim.functions, claim.system_identifier, claim.database_oid, claim.history,
          claim.timeline, claim.xid, claim.started_at, record.mac, soft, hashed, told, due);
  perform pg_logical_emit_message(true, 'lapse', jsonb_build_object(
    'transaction_tag', 'RowDeletionPolicy', 'is_system_transaction', true, 'policy', claim.policy,
    'version', claim.policy_version, 'run', claim.run, 'batch', claim.batch, 'cutoff', claim.cutoff)::text);
  return lapse.gone(claim, soft);
end
$lapse$;

-- leave counts what went, writes the result and moves the shard on. picked rows were found and locked, deleted of them
-- went; before is what record returned, null where nothing was picked; last is the place of the last row that the batch
-- looked at, which need not be one that it picked, null for the start; ended says that no candidate lies behind it; left_behind that due
-- rows are left that somebody has locked; locked has the relation of each row that was locked to go along, null where none was.
--
-- The first pass is followed by a residual one from the start, for rows that were locked or moved while it went by, unless
-- it picked nothing. What was left behind is kept from batch to batch of a pass, and begins anew with the next one.
drop function lapse.leave(lapse.claim, lapse.work, bigint, bigint, bigint[], text[], boolean, boolean);
create function lapse.leave(
  claim lapse.claim, work lapse.work, picked bigint, deleted bigint, before bigint[], last text[], ended boolean,
  left_behind boolean, locked oid[]
) returns lapse.outcome
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  shard  record;
  went   bigint := 0;
  along  bigint := 0;
  counts jsonb := '{}';
  strayed text;
  at_end boolean := coalesce(leave.ended, true);
  behind boolean;
  over   boolean;
begin
  select s.pass, s.picked, s.left_behind, s.policy_id, s.version, s.seen, g.soft into shard
    from lapse.shard s
    join lapse.gate g on g.policy_id = s.policy_id
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target;
  if not found or not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  if leave.picked > 0 then
    -- Somebody may have added a foreign key or a partition below what the batch had locked, and rows went along that were not asked about.
    if shard.seen is not null and not exists (
      select from lapse.familiar(shard.policy_id, shard.version, claim.target) f where f.signature = shard.seen) then
      raise exception 'the relations that foreign keys reach were changed while the batch ran' using errcode = 'LP002';
    end if;
    select coalesce(sum(n.went) filter (where n.oid = claim.target), 0),
           coalesce(sum(n.went) filter (where n.oid <> claim.target), 0),
           coalesce(jsonb_object_agg(n.oid::text, n.went) filter (where n.went > 0), '{}')
      into went, along, counts
      from (select t.oid, a.gone - leave.before[t.n] as went
              from unnest(lapse.gone(claim, shard.soft)) with ordinality a(gone, n)
              join unnest(claim.target || claim.cascades) with ordinality t(oid, n) on t.n = a.n) n;
    if shard.soft and lapse.removed(claim.target) is distinct from leave.before[2] then
      raise exception 'rows were deleted from relation % where a column is set', claim.target using errcode = 'LP008';
    end if;
    strayed := lapse.strayed(claim, shard.policy_id, shard.version, leave.before, leave.locked);
    if strayed is not null then
      raise exception '%', strayed using errcode = 'LP024';
    end if;
    -- Of code that the policy trusts too: what it deletes here would go under the policy's name, due or not.
    if went is distinct from leave.deleted then
      raise exception '% rows left relation % where the statement deleted %', went, claim.target, leave.deleted
        using errcode = 'LP008';
    end if;
    insert into lapse.batch_result (batch, picked, deleted, by_relation)
    values (claim.batch, leave.picked, leave.deleted, counts);
    -- Whoever sees the batch's row sees one that is on disk, if only this server's. After a crash the transaction id of another
    -- is given out again, and a copy of the row would prove what is deleted under it. No code of the table's runs from here on.
    if current_setting('synchronous_commit') = 'off' then
      perform set_config('synchronous_commit', 'local', true);
    end if;
  end if;
  behind := shard.left_behind or coalesce(leave.left_behind, false);
  over := at_end and (shard.pass = 2 or shard.picked + leave.picked = 0);
  update lapse.shard s
     set batch = null,
         cursor = case when at_end then null else leave.last end, in_heap = coalesce(work.shape in ('heap', 'heap pick'), false),
         pass = case when at_end then 2 else s.pass end,
         picked = s.picked + leave.picked, deleted = s.deleted + leave.deleted,
         batches = s.batches + (leave.picked > 0)::int, cascaded = s.cascaded + along,
         refreshed = s.refreshed + case when work.step_over then 0 else greatest(leave.picked - leave.deleted, 0) end,
         stepped_over = s.stepped_over + case when work.step_over then greatest(leave.picked - leave.deleted, 0) else 0 end,
         done = over, left_behind = behind and (over or not at_end),
         left_some = (s.left_some or behind or leave.picked > leave.deleted or coalesce(work.shape in ('heap', 'heap pick'), false)) and (over or not at_end),
         lease_until = clock_timestamp() + lapse.lease_time()
   where s.id = work.shard;
  return row(leave.picked, leave.deleted, over, over and behind, counts, at_end, null::bigint, null::int);
end
$lapse$;

