-- How fast a policy may go, and how far in one run: its rate and max_rows_per_run, for all executors together. A worker takes
-- rows here before each BEGIN, and gives back what its batch did not delete. The row of lapse.allowance is locked for the length
-- of one statement, so that two workers never take the same rows.
--
-- This holds back executors that do as they should. It protects nothing from a stolen login of theirs: that is enter's part.

create table lapse.allowance (
  policy_id  int primary key,
  tokens     double precision not null default 0 check (tokens >= 0),
  filled_at  timestamptz
) with (fillfactor = 20); -- each batch updates the row: room for its versions
comment on table lapse.allowance is 'What the rate has left of each policy, for all executors together. Who takes rows locks the policy''s row.';
comment on column lapse.allowance.policy_id is 'The policy.';
comment on column lapse.allowance.tokens is 'Rows that may go at filled_at: the rate fills it, up to the rows of one second.';
comment on column lapse.allowance.filled_at is 'When tokens was computed; null: never, and it is full.';

alter table lapse.shard add column allowed int not null default 0 check (allowed >= 0);
comment on column lapse.shard.allowed is 'Rows that its holder may delete in the batch under way; 0 where the run has no limit.';
alter table lapse.run add column ended_by text check (ended_by in ('max_rows_per_run', 'accepted'));
comment on column lapse.run.ended_by is 'The limit that ended the run while rows were left; null if it ended by itself, or goes on.';

-- take_rows allows the holder of a shard so many rows, at most as many as are wanted: the rate has them, and with them and with what
-- others were allowed the run stays below its limit. None: pause says how soon to ask again, and over that the run has reached its
-- limit. Less than half of a second's rows are not given out piecemeal. A wish of 0 or less gives back what was not deleted.
--
-- A crash after it leaves rows that nobody deletes: the rate has them back within a second, the run when the lease has ended, and a
-- minute more for a batch that was entered before. Its commit is not waited for: the batch's own, behind it in the log, makes both
-- durable.
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

-- end_run ends a run that has reached a limit: its shards are done, whoever holds them, and the next run finds what they left. A
-- batch that is under way is waited for; one that comes later is refused by enter, its lease being for a shard that is done. A
-- crash leaves a run that goes on, and ends here when a worker asks take_rows again. It returns whether nobody had ended the run.
create function lapse.end_run(run uuid, reason text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may end a run', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  perform from lapse.shard s where s.run = end_run.run and not s.done order by s.id for update;
  update lapse.shard s
     set done = true, cursor = null, lease_until = null, allowed = 0
   where s.run = end_run.run and not s.done and not s.aside;
  update lapse.run r set ended_by = end_run.reason where r.run = end_run.run and r.ended_by is null;
  return found;
end
$lapse$;

revoke all on function lapse.take_rows(bigint, bigint, text, int), lapse.end_run(uuid, text) from public;
grant execute on function lapse.take_rows(bigint, bigint, text, int), lapse.end_run(uuid, text) to {{.Executor}};
grant select on lapse.allowance to {{.Executor}};
