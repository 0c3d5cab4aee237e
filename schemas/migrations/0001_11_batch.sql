-- What the batches of all policies have in common. A function per policy, lapse.delete_<id>_<version>, calls these in
-- this order, in one transaction that does nothing else:
--
--   enter     gate, claim, history, slot, beat, publications, lease  -> the shard's place
--             (the policy's function locks the leaf)
--   check_leaf  leaf, columns, publication, intruders, reach
--             (lapse.find_<id>_<version> says which rows, lock_rows locks them)
--   record    ledger row, tag                                  -> counts before
--             (the policy's function deletes them)
--   next_portion  counts them, pauses                          -> whether rows are to be found once more
--   leave     counts, result, the shard's cursor               -> what the executor is told
--
-- They run as {{.Owner}}, who has no right on any user's table, and touch none. A function of the table's owner can use a deleter's rights
-- for others, so each of them checks session_user. enter stamps its transaction and its batch on the shard, once, and the others accept
-- only that shard. Every refusal is an error: the transaction ends with nothing deleted.

-- What a batch says about itself before it deletes anything. Its MAC is made with a key that is not in the database.
create type lapse.claim as (
  system_identifier text, database_oid oid, history int, timeline int, xid xid8, started_at timestamptz, batch uuid, policy_id
  int, policy text, policy_version int, run uuid, cutoff timestamptz, hold_version bigint, target oid, cascades oid[],
  functions bytea
);
comment on type lapse.claim is 'What a batch says about itself before it deletes anything. The columns of lapse.batch have the same meaning.';
comment on column lapse.claim.system_identifier is 'The cluster''s system identifier.';
comment on column lapse.claim.database_oid is 'The database.';
comment on column lapse.claim.history is 'Number of the database''s history.';
comment on column lapse.claim.timeline is 'The server''s timeline.';
comment on column lapse.claim.xid is 'The transaction.';
comment on column lapse.claim.started_at is 'When the transaction began.';
comment on column lapse.claim.batch is 'Identifier of the batch.';
comment on column lapse.claim.policy_id is 'The policy.';
comment on column lapse.claim.policy is 'Its name.';
comment on column lapse.claim.policy_version is 'Its version.';
comment on column lapse.claim.run is 'The run.';
comment on column lapse.claim.cutoff is 'The run deletes what is due at this instant.';
comment on column lapse.claim.hold_version is 'Number of the last change of legal holds that the batch knows of.';
comment on column lapse.claim.target is 'The table or partition to delete from.';
comment on column lapse.claim.cascades is 'Relations in which foreign keys may delete rows too.';
comment on column lapse.claim.functions is 'HMAC by the tag key over the text of the functions that are to run.';

-- Which shard a batch works on, under which lease, how many rows a portion may have, and how many portions. shape is how the batch finds its rows. step_over: the
-- batch is one row that resists; if it still cannot be deleted it is entered in the quarantine, and stays.
create type lapse.work as (
  shard bigint, term bigint, holder text, row_limit int, shape text, step_over boolean, careful boolean, portions int, pause float8
);
comment on type lapse.work is 'Which shard a batch works on, under which lease, and how many rows it may take.';
comment on column lapse.work.shard is 'The shard.';
comment on column lapse.work.term is 'Term of the lease.';
comment on column lapse.work.holder is 'Holder of the lease.';
comment on column lapse.work.row_limit is 'Largest number of rows of a portion.';
comment on column lapse.work.shape is 'How the batch finds its rows: range, pick, heap or heap pick, as far as its policy has them; null: the usual one.';
comment on column lapse.work.step_over is 'The batch is one row that resists: if it still cannot be deleted it is entered in the quarantine.';
comment on column lapse.work.careful is 'Leaves out rows if other sessions have locked rows that a cascade would delete, or if rows that stay refer to them.';
comment on column lapse.work.portions is 'How often the batch finds rows and deletes them; null: once.';
comment on column lapse.work.pause is 'After each portion the batch pauses for so many times as long as that took, 0.1 s at most; null: not at all.';

-- What the server has counted for this session when a batch begins to delete. That includes earlier transactions, until the session has
-- reported them to the server's statistics. relations are the target, the relations that foreign keys reach and, if the policy trusts
-- other code, every held table.
create type lapse.tally as (relations oid[], deleted bigint[], updated bigint);
comment on type lapse.tally is 'How many rows the server has counted for a session before a batch deletes.';
comment on column lapse.tally.relations is 'The target, the relations of the claim, and others that trusted code must leave alone.';
comment on column lapse.tally.deleted is 'Rows deleted from each.';
comment on column lapse.tally.updated is 'Rows of the target updated.';

-- What enter and check_leaf tell a deletion function about its shard and the shard's place. leaf is its name in SQL. spared is SQL that is
-- true for rows t that must stay, whatever the policy says: held (lapse.held), or in quarantine because they could not be deleted
-- (lapse.quarantined); '' if there are none. low is where a pass may begin: rows that fell due by then are gone. Null: at the start, or
-- the pass has begun.
create type lapse.place as (
  leaf text, cursor text[], pass smallint, lower text[], upper text[], modulus int, remainder int, spared text, low
  timestamptz, ways jsonb, answers text
);
comment on type lapse.place is 'A shard''s place when a batch begins.';
comment on column lapse.place.leaf is 'The leaf''s name in SQL.';
comment on column lapse.place.cursor is 'Where the pass continues; null: from the start.';
comment on column lapse.place.pass is '1, or 2 for the residual pass.';
comment on column lapse.place.lower is 'The slice lies above this place; null: open.';
comment on column lapse.place.upper is 'The slice reaches up to this place; null: open.';
comment on column lapse.place.modulus is 'Number of hash parts; null: not by hash.';
comment on column lapse.place.remainder is 'The hash part; null: not by hash.';
comment on column lapse.place.spared is 'SQL that is true for rows t that must stay: held, or in quarantine; empty if there are none.';
comment on column lapse.place.low is 'Where a pass that begins may begin: rows that had fallen due by then are gone. Null: at the start.';
comment on column lapse.place.ways is 'The foreign keys along which the batch locks what a cascade deletes; null if it locks nothing.';
comment on column lapse.place.answers is 'SQL that finds the rows of the leaf that refer to its row at d.at and so keep it; null if there are none.';

-- What a batch did. pass_over: the pass has ended; without it the batch ended because of its limit, its time, or that it has only one portion.
create type lapse.outcome as (
  picked bigint, deleted bigint, finished boolean, left_behind boolean, by_relation jsonb, pass_over boolean, quarantined bigint,
  locker int, portions int, slept float8, took float8
);
comment on type lapse.outcome is 'What a batch did.';
comment on column lapse.outcome.picked is 'Rows that were found due and locked.';
comment on column lapse.outcome.deleted is 'Rows that were deleted from the target.';
comment on column lapse.outcome.finished is 'Whether the shard is done.';
comment on column lapse.outcome.left_behind is 'Whether due rows were left because other sessions had locked them, or changed or moved them meanwhile.';
comment on column lapse.outcome.by_relation is 'Rows deleted, by the relation''s oid, cascades included.';
comment on column lapse.outcome.pass_over is 'Whether the pass has ended; otherwise the batch had reached its limit or its time, or may have only one portion.';
comment on column lapse.outcome.quarantined is 'Rows that a careful batch entered in the quarantine.';
comment on column lapse.outcome.locker is 'A server process that locks rows that the batch left.';
comment on column lapse.outcome.portions is 'How many portions it had.';
comment on column lapse.outcome.slept is 'Seconds of its pauses.';
comment on column lapse.outcome.took is 'Seconds of its quickest portion; null: the first one ended the pass.';

-- What the portions of a batch did until now. A batch is one transaction, but may find rows and delete them several times, some at a time, with
-- pauses between, so that others need not share the server with it for long.
create type lapse.portions as (
  number int, picked bigint, deleted bigint, behind boolean, in_file boolean, over boolean, began timestamptz, slept float8, took float8
);
comment on type lapse.portions is 'What the portions of a batch did until now.';
comment on column lapse.portions.number is 'How many have ended; null: none has begun.';
comment on column lapse.portions.picked is 'Rows that were found due and locked.';
comment on column lapse.portions.deleted is 'Rows that were deleted from the target.';
comment on column lapse.portions.behind is 'Whether due rows were left because other sessions had locked them, or changed or moved them meanwhile.';
comment on column lapse.portions.in_file is 'Whether one found rows in the order of the table''s file.';
comment on column lapse.portions.over is 'Whether that was the last.';
comment on column lapse.portions.began is 'When the next one begins.';
comment on column lapse.portions.slept is 'Seconds of pauses.';
comment on column lapse.portions.took is 'Seconds of the quickest; null: the first one ended the pass.';

-- What lock_along found for some rows of a leaf: those for which it locked everything that a cascade deletes; those that rows that stay
-- refer to, each with the foreign key; and a process that has locked something of the others.
create type lapse.along as (free tid[], referred tid[], keys oid[], locker int, locked oid[]);
comment on type lapse.along is 'What a batch found along foreign keys.';
comment on column lapse.along.free is 'Rows for which the batch has locked everything that a cascade would delete.';
comment on column lapse.along.referred is 'Rows that are referred to by rows that stay.';
comment on column lapse.along.keys is 'The foreign key of each.';
comment on column lapse.along.locker is 'A server process that locks rows that a cascade would delete with the other rows.';
comment on column lapse.along.locked is 'The relation of each row that a cascade deletes with a free one.';

-- How the DELETE of a batch finds its rows, as values from lapse.find_<id>_<version>. The DELETE restates the whole condition, so these
-- values can only make it delete less.
--
--   found_by  'place': a range of the order, above after and up to last; 'tie': the same, where both have the same first value; 'page': a
--             range of the table's file; 'row': the rows at rows_at, which lapse.lock_rows locks first; 'beside': the rows that
--             belong to those at rows_at of the relation that says when they are due, which the DELETE locks first
create type lapse.aim as (
  found_by text, after text[], last text[], rows_at tid[], counted bigint, ended boolean, more boolean, again boolean, quarantined bigint, locker int,
  key text[], locked oid[]
);
comment on type lapse.aim is 'How the DELETE of a batch finds its rows, by values.';
comment on column lapse.aim.found_by is 'place, tie, page, row or beside.';
comment on column lapse.aim.after is 'The range begins after this place; null: at the start.';
comment on column lapse.aim.last is 'The last place of the range, where the next batch continues.';
comment on column lapse.aim.rows_at is 'The addresses of the rows, or of rows of the relation that says when they are due.';
comment on column lapse.aim.counted is 'How many rows were found.';
comment on column lapse.aim.ended is 'Whether the pass ends with these rows.';
comment on column lapse.aim.more is 'Whether due rows are left out because other sessions have locked them.';
comment on column lapse.aim.again is 'Whether the next batch must begin where this one does: rows that refer to this one''s are deleted first.';
comment on column lapse.aim.quarantined is 'Rows that were entered in the quarantine.';
comment on column lapse.aim.locker is 'A server process that locks rows that are left out.';
comment on column lapse.aim.key is 'The key of the one row that a batch steps over if it resists.';
comment on column lapse.aim.locked is 'The relation of each row that was locked because a cascade deletes it; null if none was.';

create table lapse.batch (
  batch             uuid primary key,
  policy_id         int not null,
  policy            text not null check (octet_length(policy) <= 63),
  policy_version    int not null,
  run               uuid not null,
  cutoff            timestamptz not null,
  hold_version      bigint not null,
  target            oid not null,
  cascades          oid[] not null check (cardinality(cascades) <= 100000),
  functions         bytea not null check (octet_length(functions) = 32),
  system_identifier text not null check (octet_length(system_identifier) <= 20),
  database_oid      oid not null,
  history           int not null,
  timeline          int not null,
  xid               xid8 not null,
  started_at        timestamptz not null,
  mac               bytea not null check (octet_length(mac) = 32),
  soft              boolean not null default false,
  hashed            boolean not null default false,
  told              jsonb check (octet_length(told::text) <= 32768),
  due               jsonb check (octet_length(due::text) <= 32768)
);
create index batch_started_at on lapse.batch (started_at);
create trigger append_only before update or truncate on lapse.batch
  for each statement execute function lapse.refuse_change();
comment on table lapse.batch is 'The ledger: what each batch that deleted rows said about itself beforehand, append-only and published. Written by record, in the transaction that deletes.';
comment on column lapse.batch.batch is 'Identifier of the batch; events name it.';
comment on column lapse.batch.policy_id is 'The policy.';
comment on column lapse.batch.policy is 'Its name.';
comment on column lapse.batch.policy_version is 'Its version.';
comment on column lapse.batch.run is 'The run.';
comment on column lapse.batch.cutoff is 'The run deletes what is due at this instant.';
comment on column lapse.batch.hold_version is 'Number of the last change of legal holds that the batch knew of.';
comment on column lapse.batch.target is 'The table or partition that it deletes from.';
comment on column lapse.batch.cascades is 'Relations in which foreign keys may delete rows too.';
comment on column lapse.batch.functions is 'HMAC by the tag key over the text of the functions that ran.';
comment on column lapse.batch.system_identifier is 'The cluster''s system identifier.';
comment on column lapse.batch.database_oid is 'The database.';
comment on column lapse.batch.history is 'Number of the database''s history.';
comment on column lapse.batch.timeline is 'The server''s timeline.';
comment on column lapse.batch.xid is 'The transaction.';
comment on column lapse.batch.started_at is 'When the transaction began.';
comment on column lapse.batch.mac is 'MAC over all of this, by the tag key, which is not in the database: it makes the deletions system deletes to the auditor.';
comment on column lapse.batch.soft is 'Whether the batch sets a column of the target''s rows, and deletes none.';
comment on column lapse.batch.hashed is 'Whether the batch''s events have keyed hashes instead of the rows'' keys.';
comment on column lapse.batch.told is 'The columns whose values the batch''s events contain, in addition to the key; null for none.';
comment on column lapse.batch.due is 'How the auditor computes from the log whether a row was due; null if it does not.';

create table lapse.batch_result (
  batch       uuid primary key,
  picked      bigint not null,
  deleted     bigint not null,
  by_relation jsonb not null,
  finished_at timestamptz not null default clock_timestamp()
);
create trigger append_only before update or truncate on lapse.batch_result
  for each statement execute function lapse.refuse_change();
comment on table lapse.batch_result is 'What each batch did, append-only and published. Written by leave, last in the transaction that deletes.';
comment on column lapse.batch_result.batch is 'The batch.';
comment on column lapse.batch_result.picked is 'Rows that were found due and locked.';
comment on column lapse.batch_result.deleted is 'Rows that were deleted from the target.';
comment on column lapse.batch_result.by_relation is 'Rows deleted, by the relation''s oid, cascades included.';
comment on column lapse.batch_result.finished_at is 'When.';

-- pin restores the settings of the function that calls it. Code of the table's owner may have run in the statement before (a function in an
-- index, a check, a cast), and its settings outlast the calling function's SET clause: another search_path would change what the text of the
-- next statement means, another time zone which rows are due. Only SET, which names no function and no operator, is safe until the search
-- path is set. After that the others are compared first, since ten SETs cost five times as much. pin must not have a SET clause of its own.
create function lapse.pin() returns void
language plpgsql
as $lapse$
begin
  set local search_path = pg_catalog, pg_temp;
  if current_setting('timezone') <> 'UTC' or current_setting('datestyle') <> 'ISO, YMD' or current_setting('intervalstyle') <> 'postgres'
     or current_setting('extra_float_digits') <> '1' or current_setting('standard_conforming_strings') <> 'on'
     or current_setting('quote_all_identifiers') <> 'off' or current_setting('transform_null_equals') <> 'off'
     or current_setting('array_nulls') <> 'on' or current_setting('bytea_output') <> 'hex' or current_setting('row_security') <> 'off'
     or current_setting('timezone_abbreviations') <> 'Default' then
    set local timezone = 'UTC';
    set local datestyle = 'ISO, YMD';
    set local intervalstyle = 'postgres';
    set local extra_float_digits = 1;
    set local standard_conforming_strings = on;
    set local quote_all_identifiers = off;
    set local transform_null_equals = off;
    set local array_nulls = on;
    set local bytea_output = hex;
    set local row_security = off;
    set local timezone_abbreviations = 'Default'; -- reads a file
  end if;
end
$lapse$;
comment on function lapse.pin is 'Restores the settings of the function that calls it.';

-- next_portion adds the portion of a batch that has ended to the others, pauses as the batch was told, which gives the server to others while its
-- locks stay, and says whether that was the last one. Before the first portion it pauses for what came before.
create function lapse.next_portion(portions lapse.portions, work lapse.work, aim lapse.aim, gone bigint) returns lapse.portions
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  ended timestamptz := clock_timestamp();
  took  float8 := greatest(extract(epoch from ended - coalesce(portions.began, statement_timestamp())), 0); -- a clock can be set back
begin
  if portions.number is null then
    portions := row(0, 0, 0, false, false, false, null, 0, null);
  else
    portions.number := portions.number + 1;
    portions.picked := portions.picked + greatest(aim.counted, gone);
    portions.deleted := portions.deleted + gone;
    portions.behind := portions.behind or aim.more or aim.found_by in ('page', 'tie', 'beside') and aim.counted > gone;
    portions.in_file := portions.in_file or aim.last[2] is not null;
    portions.over := aim.ended or aim.found_by = 'row' or portions.number >= coalesce(work.portions, 1)
      -- a batch may take ten times its time; one in portions ends when that is used up once, so that no portion is in vain
      or coalesce(ended > statement_timestamp() + nullif(current_setting('statement_timeout')::interval, '0') / 10, false);
    if not aim.ended then
      portions.took := least(portions.took, took);
    end if;
  end if;
  portions.began := ended;
  if work.pause > 0 and has_function_privilege('pg_sleep(float8)', 'execute') then
    perform pg_sleep(least(took * work.pause, 0.1));
    portions.began := clock_timestamp();
    portions.slept := portions.slept + greatest(extract(epoch from portions.began - ended), 0);
  end if;
  return portions;
end
$lapse$;
comment on function lapse.next_portion is 'Counts a batch''s portion that has ended, pauses, and says whether another one follows.';

create function lapse.enter(claim lapse.claim, work lapse.work, policy int, version int, largest int, proof bytea) returns lapse.place
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  gate  record;
  shard record;
  audit record;
  leaf  text;
  fault text;
  low   timestamptz;
  began timestamptz;
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may delete', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'a batch runs under read committed, not %', current_setting('transaction_isolation')
      using errcode = 'LP001';
  end if;
  if current_setting('track_counts') <> 'on' then
    raise exception 'track_counts is off, so that what triggers delete beside us would go unseen'
      using errcode = 'LP010', hint = 'alter system set track_counts = on';
  end if;
  if current_setting('session_replication_role') <> 'origin' then
    raise exception 'session_replication_role is %, so that foreign keys would not be checked',
      current_setting('session_replication_role') using errcode = 'LP013';
  end if;

  -- The lock is a statement of its own: what is read below is what was in force when the lock was granted.
  lock table lapse.gate in row share mode;
  select g.version, g.state, g.hold_version, i.slot, i.audit_required, coalesce(i.doubted, 0) as doubted,
         (select h.halted from lapse.halt h order by h.id desc limit 1) as halted,
         (select d.oid from pg_database d where d.datname = current_database()) as database,
         h.number as history, h.timeline as history_timeline, h.system_identifier as history_system
    into gate
    from lapse.gate g, lapse.installation i, (select * from lapse.history n order by n.number desc limit 1) h
   where g.policy_id = enter.policy;
  if gate.halted then
    raise exception 'every deletion in this database is paused' using errcode = 'LP014';
  end if;
  if claim.policy_id is distinct from enter.policy or claim.policy_version is distinct from enter.version
     or gate.version is distinct from enter.version or gate.state is distinct from 'armed'
     or gate.hold_version is distinct from claim.hold_version then
    raise exception 'policy % version % at hold version % is not in force, but version %, %, at hold version %',
      enter.policy, enter.version, claim.hold_version, gate.version, gate.state, gate.hold_version using errcode = 'LP002';
  end if;

  if claim.xid is distinct from pg_current_xact_id() or claim.started_at is distinct from now()
     or claim.database_oid is distinct from gate.database then
    raise exception 'the claim is of another transaction or database' using errcode = 'LP009';
  end if;
  if claim.history is distinct from gate.history or claim.timeline is distinct from lapse.timeline() then
    raise exception 'the claim is of history %, timeline %; in force are %, %', claim.history, claim.timeline, gate.history,
      lapse.timeline() using errcode = 'LP019';
  end if;
  if not gate.audit_required
     and (gate.history_timeline is distinct from claim.timeline or gate.history_system is distinct from lapse.system_identifier()) then
    raise exception 'history % was accepted on another timeline or another server', gate.history
      using errcode = 'LP019', hint = 'lapse history accept --reason TEXT';
  end if;
  if claim.cutoff is null or claim.cutoff > clock_timestamp() then
    raise exception 'the cutoff lies in the future' using errcode = 'LP003';
  end if;
  if work.row_limit is null or work.row_limit not between 1 and enter.largest
     or coalesce(work.portions, 1) not between 1 and enter.largest / work.row_limit then
    raise exception 'the row limit is not between 1 and %', enter.largest using errcode = 'LP004';
  end if;
  if gate.audit_required then
    select s.datoid, s.wal_status,
           exists (
             select from lapse.heartbeat b
              where b.at between clock_timestamp() - interval '2 minutes' and clock_timestamp() + interval '2 minutes'
                and b.history = claim.history and b.timeline = claim.timeline and b.server_start = pg_postmaster_start_time()
                and b.database_oid = claim.database_oid and b.id > gate.doubted) as here
      into audit
      from pg_get_replication_slots() s
     where s.slot_name = gate.slot;
    if audit.datoid is distinct from gate.database or audit.wal_status is not distinct from 'lost' then
      raise exception 'replication slot % is not there, so that nobody would see what is deleted', gate.slot
        using errcode = 'LP015';
    end if;
    -- An auditor that checked this server as it is, lately. What the database says of itself proves nothing after a restore.
    if not audit.here then
      raise exception 'the auditor has not said within two minutes that it reads this server in this history'
        using errcode = 'LP020';
    end if;
    fault := lapse.publications_fault();
    if fault is not null then
      raise exception '%', fault using errcode = 'LP021';
    end if;
  end if;

  update lapse.shard s
     set entered = pg_current_xact_id(), batch = claim.batch
   where s.id = work.shard and s.holder = work.holder and s.term = work.term and s.lease_until > clock_timestamp()
     and s.policy_id = enter.policy and s.version = enter.version and s.run = claim.run and s.leaf = claim.target
     and s.cutoff = claim.cutoff and not s.done and not s.aside and s.entered is distinct from pg_current_xact_id()
  returning case when s.in_heap = coalesce(work.shape in ('heap', 'heap pick'), false) then s.cursor end as cursor, s.pass, s.lower::text[] as lower, s.upper::text[] as upper, s.modulus, s.remainder into shard;
  if not found then
    raise exception 'the lease on shard % is lost, or the shard is not of this claim', work.shard using errcode = 'LP007';
  end if;
  leaf := claim.target::regclass; -- with its schema, since no user's table is in pg_catalog
  if leaf = claim.target::text then
    raise exception 'relation % is gone', claim.target using errcode = 'LP005';
  end if;
  perform lapse.check_caller(enter.policy, enter.version, enter.proof); -- what check_leaf returns says which rows are held
  if shard.cursor is null then
    select m.upto, m.full_at into low, began from lapse.low_mark(enter.policy, enter.version, claim.target) m;
    update lapse.shard s set full_at = coalesce(began, clock_timestamp()) where s.id = work.shard;
  end if;
  return row(leaf, shard.cursor, shard.pass, shard.lower, shard.upper, shard.modulus, shard.remainder, null::text, low, null::jsonb, null::text);
end
$lapse$;
comment on function lapse.enter is 'Admits a batch or refuses it: checks claim, gate, lease, clock and auditor. First in every deletion function.';

-- check_leaf checks that the leaf, which is locked, is unchanged since apply. leaf is the name that was locked.
create function lapse.check_leaf(claim lapse.claim, work lapse.work, leaf text, out spared text, out ways jsonb, out answers text) returns record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  shard record;
  found_so record;
  held text;
begin
  select s.policy_id, s.version, s.seen into shard
    from lapse.shard s
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target;
  if not found or not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  found_so := lapse.familiar(shard.policy_id, shard.version, claim.target);
  if found_so.signature is null then
    select * into found_so from lapse.keep(shard.policy_id, shard.version, array[claim.target]);
  end if;
  if found_so.name is distinct from check_leaf.leaf then
    raise exception '% is not a leaf of the policy''s table', check_leaf.leaf using errcode = 'LP005';
  end if;
  held := lapse.held(shard.policy_id, shard.version, claim.target);
  if found_so.touched is distinct from claim.cascades then
    raise exception 'the relations that foreign keys reach are not those of the claim' using errcode = 'LP002';
  end if;
  spared := concat_ws(' or ', held, lapse.quarantined(shard.policy_id, shard.version, claim.target));
  if held is not null or work.careful then
    ways := lapse.to_lock(shard.policy_id, shard.version, claim, coalesce(work.careful, false));
    answers := case when ways is not null then lapse.answers(claim.target, ways) end;
  end if;
  if spared <> '' or ways is not null or claim.cascades <> '{}' or shard.seen is not null then
    update lapse.shard s
       set seen = case when ways is not null or claim.cascades <> '{}' then found_so.signature end, left_some = s.left_some or spared <> ''
     where s.id = work.shard;
  end if;
end
$lapse$;
comment on function lapse.check_leaf is 'Checks that the leaf, which is locked, is unchanged since apply.';

-- record writes the ledger row, which is the transaction's first published change, and the tag for other readers of the log. It returns how
-- many rows of the target and of the claim's relations this session had deleted before.
create function lapse.record(claim lapse.claim, mac bytea, work lapse.work) returns lapse.tally
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  soft   boolean;
  hashed boolean;
  told   jsonb;
  due    jsonb;
begin
  select g.soft, coalesce(p.spec -> 'events' ->> 'values' = 'hashed_keys', false), p.spec -> 'events' -> 'columns', p.spec -> 'due'
    into soft, hashed, told, due
    from lapse.shard s
    join lapse.gate g on g.policy_id = s.policy_id
    join lapse.policy p on p.id = g.policy_id and p.version = g.version
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target;
  if soft is null or not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  insert into lapse.batch (batch, policy_id, policy, policy_version, run, cutoff, hold_version, target, cascades, functions,
                           system_identifier, database_oid, history, timeline, xid, started_at, mac, soft, hashed, told, due)
  values (claim.batch, claim.policy_id, claim.policy, claim.policy_version, claim.run, claim.cutoff, claim.hold_version,
          claim.target, claim.cascades, claim.functions, claim.system_identifier, claim.database_oid, claim.history,
          claim.timeline, claim.xid, claim.started_at, record.mac, soft, hashed, told, due);
  perform pg_logical_emit_message(true, 'lapse', jsonb_build_object(
    'transaction_tag', 'RowDeletionPolicy', 'is_system_transaction', true, 'policy', claim.policy,
    'version', claim.policy_version, 'run', claim.run, 'batch', claim.batch, 'cutoff', claim.cutoff)::text);
  return lapse.tally_of(claim);
end
$lapse$;
comment on function lapse.record is 'Writes the ledger row of a batch before it deletes.';

-- tally_of reads the tally of a batch. Rows that a rolled-back subtransaction deleted count too.
create function lapse.tally_of(claim lapse.claim) returns lapse.tally
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  t lapse.tally;
begin
  t.relations := claim.target || claim.cascades;
  if exists (select from lapse.policy p where p.id = claim.policy_id and p.version = claim.policy_version and p.trusted <> '[]') then
    t.relations := t.relations || array(
      select r.relation
        from (select l.relation from lapse.enforced_holds() e cross join lateral lapse.leaves(e.table_oid) l
              union
              select r.relation from lapse.enforced_holds() e join lapse.hold_relation r on r.hold = e.hold) r(relation)
       where r.relation <> all (t.relations));
  end if;
  if cardinality(t.relations) = 1 then
    t.deleted := array[coalesce(pg_stat_get_xact_tuples_deleted(claim.target), 0)];
  else
    t.deleted := array(select coalesce(pg_stat_get_xact_tuples_deleted(r.oid), 0) from unnest(t.relations) with ordinality r(oid, n) order by r.n);
  end if;
  t.updated := coalesce(pg_stat_get_xact_tuples_updated(claim.target), 0);
  return t;
end
$lapse$;
comment on function lapse.tally_of is 'Counts the rows of a batch''s relations that this session has deleted or updated so far.';

-- leave counts what was deleted, writes the result and moves the shard on. picked rows were found and locked, and deleted of them were
-- deleted. before is what record returned; null if nothing was picked. last is the place of the last row picked. left_behind: due rows
-- are left because other sessions have locked them, or changed or moved them meanwhile.
--
-- A short pick ends a pass. After the first pass comes a residual one from the start, for rows that were locked or moved during it, unless
-- the first pass was a single portion of a batch that deleted all that it found. A slice has one pass: the residual shard of its leaf finds such rows.
create function lapse.leave(
  claim lapse.claim, work lapse.work, portions lapse.portions, before lapse.tally, last text[], ended boolean, locked oid[]
) returns lapse.outcome
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  shard  record;
  went   bigint := 0;
  along  bigint := 0;
  counts jsonb := '{}';
  strayed text;
  at_end boolean := coalesce(leave.ended, true);
  behind boolean;
  over   boolean;
begin
  select s.run, s.pass, s.picked, s.cursor, s.left_behind, s.policy_id, s.version, s.seen, s.residual, g.soft,
         num_nonnulls(s.lower, s.upper, s.modulus) > 0 as sliced into shard
    from lapse.shard s
    join lapse.gate g on g.policy_id = s.policy_id
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target;
  if not found or not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  if portions.picked > 0 then
    -- Somebody may have added a foreign key or a partition below what the batch had locked, and rows went along that were not asked about.
    if shard.seen is not null and (lapse.familiar(shard.policy_id, shard.version, claim.target)).signature is distinct from shard.seen then
      raise exception 'the relations that foreign keys reach were changed while the batch ran' using errcode = 'LP002';
    end if;
    -- The target is the first of the relations, and what cascades reach follows.
    went := case when shard.soft then coalesce(pg_stat_get_xact_tuples_updated(claim.target), 0) - (leave.before).updated
                 else coalesce(pg_stat_get_xact_tuples_deleted(claim.target), 0) - (leave.before).deleted[1] end;
    if went > 0 then
      counts := jsonb_build_object(claim.target::text, went);
    end if;
    if claim.cascades <> '{}' and not shard.soft then
      select coalesce(sum(n.went), 0), counts || coalesce(jsonb_object_agg(n.oid::text, n.went) filter (where n.went > 0), '{}')
        into along, counts
        from (select b.oid, coalesce(pg_stat_get_xact_tuples_deleted(b.oid), 0) - b.deleted as went
                from unnest((leave.before).relations, (leave.before).deleted) b(oid, deleted)
               where b.oid = any (claim.cascades) and b.oid <> claim.target) n;
    end if;
    if shard.soft and coalesce(pg_stat_get_xact_tuples_deleted(claim.target), 0) is distinct from (leave.before).deleted[1] then
      raise exception 'rows were deleted from relation % where a column is set', claim.target using errcode = 'LP008';
    end if;
    if cardinality((leave.before).relations) > 1 then
      strayed := lapse.strayed(claim, leave.before, leave.locked);
    end if;
    if strayed is not null then
      raise exception '%', strayed using errcode = 'LP024';
    end if;
    -- Of code that the policy trusts too: what it deletes here would go under the policy's name, due or not.
    if went is distinct from portions.deleted then
      raise exception '% rows left relation % where the statement deleted %', went, claim.target, portions.deleted
        using errcode = 'LP008';
    end if;
    insert into lapse.batch_result (batch, picked, deleted, by_relation)
    values (claim.batch, portions.picked, portions.deleted, counts);
    -- A batch's row that others can see is on disk, if only this server's. After a crash the transaction id of another
    -- is given out again, and a copy of the row would prove what is deleted under it. No code of the table's runs from here on.
    if current_setting('synchronous_commit') = 'off' then
      perform set_config('synchronous_commit', 'local', true);
    end if;
  end if;
  behind := shard.left_behind or coalesce(portions.behind, false);
  over := at_end and (shard.sliced or shard.pass = 2 or shard.picked + portions.picked = 0
                      or shard.picked = 0 and shard.cursor is null and not behind and portions.picked = portions.deleted
                         and portions.number = 1); -- between portions a row can move to where the pass has been
  update lapse.shard s
     set batch = null,
         cursor = case when at_end then null else leave.last end, in_heap = coalesce(work.shape in ('heap', 'heap pick'), false),
         pass = case when at_end then 2 else s.pass end,
         picked = s.picked + portions.picked, deleted = s.deleted + portions.deleted,
         batches = s.batches + (portions.picked > 0)::int, cascaded = s.cascaded + along,
         refreshed = s.refreshed + case when work.step_over then 0 else greatest(portions.picked - portions.deleted, 0) end,
         done = over, left_behind = behind and (over or not at_end),
         left_some = (s.left_some or behind or portions.picked > portions.deleted or coalesce(work.shape in ('heap', 'heap pick'), false) or portions.in_file or leave.last[2] is not null) and (over or not at_end),
         lease_until = clock_timestamp() + lapse.lease_time()
   where s.id = work.shard;
  if over and shard.residual then -- it has tried again what the slices of its leaf left
    update lapse.shard s set left_behind = false where s.run = shard.run and s.leaf = claim.target and s.done and s.left_behind and not s.residual;
  end if;
  return row(portions.picked, portions.deleted, over, over and behind, counts, at_end, null::bigint, null::int, portions.number, portions.slept, portions.took);
end
$lapse$;
comment on function lapse.leave is 'Counts what a batch deleted, writes its result and moves the shard on. Last in every deletion function.';
