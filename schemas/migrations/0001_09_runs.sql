-- What is being deleted, and how far that is.

create table lapse.run (
  run                uuid primary key,
  number             bigint not null generated always as identity unique,
  policy_id          int not null,
  version            int not null,
  cutoff             timestamptz not null check (isfinite(cutoff)),
  started_at         timestamptz not null default clock_timestamp(),
  ended_by           text check (ended_by in ('max_rows_per_run', 'accepted')),
  outcome            text check (outcome in ('done', 'limited', 'cut short')),
  ended_at           timestamptz,
  rests_since        timestamptz,
  rests_because      text check (octet_length(rests_because) <= 300),
  due                bigint check (due >= 0),
  left_due           bigint check (left_due >= 0),
  left_held          bigint check (left_held >= 0),
  left_resting       bigint check (left_resting >= 0),
  watermark          timestamptz,
  dropped_partitions bigint not null default 0 check (dropped_partitions >= 0),
  dropped_rows       bigint not null default 0 check (dropped_rows >= 0),
  picked             bigint not null default 0 check (picked >= 0),
  deleted            bigint not null default 0 check (deleted >= 0),
  cascaded           bigint not null default 0 check (cascaded >= 0),
  batches            bigint not null default 0 check (batches >= 0),
  refreshed          bigint not null default 0 check (refreshed >= 0),
  stepped_over       bigint not null default 0 check (stepped_over >= 0),
  lost_shards        boolean not null default false,
  most               bigint check (most > 0),
  accepted           boolean not null default false,
  former_deleted     bigint not null default 0 check (former_deleted >= 0),
  former_cascaded    bigint not null default 0 check (former_cascaded >= 0),
  foreign key (policy_id, version) references lapse.policy
);
create index on lapse.run (policy_id, number);
comment on table lapse.run is 'Passes of policies over their tables, each with one cutoff. Those older than a week are removed, but for the newest of each policy. Written by open_run.';
comment on column lapse.run.run is 'Identifier of the run; claims and events name it.';
comment on column lapse.run.number is 'Order of the runs.';
comment on column lapse.run.policy_id is 'The policy.';
comment on column lapse.run.version is 'Its version.';
comment on column lapse.run.cutoff is 'The run deletes what is due at this instant. Read once from the server''s clock.';
comment on column lapse.run.started_at is 'When the run was opened.';
comment on column lapse.run.ended_by is 'The limit that ended the run while rows were left; null if it ended by itself, or is not over.';
comment on column lapse.run.outcome is 'How the run ended: done; limited, by ended_by; cut short, before its shards were done. Null until it ends.';
comment on column lapse.run.ended_at is 'When it ended; null until then, or if no process saw its end.';
comment on column lapse.run.rests_since is 'Since when no process has worked on the run; null while one does.';
comment on column lapse.run.rests_because is 'Why: the executor was stopped, the window closed, a guard, an error.';
comment on column lapse.run.due is 'Rows that were due at the cutoff, without held ones; null if they were not counted.';
comment on column lapse.run.left_due is 'Rows that were due at the cutoff and left at the end, without held ones; null if they were not counted.';
comment on column lapse.run.left_held is 'Rows that were due at the cutoff and held; null if they were not counted.';
comment on column lapse.run.left_resting is 'Rows in quarantine at the end, which left_due includes; null if they were not counted.';
comment on column lapse.run.watermark is 'Nothing that was due before is left, except held rows: the oldest due time left at the end, or the cutoff. Null if not known.';
comment on column lapse.run.dropped_partitions is 'Partitions that were dropped whole.';
comment on column lapse.run.dropped_rows is 'Rows that were in them. Their shards count them as deleted too.';
comment on column lapse.run.picked is 'Of shards that are gone: rows that were found due.';
comment on column lapse.run.deleted is 'Of shards that are gone: rows that were deleted.';
comment on column lapse.run.cascaded is 'Of shards that are gone: rows that were deleted by cascade.';
comment on column lapse.run.batches is 'Of shards that are gone: batches that found rows.';
comment on column lapse.run.refreshed is 'Of shards that are gone: rows that were found due and stayed.';
comment on column lapse.run.stepped_over is 'Of shards that are gone: rows that resisted.';
comment on column lapse.run.lost_shards is 'A shard was removed before it was done.';
comment on column lapse.run.most is 'Rows that it may delete, by all executors together: max_rows_per_run, or fewer that a person allowed; null: no limit.';
comment on column lapse.run.accepted is 'A person allowed this one run to delete rows after the policy''s breaker had opened.';
comment on column lapse.run.former_deleted is 'Of the policy''s runs that were removed since: rows that were deleted.';
comment on column lapse.run.former_cascaded is 'Of the policy''s runs that were removed since: rows that were deleted by cascade.';

-- A shard is a slice of a leaf: all of it, a range of its order or of its file, or a hash part of it. A run may have several of one leaf.
--
--   slice               its number within run and leaf, from 0: two executors that open one run make each slice once
--   lower, upper        a range of the leaf's order or file: above lower, up to upper, which are places like the cursor; null: open
--   modulus, remainder  a hash part; null: all
--   residual            follows all other slices of its leaf, for rows that were locked, or that an update moved into a slice that is done
--
-- The batches' own transactions count in the shards what a run did. When shards are removed, the run keeps their counts, so that its totals
-- are right even if it ends early: after another version, or after a partition was dropped.
-- A batch updates its shard's row twice, and PostgreSQL would read and evaluate every check each time, also of columns that no update changes:
-- checks cost more than the update. A domain's check is evaluated where a value is assigned. So texts and bytes that a call of a login can reach
-- have domains, counters have nothing, and two checks of slices are cheap.
create domain lapse.holder as text check (octet_length(value) <= 300);
comment on domain lapse.holder is 'Name of a worker.';
create domain lapse.sqlstate as text check (octet_length(value) = 5);
comment on domain lapse.sqlstate is 'A SQLSTATE.';
create domain lapse.edge as text[] check (pg_column_size(value) <= 1048576);
comment on domain lapse.edge is 'A place where a slice begins or ends.';
create domain lapse.seen as bytea check (octet_length(value) = 32);
comment on domain lapse.seen is 'A signature.';

create table lapse.shard (
  id           bigint generated always as identity primary key,
  run          uuid not null references lapse.run on delete cascade,
  policy_id    int not null,
  version      int not null,
  leaf         oid not null,
  cutoff       timestamptz not null,
  holder       lapse.holder,
  term         bigint not null default 0,
  lease_until  timestamptz,
  entered      xid8,
  batch        uuid,
  pass         smallint not null default 1,
  cursor       text[],
  picked       bigint not null default 0,
  deleted      bigint not null default 0,
  done         boolean not null default false,
  left_behind  boolean not null default false,
  aside        boolean not null default false,
  tries        int not null default 0,
  retry_at     timestamptz,
  sqlstate     lapse.sqlstate,
  slice        int not null default 0 check (slice >= 0),
  lower        lapse.edge,
  upper        lapse.edge,
  modulus      int,
  remainder    int,
  residual     boolean not null default false,
  allowed      int not null default 0,
  in_heap      boolean not null default false,
  full_at      timestamptz,
  left_some    boolean not null default false,
  seen         lapse.seen,
  batches      bigint not null default 0,
  cascaded     bigint not null default 0,
  refreshed    bigint not null default 0,
  stepped_over bigint not null default 0,
  by_rows      boolean not null default false,
  dropped      boolean not null default false,
  constraint shard_hash check (num_nulls(modulus, remainder) in (0, 2) and (modulus is null or remainder between 0 and modulus - 1)),
  constraint shard_slice unique (run, leaf, slice)
);
create index on lapse.shard (policy_id) where not done;
comment on table lapse.shard is 'Parts of a run: all of a leaf of the table, or a slice of one. A worker leases a part and deletes from it. Written by open_run, lease, enter, leave, release and put_aside.';
comment on column lapse.shard.id is 'Number of the part.';
comment on column lapse.shard.run is 'The run.';
comment on column lapse.shard.policy_id is 'The policy.';
comment on column lapse.shard.version is 'Its version.';
comment on column lapse.shard.leaf is 'The table, or one partition of it.';
comment on column lapse.shard.cutoff is 'The run''s cutoff.';
comment on column lapse.shard.holder is 'The worker that has the lease; null for none.';
comment on column lapse.shard.term is 'Grows with every lease. A former holder''s term is refused.';
comment on column lapse.shard.lease_until is 'When the lease ends; null if no worker has it.';
comment on column lapse.shard.entered is 'Transaction of the last batch that enter admitted; null for none yet.';
comment on column lapse.shard.batch is 'The batch under way; null for none.';
comment on column lapse.shard.pass is '1, or 2 for the residual pass: for rows that were locked or moved during the first, if that was more than one portion of one batch. A slice has the first only.';
comment on column lapse.shard.cursor is 'Where the pass continues, as texts of the order''s columns; null: from the start. Emptied when the part is done.';
comment on column lapse.shard.picked is 'Rows that were found due and locked.';
comment on column lapse.shard.deleted is 'Rows that were deleted.';
comment on column lapse.shard.done is 'Whether nothing is left to do here in this run.';
comment on column lapse.shard.left_behind is 'Due rows were left because other sessions had locked them, or changed or moved them meanwhile.';
comment on column lapse.shard.aside is 'A row resisted: the part is not tried again in this run.';
comment on column lapse.shard.tries is 'How many consecutive times it resisted, earlier runs included.';
comment on column lapse.shard.retry_at is 'When it is tried again; null if it did not resist.';
comment on column lapse.shard.sqlstate is 'SQLSTATE with which it resisted; null if it did not.';
comment on column lapse.shard.slice is 'Number of the slice within run and leaf, from 0.';
comment on column lapse.shard.lower is 'The slice lies above this place, like that of the cursor; null: open.';
comment on column lapse.shard.upper is 'The slice reaches up to this place; null: open.';
comment on column lapse.shard.modulus is 'Number of hash parts that the leaf is cut into; null: not by hash.';
comment on column lapse.shard.remainder is 'The hash part that this slice is; null: not by hash.';
comment on column lapse.shard.residual is 'Follows the other slices of its leaf, for rows that they met locked, and for those that an update carried into one that is done.';
comment on column lapse.shard.allowed is 'Rows that its holder may delete in the batch under way; 0 where the run has no limit.';
comment on column lapse.shard.in_heap is 'Whether batches go by the leaf''s file: the cursor is a row''s address and the file, not a place in the order of the index.';
comment on column lapse.shard.full_at is 'When the last pass from the leaf''s start began: this pass, or the pass that made the mark at which this one began.';
comment on column lapse.shard.left_some is 'This pass may have left due rows: held, in quarantine, locked, changed meanwhile, or not read in order.';
comment on column lapse.shard.seen is 'Signature of what the last batch saw of the leaf and of what its deletion reaches.';
comment on column lapse.shard.batches is 'Batches that found rows.';
comment on column lapse.shard.cascaded is 'Rows that were deleted by cascade.';
comment on column lapse.shard.refreshed is 'Rows that were found due and stayed, because somebody changed them meanwhile, or a trigger kept them.';
comment on column lapse.shard.stepped_over is 'Rows that resisted, and stayed.';
comment on column lapse.shard.by_rows is 'The partition could not be dropped: its due rows are deleted instead.';
comment on column lapse.shard.dropped is 'The partition was dropped whole, with as many rows as deleted says.';

-- What only the deleting processes know: which policies they work on, and what holds them back. Each process writes its own rows when they
-- change, and every ten seconds, and removes them when it stops. The rows of a killed process are removed after an hour. A process that makes a
-- single pass leaves a row for each of its policies, with holder 'last pass', so that it stays on record why the pass stopped.
create table lapse.worker (
  holder    text not null check (octet_length(holder) <= 300),
  policy_id int not null,
  state     text not null check (octet_length(state) <= 30),
  reason    text not null check (octet_length(reason) <= 2000),
  since     timestamptz not null default clock_timestamp(),
  next_try  timestamptz check (isfinite(next_try)),
  at        timestamptz not null default clock_timestamp(),
  held_back text not null default '' check (held_back in ('', 'breaker', 'held_back', 'limit', 'window', 'lock', 'quarantine', 'guard', 'clock', 'pause')),
  primary key (holder, policy_id)
) with (fillfactor = 50);
comment on table lapse.worker is 'What the deleting processes say about themselves. Written by report; nothing depends on it.';
comment on column lapse.worker.holder is 'The process: the beginning of its workers'' names in lapse.shard; or last pass, of processes that are gone.';
comment on column lapse.worker.policy_id is 'The policy; 0: the process as a whole.';
comment on column lapse.worker.state is 'What it does: running, deleting, slow, waiting or stopped.';
comment on column lapse.worker.reason is 'Why; empty where there is nothing to say.';
comment on column lapse.worker.since is 'Since when it is in this state.';
comment on column lapse.worker.next_try is 'When it tries again what is stopped or waits; null where that is not known.';
comment on column lapse.worker.at is 'When it last wrote the row.';
comment on column lapse.worker.held_back is 'Why the policy''s due rows stay, if only this process knows; otherwise empty.';

-- Without an audit, an executor also keeps in a file how often it has written its row here: an older copy of the database has a lower count.
create table lapse.memory (
  memory uuid primary key,
  beats  bigint not null default 1,
  at     timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
comment on table lapse.memory is 'Counts of an executor''s beats, which it also keeps in a file outside of the database. Written by remember, with audit: off.';
comment on column lapse.memory.memory is 'Names the executor''s file.';
comment on column lapse.memory.beats is 'The count. A database with a lower count than the file is an older copy.';
comment on column lapse.memory.at is 'Time of the last beat.';

-- remember is durable on this server when it returns, whatever synchronous_commit says: the file must not be ahead of the database. An
-- executor without a persistent folder begins a new memory at each start, so only the newest hundred are kept.
create function lapse.remember(memory uuid) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
declare
  n bigint;
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may say so', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  perform set_config('synchronous_commit', 'local', true);
  insert into lapse.memory as m (memory) values (remember.memory)
  on conflict (memory) do update set beats = m.beats + 1, at = clock_timestamp()
  returning m.beats into n;
  if n = 1 then
    delete from lapse.memory m
     where m.memory not in (select o.memory from lapse.memory o order by o.memory <> remember.memory, o.at desc limit 100);
  end if;
  return n;
end
$lapse$;
comment on function lapse.remember is 'Counts one more beat of an executor''s memory. For the executor.';

-- remove_shards removes shards, and adds their counts to their runs. It returns how many it removed.
create function lapse.remove_shards(shards bigint[]) returns bigint
language sql
set search_path = pg_catalog, pg_temp
as $lapse$
  with gone as (
    delete from lapse.shard s where s.id = any (remove_shards.shards)
    returning s.run, s.picked, s.deleted, s.cascaded, s.batches, s.refreshed, s.stepped_over, not s.done and not s.aside as unfinished
  ), kept as (
    update lapse.run r
       set picked = r.picked + g.picked, deleted = r.deleted + g.deleted, cascaded = r.cascaded + g.cascaded, batches = r.batches + g.batches,
           refreshed = r.refreshed + g.refreshed, stepped_over = r.stepped_over + g.stepped_over, lost_shards = r.lost_shards or g.unfinished
      from (select n.run, sum(n.picked) as picked, sum(n.deleted) as deleted, sum(n.cascaded) as cascaded, sum(n.batches) as batches,
                   sum(n.refreshed) as refreshed, sum(n.stepped_over) as stepped_over, bool_or(n.unfinished) as unfinished
              from gone n
             group by n.run) g
     where r.run = g.run
  )
  select count(*) from gone
$lapse$;
comment on function lapse.remove_shards is 'Removes shards, and keeps in their runs what they counted.';

-- lease_time returns how long a lease lasts after its holder's last batch.
create function lapse.lease_time() returns interval
language sql immutable
set search_path = pg_catalog, pg_temp
as $lapse$
  select interval '30 seconds'
$lapse$;
comment on function lapse.lease_time is 'How long a lease lasts after its holder''s last batch.';

-- open_run returns the policy's open run, or opens the next one, with shards for each leaf. It reads the cutoff from the server's clock. It
-- also removes unfinished shards of former versions, of leaves that are gone, and of runs with a cutoff in the future.
--
-- A run is over when every shard is done or was put aside. A leaf that was put aside keeps its count, and is tried again in the first run
-- after retry_at. A leaf with a range that was put aside has the same ranges in the next run, so that their counts continue.
--
-- It returns no row if it has ended a run to which a person allowed fewer rows than were due: the breaker is open again.
--
-- Some leaves are cut into slices, each such leaf with one residual shard in addition: into as many hash slices as the policy's shards say,
-- or into ranges at the caller's cuts. Cut n is of leaf cut_leaves[n]; cuts of other relations are ignored. The first range is open below
-- and the last one above, so every row is in one range, whatever the cuts are. A cut is an instant; for a column without a zone it is the
-- UTC clock time. The leaves in heaps are cut into ranges of their files' pages instead, as many as vacuum or analyze has seen there, up to
-- eight each and 1024 together. A row that moves is in the residual shard, as one whose value changes is.
--
-- A max_rows_per_run that is a share counts from the table's rows when the run opens, at least one row: from rows, or from the catalog's own
-- estimate if the caller does not know. A caller gains nothing by a number that is too high: it may open the next run anyway.
create function lapse.open_run(policy int, version int, wanted uuid, cut_leaves oid[], cuts timestamptz[], heaps oid[], due oid[], rows bigint)
returns table (run uuid, cutoff timestamptz, started_at timestamptz, resumed boolean, shards int, most bigint, accepted bigint)
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
  lets_go  bigint;
  asks     boolean;
  parts    int := least(8, 1024 / greatest(cardinality(heaps), 1));
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

  perform lapse.follow_holds();
  perform lapse.remove_shards(array(
    select s.id from lapse.shard s
     where s.policy_id = open_run.policy and not s.done
       and (s.version <> open_run.version or s.leaf <> all (leaves) or s.cutoff > clock_timestamp())));
  with ended as (
    update lapse.run r
       set outcome = case when r.lost_shards then 'cut short' else 'done' end, rests_since = null, rests_because = null
     where r.policy_id = open_run.policy and r.outcome is null
       and not exists (select from lapse.shard s where s.run = r.run and not s.done and not s.aside)
    returning r.run, r.version
  )
  select coalesce(bool_or(lapse.ask_again(e.run) and e.version = open_run.version), false) into asks from ended e;

  return query
    select r.run, r.cutoff, r.started_at, true, (select count(*)::int from lapse.shard s where s.run = r.run and not s.done and not s.aside), coalesce(r.most, 0),
         case when r.accepted then (select b.accepted from lapse.breaker b where b.policy_id = r.policy_id and b.version = r.version) else 0 end
      from lapse.run r
     where r.policy_id = open_run.policy and r.version = open_run.version
       and exists (select from lapse.shard s where s.run = r.run and not s.done and not s.aside)
     order by r.number desc
     limit 1;
  if found then
    update lapse.run r set rests_since = null, rests_because = null
     where r.policy_id = open_run.policy and r.outcome is null and r.rests_since is not null;
    return;
  end if;

  if asks then
    return; -- not an error: the breaker must stay open
  end if;
  select b.accepted into lets_go
    from lapse.breaker b
   where b.policy_id = open_run.policy and b.version = open_run.version
     and (b.accepted is null or b.accepted_at > coalesce((
           select r.started_at from lapse.run r
            where r.policy_id = open_run.policy and r.number > coalesce((select c.after_run from lapse.clock c order by c.id desc limit 1), 0)
            order by r.number desc
            limit 1), '-infinity'))
     for update;
  if found and lets_go is null then
    raise exception 'the breaker of policy % is open', open_run.policy using errcode = 'LP002';
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
  insert into lapse.run (run, policy_id, version, cutoff, most, accepted)
  select wanted, open_run.policy, open_run.version, at, least(lets_go, (p.spec ->> 'max_rows_per_run')::bigint,
           case when p.spec ? 'max_percent_per_run'
                then greatest(1, floor((p.spec ->> 'max_percent_per_run')::numeric / 100
                                       * coalesce(open_run.rows, (select sum(greatest(c.reltuples, 0)::float8)
                                                                    from pg_class c where c.oid = any (leaves))::numeric))::bigint) end),
         lets_go is not null
    from lapse.policy p
   where p.id = open_run.policy and p.version = open_run.version;
  select coalesce((p.spec -> 'shards' ->> 'count')::int, 1), coalesce((p.spec ->> 'ranges')::boolean, false) into cut, ranged
    from lapse.policy p
   where p.id = open_run.policy and p.version = open_run.version;
  if cuts is null or cut_leaves is null or cardinality(cuts) <> cardinality(cut_leaves) or cardinality(cuts) > 1024 or coalesce(array_ndims(cuts), 1) > 1
     or coalesce(array_ndims(cut_leaves), 1) > 1 or cardinality(cuts) + cardinality(heaps) > 0 and not ranged or heaps is null
     or exists (select from unnest(cut_leaves, cuts) with ordinality a(leaf, at, n)
                 where a.leaf is null or a.at is null or not isfinite(a.at)
                    or exists (select from unnest(cut_leaves, cuts) with ordinality b(leaf, at, n)
                                where b.leaf = a.leaf and b.n < a.n and b.at >= a.at)) then
    raise exception 'the cuts are not at most 1024 instants, in order for each leaf, or heaps is null, or the policy has no ranges'
      using errcode = 'invalid_parameter_value';
  end if;
  insert into lapse.shard (run, policy_id, version, leaf, cutoff, slice, lower, upper, modulus, remainder, residual, in_heap, tries, retry_at, aside, sqlstate)
  select wanted, open_run.policy, open_run.version, l.oid, at, c.slice, c.lower, c.upper, c.modulus, c.remainder, c.residual, l.oid = any (heaps) or (ends[1]::text[])[2] is not null,
         coalesce(b.tries, 0), b.retry_at, coalesce(b.retry_at > at, false), b.sqlstate
    from unnest(leaves) with ordinality l(oid, n)
   cross join lateral (
      select case when exists (select from lapse.shard s
                                where s.run = previous and s.leaf = l.oid and s.version = open_run.version and s.aside and not s.done
                                  and num_nonnulls(s.lower, s.upper) > 0)
                  then array(select s.upper::text from lapse.shard s
                              where s.run = previous and s.leaf = l.oid and s.upper is not null order by s.slice)
                  when l.oid = any (heaps)
                  then array(select array[null, format('(%s,0)', c.relpages::bigint * g / parts)]::text
                               from pg_class c cross join generate_series(1, parts - 1) g
                              where c.oid = l.oid and c.relpages >= parts order by g)
                  else array(select array[(a.at at time zone 'UTC')::text]::text from unnest(cut_leaves, cuts) with ordinality a(leaf, at, n)
                              where a.leaf = l.oid order by a.n) end
    ) e(ends)
   cross join lateral (
      select 0, null::text[], null::text[], null::int, null::int, false where cut < 2 and cardinality(ends) = 0
       union all
      select g, null, null, cut, g, false from generate_series(0, cut - 1) g where cut >= 2
       union all
      select g, ends[g]::text[], ends[g + 1]::text[], null, null, false
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
   where open_run.due is null or l.oid = any (open_run.due)
   order by l.n, c.slice;
  return query
    select r.run, r.cutoff, r.started_at, false, (select count(*)::int from lapse.shard s where s.run = r.run and not s.done and not s.aside), coalesce(r.most, 0),
         case when r.accepted then (select b.accepted from lapse.breaker b where b.policy_id = r.policy_id and b.version = r.version) else 0 end
      from lapse.run r
     where r.run = wanted;
end
$lapse$;
comment on function lapse.open_run is 'The policy''s run to go on with, or the next one. For the executor.';

-- lease claims a free shard of a run, for 30 seconds. Each claim makes the next term.
create function lapse.lease(run uuid, holder text)
returns table (shard bigint, term bigint, leaf oid, cutoff timestamptz, in_heap boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
begin
  return query
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
            order by f.term, hashtextextended(lease.holder, f.id), f.id -- one that could not be worked on goes to the back
            limit 1
              for update skip locked)
  returning s.id, s.term, s.leaf, s.cutoff, s.in_heap;
end
$lapse$;
comment on function lapse.lease is 'Leases a free shard of a run. For the executor.';

-- release gives a shard back, unless another worker has it.
create function lapse.release(shard bigint, term bigint, holder text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
begin
  update lapse.shard s
     set holder = null, lease_until = null
   where s.id = release.shard and s.term = release.term and s.holder = release.holder;
end
$lapse$;
comment on function lapse.release is 'Gives a shard back. For the executor.';

-- put_aside removes a shard from its run because a row of it resists, and counts that. The shard is tried again after a minute, and after
-- each further time that it resists after twice as long, at most a day; if a lock is the reason, after five seconds first, at most a minute.
create function lapse.put_aside(shard bigint, term bigint, holder text, state text) returns timestamptz
language sql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
  update lapse.shard s
     set holder = null, lease_until = null, aside = true, tries = s.tries + 1, sqlstate = put_aside.state,
         -- To try a lock costs a few waits of milliseconds; one that is held for a second must not stop the rows for minutes.
         retry_at = clock_timestamp() + case put_aside.state
                                          when '55P03' then least(interval '1 minute', interval '5 seconds' * 2 ^ least(s.tries, 11))
                                          else least(interval '1 day', interval '1 minute' * 2 ^ least(s.tries, 11)) end
   where s.id = put_aside.shard and s.term = put_aside.term and s.holder = put_aside.holder
  returning s.retry_at
$lapse$;
comment on function lapse.put_aside is 'Removes a shard from its run because a row of it resists. For the executor.';

-- statistics returns what a run did so far, by all executors.
create function lapse.statistics(run uuid)
returns table (picked bigint, deleted bigint, cascaded bigint, batches bigint, refreshed bigint, stepped_over bigint, shards int, aside int,
               locked boolean, unfinished boolean)
language sql stable
set search_path = pg_catalog, pg_temp
as $lapse$
  select (r.picked + coalesce(sum(s.picked), 0))::bigint, (r.deleted + coalesce(sum(s.deleted), 0))::bigint,
         (r.cascaded + coalesce(sum(s.cascaded), 0))::bigint, (r.batches + coalesce(sum(s.batches), 0))::bigint,
         (r.refreshed + coalesce(sum(s.refreshed), 0))::bigint, (r.stepped_over + coalesce(sum(s.stepped_over), 0))::bigint,
         count(s.id)::int, (count(*) filter (where s.aside and not s.done and s.sqlstate <> '55P03'))::int,
         coalesce(bool_or(s.left_behind or s.aside and not s.done and s.sqlstate = '55P03'), false), coalesce(bool_or(not s.done and not s.aside), false)
    from lapse.run r
    left join lapse.shard s on s.run = r.run
   where r.run = statistics.run
   group by r.run
$lapse$;
comment on function lapse.statistics is 'What a run did so far, by all executors: its shards, and those that are gone.';

-- ask_again opens the breaker again, with what is left, when a run has ended to which a person allowed fewer rows than were due. It returns
-- whether it has.
create function lapse.ask_again(run uuid) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  update lapse.breaker b
     set at = clock_timestamp(), due = greatest(b.due - t.deleted, 0), table_rows = greatest(b.table_rows - t.deleted, 0),
         compared = case when b.cause = 'absurd_past' then least(b.compared, greatest(b.due - t.deleted, 0)) else b.compared end,
         accepted = null, accepted_at = null
    from lapse.run r, lapse.statistics(ask_again.run) t
   where r.run = ask_again.run and r.accepted and b.policy_id = r.policy_id and b.version = r.version and b.accepted < b.due;
  return found;
end
$lapse$;
comment on function lapse.ask_again is 'Opens the breaker again when a run has ended to which a person allowed fewer rows than were due.';

-- note_due records how much was due when a run was opened, if that was counted.
create function lapse.note_due(run uuid, due bigint) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
  update lapse.run r set due = note_due.due where r.run = note_due.run and r.due is null and r.outcome is null and note_due.due >= 0
$lapse$;
comment on function lapse.note_due is 'Records how much was due when a run was opened. For the executor.';

-- suspend_run records why no process works on a run that is not over, until one does again.
create function lapse.suspend_run(run uuid, reason text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may say so', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  update lapse.run r
     set rests_since = clock_timestamp(), rests_because = left(suspend_run.reason, 70)
   where r.run = suspend_run.run and r.outcome is null;
end
$lapse$;
comment on function lapse.suspend_run is 'Records why no process works on a run that is not over. For the executor.';

-- close_run ends a run that has no shard left to work on. The caller counts which of the due rows are left, null if it did not count: due
-- ones, held ones, and those in quarantine among the due. oldest is when the oldest of them fell due. Only the first call counts.
-- After a crash before it, open_run ends the run, without these counts.
create function lapse.close_run(run uuid, left_due bigint, left_held bigint, left_resting bigint, oldest timestamptz) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may end a run', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  update lapse.run r
     set outcome = 'done', ended_at = clock_timestamp(), rests_since = null, rests_because = null, left_due = close_run.left_due,
         left_held = close_run.left_held, left_resting = close_run.left_resting,
         due = coalesce(r.due, t.deleted + close_run.left_due),
         watermark = case when close_run.left_due = 0 then r.cutoff when close_run.oldest is not null then least(close_run.oldest, r.cutoff) end
    from lapse.statistics(close_run.run) t
   where r.run = close_run.run and r.outcome is null and not t.unfinished;
  if found and close_run.left_due is distinct from 0 then
    perform lapse.ask_again(close_run.run);
  end if;
end
$lapse$;
comment on function lapse.close_run is 'Ends a run that has no shard left to work on, with what is left of the rows that were due. For the executor.';

-- end_run ends a run that has reached a limit: its shards are done, even leased ones, and the next run finds what they left. It waits for
-- batches under way; enter refuses later ones, because their shard is done. After a crash the run is still open, and ends when a
-- worker calls take_rows again. It returns false if the run had already ended.
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
  update lapse.run r
     set ended_by = end_run.reason, outcome = 'limited', ended_at = clock_timestamp(), rests_since = null, rests_because = null
   where r.run = end_run.run and r.ended_by is null;
  if not found then
    return false;
  end if;
  perform lapse.ask_again(end_run.run);
  return true;
end
$lapse$;
comment on function lapse.end_run is 'Ends a run that has reached a limit; the next one finds what it left. For the executor.';

-- report replaces what a process says about itself, except the rows of other policies' last pass. With a stolen login one can report lies
-- here, for up to 100 processes and for policies that exist.
create function lapse.report(holder text, policies int[], states text[], reasons text[], tries timestamptz[], held text[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may say so', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  delete from lapse.worker w
   where w.holder <> 'last pass' and (w.at < clock_timestamp() - interval '1 hour' or w.holder = report.holder and w.policy_id <> all (report.policies));
  if (select count(distinct w.holder) from lapse.worker w where w.holder <> report.holder) >= 100 then
    raise exception 'more than 100 processes say that they delete here' using errcode = 'configuration_limit_exceeded';
  end if;
  insert into lapse.worker as w (holder, policy_id, state, reason, next_try, held_back)
  select report.holder, n.policy_id, n.state, left(n.reason, 500), case when isfinite(n.next_try) then n.next_try end, coalesce(n.held, '')
    from unnest(report.policies, report.states, report.reasons, report.tries, report.held) n(policy_id, state, reason, next_try, held)
   where n.policy_id = 0 or exists (select from lapse.gate g where g.policy_id = n.policy_id)
  on conflict on constraint worker_pkey do update
     set since = case when w.state = excluded.state then w.since else excluded.since end,
         state = excluded.state, reason = excluded.reason, next_try = excluded.next_try, held_back = excluded.held_back, at = clock_timestamp();
end
$lapse$;
comment on function lapse.report is 'Replaces what a deleting process says about itself. For the executor.';
