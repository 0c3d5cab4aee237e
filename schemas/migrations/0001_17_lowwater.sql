-- The low-water mark. Below it are the dead rows of former runs, which every look and every pass would read past until a vacuum removes them.
-- It is an instant: a pass that left nothing in a leaf has deleted every row that had fallen due by then.
--
-- It is a hint. A transaction that commits late, an update, or an insert of rows that are already due can put rows below it. So it is valid
-- only as long as makes reading past dead rows cost a hundredth of the time, and at most for half the policy's latitude, or half a day without
-- one. After that a look or a pass begins at the leaf's start, and finds them. A run that a person asks for ignores marks. A mark
-- is not valid either
--
--   under another version of the policy
--   after any hold has changed or ended since the last pass from the start
--   while a row of the leaf in quarantine waits to be tried again, or after one was forgiven
--
-- A policy has marks only if its batches use an index on the column that rows expire by, and if every row within the bound is due. A leaf with
-- fewer dead rows than worth_a_mark has no valid mark: reading past them costs less than the delay.
--
-- Batches make marks, in a deletion function that was called for one whole leaf. The executor's login alone cannot make one. With a deleter's
-- rights too (see docs/security.md) it can, in a run that was opened: due rows then stay for that half of the latitude.

create table lapse.low_water (
  policy_id int not null,
  leaf      oid not null,
  version   int not null,
  upto      timestamptz not null,
  full_at   timestamptz not null,
  deleted   bigint not null check (deleted >= 0),
  primary key (policy_id, leaf)
) with (fillfactor = 50);
comment on table lapse.low_water is 'Where looks and passes may begin, so that they skip dead rows: a hint. Written by clear.';
comment on column lapse.low_water.policy_id is 'The policy.';
comment on column lapse.low_water.leaf is 'The table or partition.';
comment on column lapse.low_water.version is 'The version under which it was made and is valid.';
comment on column lapse.low_water.upto is 'The rows that had fallen due by then are gone.';
comment on column lapse.low_water.full_at is 'When the last pass from the leaf''s start began.';
comment on column lapse.low_water.deleted is 'Rows that were deleted from the leaf, about since then.';

-- worth_a_mark returns how many rows must have been deleted from a leaf for its mark to be valid.
create function lapse.worth_a_mark() returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
as $lapse$
  select 100000::bigint
$lapse$;
comment on function lapse.worth_a_mark is 'How many rows must have been deleted from a leaf for its low-water mark to be valid.';

-- half_latitude returns for how long a hint may keep a due row from being found.
create function lapse.half_latitude(policy int, version int) returns interval
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return (select coalesce((p.spec ->> 'latitude')::interval, interval '1 day') / 2 from lapse.policy p
           where p.id = half_latitude.policy and p.version = half_latitude.version);
end
$lapse$;
comment on function lapse.half_latitude is 'For how long a hint may keep a due row from being found: half the policy''s latitude, half a day if it has none.';

-- mark_time returns for how long a mark is valid. Reading past a deleted row takes about a microsecond.
create function lapse.mark_time(policy int, version int, deleted bigint) returns interval
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return least(lapse.half_latitude(mark_time.policy, mark_time.version),
               greatest(interval '10 seconds', least(mark_time.deleted, 1e12) * interval '100 microseconds'));
end
$lapse$;
comment on function lapse.mark_time is 'How long a low-water mark is valid if so many rows were deleted below it.';

-- low_mark returns the mark of a leaf, if it is valid, and until when.
create function lapse.low_mark(policy int, version int, leaf oid) returns table (upto timestamptz, full_at timestamptz, until timestamptz)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
declare
  mark record;
  at   timestamptz := clock_timestamp();
begin
  select l.upto, l.full_at, l.full_at + lapse.mark_time(low_mark.policy, low_mark.version, l.deleted) as until into mark
    from lapse.low_water l
   where l.policy_id = low_mark.policy and l.leaf = low_mark.leaf and l.version = low_mark.version and l.deleted >= lapse.worth_a_mark();
  if not found or mark.full_at > at
     or mark.until < at
     or exists (select from lapse.hold_state s where s.changed_at >= mark.full_at)
     or exists (select from lapse.hold_state s where s.enforced_until >= mark.full_at and s.enforced_until <= at)
     or exists (select from lapse.quarantine q where q.policy_id = low_mark.policy and q.leaf = low_mark.leaf and q.retry_at <= at) then
    return;
  end if;
  upto := mark.upto;
  full_at := mark.full_at;
  until := mark.until;
  return next;
end
$lapse$;
comment on function lapse.low_mark is 'Where a look at a leaf, or a pass over it, may begin; no row: at its start.';

-- clear makes or moves the mark of a leaf after a shard's last batch, in the batch's transaction, if the shard is the whole leaf and the pass
-- left nothing. The mark is ten seconds before the run's cutoff: bounds may be rounded up by one second, and transactions may take that
-- long.
create function lapse.clear(claim lapse.claim, work lapse.work) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  shard record;
  gone  bigint;
begin
  select s.policy_id, s.version, s.run, s.leaf, s.cutoff, s.full_at, s.left_some, num_nonnulls(s.lower, s.upper, s.modulus) > 0 as sliced into shard
    from lapse.shard s
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.leaf = claim.target and s.done;
  if not found or not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  select coalesce(sum(s.deleted), 0) into gone from lapse.shard s where s.run = shard.run and s.leaf = shard.leaf;
  if shard.left_some or shard.sliced or shard.full_at is null or gone = 0 then
    return;
  end if;
  insert into lapse.low_water as l (policy_id, leaf, version, upto, full_at, deleted)
  values (shard.policy_id, shard.leaf, shard.version, shard.cutoff - interval '10 seconds', shard.full_at, gone)
  on conflict on constraint low_water_pkey do update
     set version = excluded.version, upto = excluded.upto, full_at = excluded.full_at,
         deleted = excluded.deleted + case when l.version = excluded.version and (l.deleted < lapse.worth_a_mark() or l.full_at = excluded.full_at) then l.deleted else 0 end;
end
$lapse$;
comment on function lapse.clear is 'Records that no due row is left in a leaf. For deletion functions.';

-- ignore_marks makes a policy's marks invalid until a look or a pass has begun at its leaf's start.
create function lapse.ignore_marks(policy int) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may ignore marks', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  update lapse.low_water l set full_at = '-infinity' where l.policy_id = ignore_marks.policy and isfinite(l.full_at);
end
$lapse$;
comment on function lapse.ignore_marks is 'The next look at a policy''s table begins at its start. For the executor.';

-- passed records that a long look of an armed policy has found nothing due. Marks that were no longer valid when it began become valid again,
-- because the look has read what is below them.
create function lapse.passed(policy int, version int, took interval) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  began timestamptz := clock_timestamp() - greatest(passed.took, interval '0');
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may call this', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  update lapse.low_water l
     set full_at = began
    from lapse.gate g
   where l.policy_id = passed.policy and l.version = passed.version and l.deleted >= lapse.worth_a_mark()
     and l.full_at < began - lapse.mark_time(l.policy_id, l.version, l.deleted)
     and g.policy_id = l.policy_id and g.version = l.version and g.state = 'armed';
end
$lapse$;
comment on function lapse.passed is 'Records that a look began at the start of a policy''s table, and found nothing due. For the executor.';
