-- Runs. What open_run is for is described in 0004_1_slices.sql and 0005_3_slices.sql.

drop function lapse.open_run(int, int, uuid, oid[], timestamptz[]);
create function lapse.open_run(policy int, version int, wanted uuid, cut_leaves oid[], cuts timestamptz[])
returns table (run uuid, cutoff timestamptz, started_at timestamptz, resumed boolean, shards int)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, YMD'
as $lapse$
#variable_conflict use_column
declare
  root     oid;
  leaves   oid[];
  measure  record;
  at       timestamptz;
  previous uuid;
  cut      int;
  ranged   boolean;
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
  select coalesce((p.spec -> 'shards' ->> 'count')::int, 1), coalesce((p.spec ->> 'ranges')::boolean, false) into cut, ranged
    from lapse.policy p
   where p.id = open_run.policy and p.version = open_run.version;
  if cuts is null or cut_leaves is null or cardinality(cuts) <> cardinality(cut_leaves) or cardinality(cuts) > 1024 or coalesce(array_ndims(cuts), 1) > 1
     or coalesce(array_ndims(cut_leaves), 1) > 1 or cardinality(cuts) > 0 and not ranged
     or exists (select from unnest(cut_leaves, cuts) with ordinality a(leaf, at, n)
                 where a.leaf is null or a.at is null or not isfinite(a.at)
                    or exists (select from unnest(cut_leaves, cuts) with ordinality b(leaf, at, n)
                                where b.leaf = a.leaf and b.n < a.n and b.at >= a.at)) then
    raise exception 'the cuts are not at most 1024 instants, in order for each leaf, of a policy that has ranges'
      using errcode = 'invalid_parameter_value';
  end if;
  insert into lapse.shard (run, policy_id, version, leaf, cutoff, slice, lower, upper, modulus, remainder, residual, tries, retry_at, aside, sqlstate)
  select wanted, open_run.policy, open_run.version, l.oid, at, c.slice, c.lower, c.upper, c.modulus, c.remainder, c.residual,
         coalesce(b.tries, 0), b.retry_at, coalesce(b.retry_at > at, false), b.sqlstate
    from unnest(leaves) with ordinality l(oid, n)
   cross join lateral (
      select case when exists (select from lapse.shard s
                                where s.run = previous and s.leaf = l.oid and s.version = open_run.version and s.aside and not s.done
                                  and num_nonnulls(s.lower, s.upper) > 0)
                  then array(select s.upper[1] from lapse.shard s
                              where s.run = previous and s.leaf = l.oid and s.upper is not null order by s.slice)
                  else array(select (a.at at time zone 'UTC')::text from unnest(cut_leaves, cuts) with ordinality a(leaf, at, n)
                              where a.leaf = l.oid order by a.n) end
    ) e(ends)
   cross join lateral (
      select 0, null::text[], null::text[], null::int, null::int, false where cut < 2 and cardinality(ends) = 0
       union all
      select g, null, null, cut, g, false from generate_series(0, cut - 1) g where cut >= 2
       union all
      select g, case when g > 0 then ends[g:g] end, case when g < cardinality(ends) then ends[g + 1:g + 1] end, null, null, false
        from generate_series(0, cardinality(ends)) g
       where cut < 2 and cardinality(ends) > 0
       union all
      select greatest(cut, cardinality(ends) + 1), null, null, null, null, true where cut >= 2 or cardinality(ends) > 0
    ) c(slice, lower, upper, modulus, remainder, residual)
    left join lateral (
      select s.tries, s.retry_at, s.sqlstate
        from lapse.shard s
       where s.run = previous and s.leaf = l.oid and s.version = open_run.version and s.aside and not s.done
         and s.residual = c.residual and s.modulus is not distinct from c.modulus and s.remainder is not distinct from c.remainder
         and s.lower is not distinct from c.lower and s.upper is not distinct from c.upper
       order by s.retry_at desc
       limit 1) b on true
   order by l.n, c.slice;
  return query
    select r.run, r.cutoff, r.started_at, false, (select count(*)::int from lapse.shard s where s.run = r.run and not s.done and not s.aside)
      from lapse.run r
     where r.run = wanted;
end
$lapse$;

