-- The catalog stays small: what is confirmed, and older than a number of days, is deleted. The log keeps it forever.
--
-- The ledger is append-only, even for its owner. Rows may be deleted from it only on these terms, by any role. Triggers enforce the
-- terms; to get around them one must change the schema, which every command notices.
--
--   - a batch may be deleted if it is older than a day, and older than the instant that lapse.pruning has for this very transaction;
--   - if an audit is required, that instant is an hour before one whose position the auditor has confirmed. The row's own trigger
--     records positions, so the row is always true;
--   - a batch's result may be deleted after its batch.

create table lapse.pruning (
  only_row  boolean primary key default true check (only_row),
  mark      pg_lsn not null,
  mark_at   timestamptz not null,
  confirmed timestamptz,
  before    timestamptz not null default '-infinity',
  xid       xid8
);
comment on table lapse.pruning is 'Up to when the ledger may be pruned. One row, written by prune; its trigger corrects wrong values.';
comment on column lapse.pruning.only_row is 'Always true.';
comment on column lapse.pruning.mark is 'The end of the log at mark_at: once the auditor has confirmed it, all that was committed by then is confirmed.';
comment on column lapse.pruning.mark_at is 'When mark was taken.';
comment on column lapse.pruning.confirmed is 'All that was committed by then is confirmed, or need not be; null: not known.';
comment on column lapse.pruning.before is 'Batches that began before may be deleted, by the transaction of xid.';
comment on column lapse.pruning.xid is 'The transaction that wrote the row last.';

insert into lapse.pruning (mark, mark_at) values (pg_current_wal_insert_lsn(), clock_timestamp());

create function lapse.bound_pruning() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  required boolean := (select i.audit_required from lapse.installation i);
begin
  if tg_op <> 'UPDATE' then
    raise exception 'lapse.pruning has one row' using errcode = 'insufficient_privilege';
  end if;
  new.mark := old.mark;
  new.mark_at := old.mark_at;
  new.confirmed := old.confirmed;
  if not required
     or exists (select from pg_replication_slots s join lapse.installation i on s.slot_name = i.slot
                 where s.database = current_database() and s.confirmed_flush_lsn >= old.mark) then
    new.confirmed := old.mark_at;
    new.mark := pg_current_wal_insert_lsn();
    new.mark_at := clock_timestamp();
  end if;
  new.before := least(new.before, clock_timestamp() - interval '1 day',
                      case when required then coalesce(new.confirmed - interval '1 hour', '-infinity') end);
  new.xid := pg_current_xact_id();
  return new;
end
$lapse$;
comment on function lapse.bound_pruning is 'Trigger that keeps lapse.pruning true.';

create trigger bounded before insert or update or delete on lapse.pruning for each row execute function lapse.bound_pruning();
create trigger append_only before truncate on lapse.pruning for each statement execute function lapse.refuse_change();

create function lapse.check_pruned() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if tg_table_name = 'batch' then
    if exists (select from gone g
                where not exists (select from lapse.pruning p where p.xid = pg_current_xact_id() and g.started_at < p.before)) then
      raise exception 'lapse.batch is append-only: only what lapse.prune may remove can be deleted' using errcode = 'insufficient_privilege';
    end if;
  elsif exists (select from gone g join lapse.batch b on b.batch = g.batch)
     or exists (select from gone g
                 where not exists (select from lapse.pruning p where p.xid = pg_current_xact_id() and g.finished_at < p.before + interval '1 hour')) then
    raise exception 'lapse.batch_result is append-only: only what lapse.prune may remove can be deleted' using errcode = 'insufficient_privilege';
  end if;
  return null;
end
$lapse$;
comment on function lapse.check_pruned is 'Trigger that allows deletions from the ledger only of what prune may remove.';

create trigger pruned after delete on lapse.batch referencing old table as gone
  for each statement execute function lapse.check_pruned();
create trigger pruned after delete on lapse.batch_result referencing old table as gone
  for each statement execute function lapse.check_pruned();

-- prune keeps a summary of what it removes from the ledger, for a year: how many rows each policy deleted on which day. It is no evidence.
create table lapse.deleted_day (
  policy_id int not null,
  day       date not null,
  deleted   bigint not null check (deleted >= 0),
  primary key (policy_id, day)
);
comment on table lapse.deleted_day is 'How many rows each policy deleted on a day, of batches that are no longer in the ledger. No evidence: the log is. Written by prune.';
comment on column lapse.deleted_day.policy_id is 'The policy.';
comment on column lapse.deleted_day.day is 'The day, in UTC, on which the batches began.';
comment on column lapse.deleted_day.deleted is 'Rows that they deleted from the policy''s table.';

-- prune removes ledger rows and runs that are older than a number of days, some thousands at a time. It returns how many rows it removed: 0 if
-- nothing is left, or if another session prunes. It keeps the last batch of a shard that is not done, because its worker may not know the
-- outcome yet; each policy's last run, which schedule, clock and breaker use; and every run that is not over. A crash before it commits
-- removes nothing.
create function lapse.prune(days int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  horizon timestamptz;
  gone    uuid[];
  runs    uuid[];
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may prune', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  perform set_config('synchronous_commit', 'off', true);
  perform from lapse.pruning p for update skip locked;
  if not found then
    return 0;
  end if;
  update lapse.pruning p set before = clock_timestamp() - make_interval(days => greatest(prune.days, 1)) returning p.before into horizon;
  with removed as (
    delete from lapse.batch b
     where b.batch in (
             select o.batch
               from lapse.batch o
              where o.started_at < horizon
                and o.batch not in (select s.batch from lapse.shard s where not s.done and s.batch is not null)
              order by o.started_at
              limit 5000)
    returning b.batch, b.policy_id, b.started_at),
  counted as (
    insert into lapse.deleted_day as d (policy_id, day, deleted)
    select r.policy_id, (r.started_at at time zone 'UTC')::date, sum(o.deleted)
      from removed r
      join lapse.batch_result o on o.batch = r.batch
     group by 1, 2
    on conflict on constraint deleted_day_pkey do update set deleted = d.deleted + excluded.deleted)
  select coalesce(array_agg(r.batch), '{}') into gone from removed r;
  if gone <> '{}' then -- most calls find nothing, and PostgreSQL plans only what a session reaches
    delete from lapse.batch_result r where r.batch = any (gone);
  end if;
  runs := array(select o.run
                  from lapse.run o
                 where o.started_at < horizon
                   and not exists (select from lapse.shard s where s.run = o.run and not s.done and not s.aside)
                   and (exists (select from lapse.run later where later.policy_id = o.policy_id and later.number > o.number)
                        or exists (select from lapse.gate g where g.policy_id = o.policy_id and g.state = 'dropped'))
                 order by o.number
                 limit 50);
  if runs <> '{}' then
    -- What they deleted stays on record in the policy's last run, so that counters never go back.
    update lapse.run r
       set former_deleted = r.former_deleted + f.deleted, former_cascaded = r.former_cascaded + f.cascaded
      from (select o.policy_id, sum(t.deleted + o.former_deleted)::bigint as deleted, sum(t.cascaded + o.former_cascaded)::bigint as cascaded
              from lapse.run o, lapse.statistics(o.run) t
             where o.run = any (runs)
             group by o.policy_id) f
     where r.policy_id = f.policy_id and r.run <> all (runs)
       and r.number = (select max(l.number) from lapse.run l where l.policy_id = f.policy_id);
    delete from lapse.run r where r.run = any (runs);
  end if;
  delete from lapse.quarantine_change q
   where q.number in (select c.number from lapse.quarantine_change c where c.changed_at < horizon order by c.changed_at limit 5000);
  delete from lapse.snapshot s
   where s.number in (select o.number from lapse.snapshot o where o.at < horizon order by o.at limit 5000);
  delete from lapse.deleted_day d where d.day < (clock_timestamp() at time zone 'UTC')::date - 400;
  -- What the checks found of a leaf that is gone: a table whose partitions are dropped leaves an entry for each of them.
  delete from lapse.examined e
   where e.id in (select x.id from lapse.examined x where not exists (select from pg_class c where c.oid = x.leaf) for update skip locked);
  return cardinality(gone) + cardinality(runs);
end
$lapse$;
comment on function lapse.prune is 'Removes confirmed ledger rows and runs that are older than so many days, some at a time. For the executor.';
