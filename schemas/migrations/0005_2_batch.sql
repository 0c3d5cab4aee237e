-- What a batch may run, and how far it may look. What these functions are for is described in 0003_4_batch.sql.

-- What a batch did. pass_over says that the pass came to its end: a batch without it ended because it may be no larger.
alter type lapse.outcome add attribute pass_over boolean;

-- leave counts what went, writes the result and moves the shard on. picked rows were found and locked, deleted of them
-- went; before is what record returned, null where nothing was picked; last is the place of the last row that the batch
-- looked at, which need not be one that it picked; ended says that no candidate lies behind it; left_behind that due rows
-- are left that somebody has locked.
--
-- The first pass is followed by a residual one from the start, for rows that were locked or moved while it went by, unless
-- it picked nothing. What was left behind is kept from batch to batch of a pass, and begins anew with the next one.
drop function lapse.leave(lapse.claim, lapse.work, bigint, bigint, bigint[], text[], boolean);
create function lapse.leave(
  claim lapse.claim, work lapse.work, picked bigint, deleted bigint, before bigint[], last text[], ended boolean,
  left_behind boolean
) returns lapse.outcome
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  shard  record;
  went   bigint := 0;
  counts jsonb := '{}';
  at_end boolean := coalesce(leave.ended, true) or leave.last is null;
  behind boolean;
  over   boolean;
begin
  select s.pass, s.picked, s.left_behind into shard
    from lapse.shard s
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target;
  if not found or not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  if leave.picked > 0 then
    select coalesce(sum(n.went) filter (where n.oid = claim.target), 0),
           coalesce(jsonb_object_agg(n.oid::text, n.went) filter (where n.went > 0), '{}')
      into went, counts
      from (select t.oid, coalesce(pg_stat_get_xact_tuples_deleted(t.oid), 0) - leave.before[t.n] as went
              from unnest(claim.target || claim.cascades) with ordinality t(oid, n)) n;
    -- Of code that the policy trusts too: what it deletes here would go under the policy's name, due or not.
    if went is distinct from leave.deleted then
      raise exception '% rows left relation % where the statement deleted %', went, claim.target, leave.deleted
        using errcode = 'LP008';
    end if;
    insert into lapse.batch_result (batch, picked, deleted, by_relation)
    values (claim.batch, leave.picked, leave.deleted, counts);
  end if;
  behind := shard.left_behind or coalesce(leave.left_behind, false);
  over := at_end and (shard.pass = 2 or shard.picked + leave.picked = 0);
  update lapse.shard s
     set batch = null,
         cursor = case when at_end then null else leave.last end,
         pass = case when at_end then 2 else s.pass end,
         picked = s.picked + leave.picked, deleted = s.deleted + leave.deleted,
         done = over, left_behind = behind and (over or not at_end),
         lease_until = clock_timestamp() + lapse.lease_time()
   where s.id = work.shard;
  return row(leave.picked, leave.deleted, over, over and behind, counts, at_end);
end
$lapse$;

revoke all on function
  lapse.leave(lapse.claim, lapse.work, bigint, bigint, bigint[], text[], boolean, boolean) from public;

-- For each deleter as `lapse apply` gives them; a role that is gone from the cluster is passed over.
do $do$
declare
  deleter name;
begin
  for deleter in select d.role from lapse.deleter d join pg_roles r on r.rolname = d.role loop
    execute format('grant execute on function
                    lapse.leave(lapse.claim, lapse.work, bigint, bigint, bigint[], text[], boolean, boolean) to %I', deleter);
  end loop;
end
$do$;
