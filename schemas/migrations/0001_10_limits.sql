-- How fast a policy may delete, and how much in one run: its rate and max_rows_per_run, for all executors together. A worker takes rows here
-- before each BEGIN, and gives back what its batch did not delete. The row of lapse.allowance is locked for one statement, so that
-- two workers never take the same rows.
--
-- This limits well-behaved executors. It does not stop a stolen login of theirs: enter does.

create table lapse.allowance (
  policy_id int primary key,
  tokens    double precision not null default 0 check (tokens >= 0),
  filled_at timestamptz
) with (fillfactor = 20);
comment on table lapse.allowance is 'What the rate has left of each policy, for all executors together. Who takes rows locks the policy''s row.';
comment on column lapse.allowance.policy_id is 'The policy.';
comment on column lapse.allowance.tokens is 'Rows that may go at filled_at: the rate fills it, up to the rows of one second.';
comment on column lapse.allowance.filled_at is 'When tokens was computed; null: never, and it is full.';

-- take_rows allows the holder of a shard up to the wanted number of rows, as far as the rate has them and the run stays below its limit,
-- counting what others were allowed. If it allows none, pause is how soon to ask again; over: the run has reached its limit. It does
-- not split less than half a second's rows. A wanted number of 0 or less gives rows back.
--
-- A crash after it leaves rows that no worker deletes: the rate has them back within a second, and the run when the lease has ended, or a
-- minute later for a batch that was entered before. take_rows does not wait for its commit to be durable: the batch's own commit, which
-- comes later in the log, makes both durable.
create function lapse.take_rows(shard bigint, term bigint, holder text, wanted int)
returns table (granted int, pause interval, over boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  at      timestamptz := clock_timestamp();
  mine    record;
  filled  double precision;
  deleted bigint;
  rest    bigint;
  share   bigint;
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may take rows', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  perform set_config('synchronous_commit', 'off', true);
  select s.run, s.policy_id, s.done and r.ended_by is not null as ended, (p.spec ->> 'rate')::double precision as rate, r.most
    into mine
    from lapse.shard s
    join lapse.run r on r.run = s.run
    join lapse.policy p on p.id = s.policy_id and p.version = s.version
   where s.id = take_rows.shard and s.term = take_rows.term and s.holder = take_rows.holder
     and (take_rows.wanted <= 0 or not s.aside and (not s.done or r.ended_by is not null));
  if found and mine.ended and take_rows.wanted > 0 then
    return query select 0, null::interval, true;
    return;
  elsif not found then
    raise exception 'the lease on shard % is lost', take_rows.shard using errcode = 'LP007';
  end if;
  insert into lapse.allowance (policy_id) values (mine.policy_id) on conflict do nothing;
  -- A statement of its own: what is read below is what was committed when the lock was granted.
  perform from lapse.allowance a where a.policy_id = mine.policy_id for update;
  select case when a.filled_at is null then mine.rate
              else least(mine.rate, a.tokens + mine.rate * greatest(0, extract(epoch from at - a.filled_at)::double precision))
         end
    into filled
    from lapse.allowance a
   where a.policy_id = mine.policy_id;
  over := false;
  if take_rows.wanted <= 0 then
    granted := take_rows.wanted;
  else
    rest := take_rows.wanted;
    if mine.most is not null then
      select coalesce(sum(s.deleted), 0),
             mine.most - coalesce(sum(s.deleted + case when s.id <> take_rows.shard and not s.done
                                                        and s.lease_until > at - interval '1 minute' then s.allowed else 0 end), 0)
        into deleted, rest
        from lapse.shard s
       where s.run = mine.run;
      over := deleted >= mine.most;
    end if;
    granted := greatest(0, least(take_rows.wanted, rest));
    if granted = 0 and not over then
      pause := interval '50 milliseconds'; -- others have the rest in hand
    elsif mine.rate is not null and granted > 0 then
      share := least(granted, ceil(mine.rate / 2));
      if filled < share then
        pause := make_interval(secs => (share - filled) / mine.rate);
        granted := 0;
      else
        granted := least(granted, floor(filled));
      end if;
    end if;
  end if;
  update lapse.allowance a
     set filled_at = at, tokens = least(mine.rate, filled - granted)
   where a.policy_id = mine.policy_id and mine.rate is not null;
  update lapse.shard s
     set allowed = greatest(granted, 0)
   where s.id = take_rows.shard and mine.most is not null;
  return next;
end
$lapse$;
comment on function lapse.take_rows is 'Allows a worker so many rows, or gives back what it did not delete: rate and max_rows_per_run. For the executor.';

-- The breaker: a run that would delete more than expected does not begin until a person accepts it.

create table lapse.breaker (
  policy_id   int primary key,
  version     int not null,
  at          timestamptz not null default clock_timestamp(),
  due         bigint not null check (due >= 0),
  table_rows  bigint not null check (table_rows >= 0),
  accepted    bigint check (accepted > 0),
  accepted_at timestamptz,
  cause       text not null default 'max_fraction' check (cause in ('max_fraction', 'sudden_jump', 'absurd_past')),
  compared    bigint not null default 0 check (compared >= 0)
);
comment on table lapse.breaker is 'Policies whose run would have deleted more than expected, with the last time of each.';
comment on column lapse.breaker.policy_id is 'The policy.';
comment on column lapse.breaker.version is 'The version that it stops: the one then, or a later one that lets no more rows fall due.';
comment on column lapse.breaker.at is 'When the breaker tripped.';
comment on column lapse.breaker.due is 'How many rows were due.';
comment on column lapse.breaker.table_rows is 'How many rows the table had, by PostgreSQL''s statistics.';
comment on column lapse.breaker.accepted is 'How many rows a person allowed the next run, and no other, to delete; null: the breaker is open.';
comment on column lapse.breaker.accepted_at is 'When.';
comment on column lapse.breaker.cause is 'Why it tripped: more than max_fraction, far more than the last runs, or mostly rows from an absurd past.';
comment on column lapse.breaker.compared is 'What the number of due rows was compared with: how many were expected, or how many are from an absurd past.';

-- trip opens the breaker of a policy. After a crash before it, the policy is judged again before its next run.
create function lapse.trip(policy int, version int, cause text, due bigint, table_rows bigint, compared bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may open a breaker', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  insert into lapse.breaker as b (policy_id, version, cause, due, table_rows, compared)
  select g.policy_id, g.version, trip.cause, trip.due, trip.table_rows, trip.compared
    from lapse.gate g
   where g.policy_id = trip.policy and g.version = trip.version and g.state = 'armed'
  on conflict (policy_id) do update
     set version = excluded.version, at = clock_timestamp(), cause = excluded.cause, due = excluded.due, table_rows = excluded.table_rows,
         compared = excluded.compared, accepted = null, accepted_at = null;
end
$lapse$;
comment on function lapse.trip is 'Opens the breaker of a policy that has more due rows than expected. For the executor.';

-- measure returns what the next cutoff of a policy is compared with: the last cutoff since a person accepted the clock; otherwise that
-- acceptance, or when a person last armed the policy. reach is how far the clock may be ahead of it without acceptance: 31 days and twice
-- the policy's interval, now or in its last run.
create function lapse.measure(policy int) returns table (last timestamptz, reach interval)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
declare
  accepted record;
  measured record;
  beat     timestamptz;
begin
  select c.accepted, c.after_run into accepted from lapse.clock c order by c.id desc limit 1;
  select greatest(
           coalesce((select max(r.cutoff) from lapse.run r
                      where r.policy_id = g.policy_id and r.number > coalesce(accepted.after_run, 0)),
                    accepted.accepted, armed.at, p.made_at),
           (select l.at from lapse.looked l where l.policy_id = g.policy_id and l.at <= clock_timestamp()),
           case when armed.at <= clock_timestamp() then armed.at end) as last,
         (select interval '31 days' + 2 * max(coalesce((v.spec ->> 'every')::interval, (v.spec ->> 'apart')::interval, interval '1 day'))
            from lapse.policy v
           where v.id = g.policy_id
             and v.version in (g.version, (select r.version from lapse.run r where r.policy_id = g.policy_id order by r.number desc limit 1))) as reach
    into measured
    from lapse.gate g
    join lapse.policy p on p.id = g.policy_id and p.version = g.version
   cross join lateral (
      select max(s.changed_at) as at from lapse.policy_state s
       where s.policy_id = g.policy_id and not s.continues and (s.state = g.state or g.state = 'armed' and s.state = 'arming')) armed
   where g.policy_id = measure.policy;
  if not found then
    return;
  end if;
  last := measured.last;
  reach := measured.reach;
  while last < clock_timestamp() - reach loop
    beat := (select max(b.at) from lapse.heartbeat b where b.at > measure.last and b.at <= measure.last + measure.reach);
    exit when beat is null;
    last := beat;
  end loop;
  return next;
end
$lapse$;
comment on function lapse.measure is 'What the next cutoff of a policy is compared with, and how far ahead of it the clock may be.';
