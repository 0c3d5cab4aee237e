-- A shard is a slice of a leaf: all of it, a range of its order, or a hash part of it. A run may have several of one leaf.
--
--   slice               its number within run and leaf, from 0: two executors that open one run make each slice once
--   lower, upper        a range of the leaf's order: above lower, up to upper, as texts in the order of the cursor; null: open
--   modulus, remainder  a hash part; null: all
--   residual            follows all other slices of its leaf, for rows that an update carried into a slice that is done
--
-- A new shard is all of its leaf unless its columns say otherwise. The functions below are those of version 3 with slices
-- and with the length of a lease in one place.

alter table lapse.shard
  drop constraint shard_run_leaf_key,
  add column slice     int not null default 0 check (slice >= 0),
  add column lower     text[] check (pg_column_size(lower) <= 1048576),
  add column upper     text[] check (pg_column_size(upper) <= 1048576),
  add column modulus   int,
  add column remainder int,
  add column residual  boolean not null default false,
  add constraint shard_hash check (num_nulls(modulus, remainder) in (0, 2) and (modulus is null or remainder between 0 and modulus - 1)),
  add constraint shard_slice unique (run, leaf, slice);

-- What enter tells a deletion function of the slice that it works on.
alter type lapse.place
  add attribute lower text[], add attribute upper text[], add attribute modulus int, add attribute remainder int;

-- lease_time is how long a lease lasts after its holder's last batch.
create function lapse.lease_time() returns interval
language sql immutable
set search_path = pg_catalog, pg_temp
as $lapse$
  select interval '30 seconds'
$lapse$;

-- lease gives out a shard of a run that nobody else holds, for lease_time. Each lease has the next term.
drop function lapse.lease(uuid, text);
create function lapse.lease(run uuid, holder text)
returns table (shard bigint, term bigint, leaf oid, cutoff timestamptz)
language sql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
  update lapse.shard s
     set holder = lease.holder, term = s.term + 1, lease_until = clock_timestamp() + lapse.lease_time()
   where s.id = (
           select f.id
             from lapse.shard f
            where f.run = lease.run and not f.done and not f.aside
              and (f.lease_until is null or f.lease_until <= clock_timestamp() or f.holder = lease.holder)
              and not (f.residual and exists (
                    select from lapse.shard o
                     where o.run = f.run and o.leaf = f.leaf and not o.residual and not o.done and not o.aside))
            order by f.term, f.id -- one that could not be worked on goes to the back
            limit 1
              for update skip locked)
  returning s.id, s.term, s.leaf, s.cutoff
$lapse$;

-- open_run returns the policy's run that is to be gone on with, or opens the next one with a shard for each leaf: its
-- cutoff is the server's clock, read here. shards is how many of them are neither done nor put aside. Unfinished shards of
-- former versions, of leaves that are gone and of runs that lie ahead of the clock are removed on the way, and so are runs
-- older than a week, but for the newest of a policy.
--
-- A run is over when every shard is done or was put aside. A slice that was put aside keeps its count, and is tried again
-- in the first run after retry_at that has the same slice.
drop function lapse.open_run(int, int, uuid);
create function lapse.open_run(policy int, version int, wanted uuid)
returns table (run uuid, cutoff timestamptz, started_at timestamptz, resumed boolean, shards int)
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
    select r.run, r.cutoff, r.started_at, true, (select count(*)::int from lapse.shard s where s.run = r.run and not s.done and not s.aside)
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
    left join lateral (
      select s.tries, s.retry_at, s.sqlstate
        from lapse.shard s
       where s.run = previous and s.leaf = l.oid and s.version = open_run.version and s.aside and not s.done
         and not s.residual and num_nonnulls(s.lower, s.upper, s.modulus, s.remainder) = 0 -- all of the leaf, as here
       order by s.retry_at desc
       limit 1) b on true
   order by l.n;
  return query
    select r.run, r.cutoff, r.started_at, false, (select count(*)::int from lapse.shard s where s.run = r.run and not s.done and not s.aside)
      from lapse.run r
     where r.run = wanted;
end
$lapse$;
