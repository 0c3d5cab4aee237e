-- How much is due under a policy, counted once a day in one snapshot of the database. A count takes minutes, and its place in the write-ahead
-- log does not show which transactions its snapshot saw. So there are three rows: the snapshot was taken between the first and the second;
-- the second contains the snapshot, and the third the counts.

create table lapse.snapshot (
  number      bigint generated always as identity primary key,
  snapshot    uuid not null,
  step        text not null check (step in ('begun', 'taken', 'counted')),
  policy_id   int not null,
  policy      text not null,
  version     int not null,
  at          timestamptz not null default clock_timestamp(),
  by          text not null default session_user,
  seen        pg_snapshot,
  cutoff      timestamptz,
  due         bigint,
  overdue     bigint,
  held        bigint,
  quarantined bigint,
  oldest_over bigint,
  not_counted text check (octet_length(not_counted) <= 200),
  unique (snapshot, step)
);
create index on lapse.snapshot (policy_id, number);
create index on lapse.snapshot (at);
comment on table lapse.snapshot is 'How much was due under each policy, in one snapshot a day: three rows each; published, and removed by prune. Written by the executor.';
comment on column lapse.snapshot.number is 'Order of the rows.';
comment on column lapse.snapshot.snapshot is 'Identifies its three rows.';
comment on column lapse.snapshot.step is 'begun: before the snapshot was taken; taken: at once after it; counted: when the count ended.';
comment on column lapse.snapshot.policy_id is 'The policy.';
comment on column lapse.snapshot.policy is 'Its name.';
comment on column lapse.snapshot.version is 'The version that was in force.';
comment on column lapse.snapshot.at is 'When.';
comment on column lapse.snapshot.by is 'The login.';
comment on column lapse.snapshot.seen is 'The snapshot: which transactions the count saw.';
comment on column lapse.snapshot.cutoff is 'The instant at which rows were due.';
comment on column lapse.snapshot.due is 'How many rows were due and not held. Null where nothing was counted.';
comment on column lapse.snapshot.overdue is 'How many of them had been due for longer than the latitude.';
comment on column lapse.snapshot.held is 'How many more rows were due, but held.';
comment on column lapse.snapshot.quarantined is 'How many rows were in quarantine: some of them may be held too, or not due any more.';
comment on column lapse.snapshot.oldest_over is 'A step in seconds for which the oldest due row has been due, but not for the next one.';
comment on column lapse.snapshot.not_counted is 'Why nothing was counted.';

-- begin_snapshot records that a policy's snapshot is about to be taken. It returns null if there is a more recent one, or if no auditor
-- reads the log.
create function lapse.begin_snapshot(policy int, version int, every interval) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  id uuid := gen_random_uuid();
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may count what is due', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  if not (select i.audit_required from lapse.installation i) then
    return null;
  end if;
  lock table lapse.snapshot in share row exclusive mode; -- two executors may be here at once
  if exists (select from lapse.snapshot s
              where s.policy_id = begin_snapshot.policy and s.version = begin_snapshot.version and s.step = 'begun'
                and s.at > clock_timestamp() - greatest(every, '1 minute')) then -- the log keeps each for ever
    return null;
  end if;
  insert into lapse.snapshot (snapshot, step, policy_id, policy, version)
  select id, 'begun', g.policy_id, g.name, g.version
    from lapse.gate g
   where g.policy_id = begin_snapshot.policy and g.version = begin_snapshot.version and g.state <> 'dropped';
  return case when found then id end;
end
$lapse$;
comment on function lapse.begin_snapshot is 'Records that what is due under a policy is about to be counted. For the executor.';

create function lapse.take_snapshot(snapshot uuid, seen pg_snapshot, cutoff timestamptz) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may count what is due', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  insert into lapse.snapshot (snapshot, step, policy_id, policy, version, seen, cutoff)
  select s.snapshot, 'taken', s.policy_id, s.policy, s.version, take_snapshot.seen, take_snapshot.cutoff
    from lapse.snapshot s
   where s.snapshot = take_snapshot.snapshot and s.step = 'begun';
end
$lapse$;
comment on function lapse.take_snapshot is 'Records in which snapshot it is counted. For the executor.';

create function lapse.end_snapshot(snapshot uuid, due bigint, overdue bigint, held bigint, quarantined bigint, oldest_over bigint, not_counted text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may count what is due', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  insert into lapse.snapshot (snapshot, step, policy_id, policy, version, due, overdue, held, quarantined, oldest_over, not_counted)
  select s.snapshot, 'counted', s.policy_id, s.policy, s.version, end_snapshot.due, end_snapshot.overdue, end_snapshot.held, end_snapshot.quarantined, end_snapshot.oldest_over,
         left(end_snapshot.not_counted, 200)
    from lapse.snapshot s
   where s.snapshot = end_snapshot.snapshot and s.step = 'begun';
end
$lapse$;
comment on function lapse.end_snapshot is 'Records what was counted in a snapshot, or why nothing was. For the executor.';
