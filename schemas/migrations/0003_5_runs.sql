-- What the executor's and the auditor's logins may change, each by a function that checks.

-- open_run returns the policy's run that is to be gone on with, or opens the next one with a shard for each leaf: its
-- cutoff is the server's clock, read here. Unfinished shards of former versions, of leaves that are gone and of runs that
-- lie ahead of the clock are removed on the way, and so are runs older than a week, but for the newest of a policy.
--
-- A run is over when every shard is done or was put aside. A leaf that was put aside keeps its count, and is tried again
-- in the first run after retry_at.
create function lapse.open_run(policy int, version int, wanted uuid)
returns table (run uuid, cutoff timestamptz, started_at timestamptz, resumed boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
declare
  root     oid;
  leaves   oid[];
  measure  record;
  at       timestamptz;
  previous uuid;
begin
  -- No application's role can take this lock; batches, which only read runs, do not wait for it.
  lock table lapse.run in share row exclusive mode;
  if not exists (select from lapse.gate g
                  where g.policy_id = open_run.policy and g.version = open_run.version and g.state = 'armed') then
    raise exception 'policy % version % is not armed', open_run.policy, open_run.version using errcode = 'LP002';
  end if;
  root := lapse.same_table(open_run.policy, open_run.version);
  if exists (select from lapse.leaves(root) l where l.kind <> 'r') then
    raise exception 'a partition of the policy''s table is a foreign table' using errcode = 'LP005';
  end if;
  leaves := array(select l.relation from lapse.leaves(root) l);

  delete from lapse.shard s
   where s.policy_id = open_run.policy and not s.done
     and (s.version <> open_run.version or s.leaf <> all (leaves) or s.cutoff > clock_timestamp());
  delete from lapse.run r
   where r.policy_id = open_run.policy and r.started_at < clock_timestamp() - interval '7 days'
     and not exists (select from lapse.shard s where s.run = r.run and not s.done and not s.aside)
     and exists (select from lapse.run later where later.policy_id = r.policy_id and later.number > r.number);

  return query
    select r.run, r.cutoff, r.started_at, true
      from lapse.run r
     where r.policy_id = open_run.policy and r.version = open_run.version
       and exists (select from lapse.shard s where s.run = r.run and not s.done and not s.aside)
     order by r.number desc
     limit 1;
  if found then
    return;
  end if;

  at := clock_timestamp();
  select * into measure from lapse.measure(open_run.policy);
  if at < measure.last then
    raise exception 'the server''s clock says %, before the last cutoff %', at, measure.last using errcode = 'LP016';
  elsif at > measure.last + measure.reach then
    raise exception 'the server''s clock says %, more than % after the last cutoff %', at, measure.reach, measure.last
      using errcode = 'LP017';
  end if;
  previous := (select r.run from lapse.run r where r.policy_id = open_run.policy order by r.number desc limit 1);
  insert into lapse.run (run, policy_id, version, cutoff) values (wanted, open_run.policy, open_run.version, at);
  insert into lapse.shard (run, policy_id, version, leaf, cutoff, tries, retry_at, aside, sqlstate)
  select wanted, open_run.policy, open_run.version, l.oid, at, coalesce(b.tries, 0), b.retry_at,
         coalesce(b.retry_at > at, false), b.sqlstate
    from unnest(leaves) with ordinality l(oid, n)
    left join lapse.shard b on b.run = previous and b.leaf = l.oid and b.version = open_run.version and b.aside and not b.done
   order by l.n;
  return query select r.run, r.cutoff, r.started_at, false from lapse.run r where r.run = wanted;
end
$lapse$;

-- measure says what the next cutoff of a policy is compared with: the last cutoff since a person said that the clock is
-- right, or else that instant, or else when the policy was last armed; and how far ahead of it a clock may be that nobody
-- asks about: 31 days and twice the policy's interval.
create function lapse.measure(policy int) returns table (last timestamptz, reach interval)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
declare
  accepted record;
begin
  select c.accepted, c.after_run into accepted from lapse.clock c order by c.id desc limit 1;
  return query
  select coalesce(
           (select max(r.cutoff) from lapse.run r
             where r.policy_id = g.policy_id and r.number > coalesce(accepted.after_run, 0)),
           accepted.accepted,
           (select max(s.changed_at) from lapse.policy_state s where s.policy_id = g.policy_id and s.state = g.state),
           p.made_at),
         interval '31 days' + 2 * coalesce((p.spec ->> 'every')::interval, interval '1 day')
    from lapse.gate g
    join lapse.policy p on p.id = g.policy_id and p.version = g.version
   where g.policy_id = measure.policy;
end
$lapse$;

-- lease claims a shard of a run that nobody else holds, for 30 seconds. Each claim makes the next term.
create function lapse.lease(run uuid, holder text)
returns table (shard bigint, term bigint, leaf oid, cutoff timestamptz)
language sql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
  update lapse.shard s
     set holder = lease.holder, term = s.term + 1, lease_until = clock_timestamp() + interval '30 seconds'
   where s.id = (
           select f.id
             from lapse.shard f
            where f.run = lease.run and not f.done and not f.aside
              and (f.lease_until is null or f.lease_until <= clock_timestamp() or f.holder = lease.holder)
            order by f.term, f.id -- one that could not be worked on goes to the back
            limit 1
              for update skip locked)
  returning s.id, s.term, s.leaf, s.cutoff
$lapse$;

-- release gives a shard back, unless it is another's by now.
create function lapse.release(shard bigint, term bigint, holder text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
  update lapse.shard s
     set holder = null, lease_until = null
   where s.id = release.shard and s.term = release.term and s.holder = release.holder
$lapse$;

-- put_aside takes a shard of which a row resists out of its run, with a count. It is tried again after a minute, and
-- each time that it resists again after twice as long, a day at most; where somebody holds a lock, five minutes at most.
create function lapse.put_aside(shard bigint, term bigint, holder text, state text) returns timestamptz
language sql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
  update lapse.shard s
     set holder = null, lease_until = null, aside = true, tries = s.tries + 1, sqlstate = put_aside.state,
         -- To try a lock costs a few waits of milliseconds; whoever holds one for a second must not stop the rows for minutes.
         retry_at = clock_timestamp() + case put_aside.state
                                          when '55P03' then least(interval '1 minute', interval '5 seconds' * 2 ^ least(s.tries, 11))
                                          else least(interval '1 day', interval '1 minute' * 2 ^ least(s.tries, 11)) end
   where s.id = put_aside.shard and s.term = put_aside.term and s.holder = put_aside.holder
  returning s.retry_at
$lapse$;

-- advance_arming opens an arming policy's gate once the auditor has confirmed the position at which its table was
-- published. Its first call, after the publishing transaction has committed, takes that position down; each later one
-- looks whether the auditor has passed it. It returns the state that is in force afterwards. Idempotent.
create function lapse.advance_arming(policy int) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  g lapse.gate;
  i lapse.installation;
begin
  -- Whoever only looks takes no lock that a pause would wait for.
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
  if g.arming_lsn is null then
    update lapse.gate set arming_lsn = pg_current_wal_insert_lsn() where policy_id = policy;
    -- A published row above that position, so that an auditor on a quiet database gets there at once.
    insert into lapse.policy_state (policy_id, version, state, reason)
    values (g.policy_id, g.version, 'arming', 'waiting for the auditor');
    return g.state;
  end if;
  if i.audit_required and not exists (
    select from pg_replication_slots s
     where s.slot_name = i.slot and s.database = current_database() and s.confirmed_flush_lsn >= g.arming_lsn
  ) then
    return g.state;
  end if;
  update lapse.gate set state = 'armed' where policy_id = policy;
  insert into lapse.policy_state (policy_id, version, state, reason)
  values (g.policy_id, g.version, 'armed', 'the auditor has passed ' || g.arming_lsn);
  return 'armed';
end
$lapse$;

-- alarm stops every deletion in this database until a person says otherwise: `lapse resume --all`.
create function lapse.alarm(reason text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
  insert into lapse.halt (halted, reason, alarm)
  select true, left(alarm.reason, 500), true
   where not coalesce((select h.halted and h.alarm from lapse.halt h order by h.id desc limit 1), false)
$lapse$;
