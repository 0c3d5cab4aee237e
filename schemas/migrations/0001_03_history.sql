-- Which server, timeline and history this is, and the switches of a person: pause everything, accept the clock.

-- timeline returns the present timeline. pg_control_checkpoint has that of the last checkpoint: after a promotion still the old one.
create function lapse.timeline() returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int;
end
$lapse$;
comment on function lapse.timeline is 'The server''s present timeline.';

-- system_identifier returns the cluster's identifier, as claims and beats contain it.
create function lapse.system_identifier() returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return (select (case when c.system_identifier < 0 then c.system_identifier::numeric + 18446744073709551616
                       else c.system_identifier::numeric end)::text
            from pg_control_system() c);
end
$lapse$;
comment on function lapse.system_identifier is 'The cluster''s system identifier.';

-- A database's past can change: a snapshot is restored, a clone started, a standby promoted. A person then accepts this past, and that
-- begins the next history.
create table lapse.history (
  number            int primary key check (number > 0),
  nonce             uuid not null unique default gen_random_uuid(),
  log_end           text check (octet_length(log_end) <= 200),
  fork              text check (octet_length(fork) <= 200),
  timeline          int not null,
  system_identifier text not null,
  at                timestamptz not null default clock_timestamp(),
  by                text not null default session_user,
  reason            text not null check (octet_length(reason) <= 2000),
  xid               xid8 not null default pg_snapshot_xmin(pg_current_snapshot())
);
create trigger append_only before update or delete or truncate on lapse.history
  for each statement execute function lapse.refuse_change();
comment on table lapse.history is 'The pasts of this database that a person accepted, append-only: after a restore, a promotion, a copy. Written by lapse init and lapse history accept.';
comment on column lapse.history.number is 'Number of the history, from 1.';
comment on column lapse.history.nonce is 'What tells this history from one of a copy of the database.';
comment on column lapse.history.log_end is 'End of the log that the database was compared with: HISTORY/TIMELINE/LSN; null for the first.';
comment on column lapse.history.fork is 'Position up to which log and database are the same; null for the first.';
comment on column lapse.history.timeline is 'The server''s timeline when the row was written.';
comment on column lapse.history.system_identifier is 'The cluster''s system identifier then.';
comment on column lapse.history.at is 'When.';
comment on column lapse.history.by is 'Login that did it.';
comment on column lapse.history.reason is 'Why.';
comment on column lapse.history.xid is 'The oldest transaction that ran when the row was written.';

insert into lapse.history (number, timeline, system_identifier, reason)
values (1, lapse.timeline(), lapse.system_identifier(), 'installed');

-- The last row decides whether anything may be deleted in this database.
create table lapse.halt (
  id     bigint generated always as identity primary key,
  halted boolean not null,
  at     timestamptz not null default clock_timestamp(),
  by     text not null default session_user,
  reason text not null check (octet_length(reason) <= 2000),
  alarm  boolean not null default false
);
create trigger append_only before update or delete or truncate on lapse.halt
  for each statement execute function lapse.refuse_change();
alter table lapse.halt replica identity full;
comment on table lapse.halt is 'The switch that stops every deletion in this database, append-only and published: the last row counts. Written by lapse pause and resume --all, and by the auditor''s alarm.';
comment on column lapse.halt.id is 'Order of the rows.';
comment on column lapse.halt.halted is 'Whether nothing may be deleted from then on.';
comment on column lapse.halt.at is 'When.';
comment on column lapse.halt.by is 'Login that did it.';
comment on column lapse.halt.reason is 'Why.';
comment on column lapse.halt.alarm is 'Whether the auditor stopped it, because of batches that do not verify; a person paused it otherwise.';

-- alarm stops every deletion in this database until a person runs `lapse resume --all`.
create function lapse.alarm(reason text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
  insert into lapse.halt (halted, reason, alarm)
  select true, left(alarm.reason, 500), true
   where not coalesce((select h.halted and h.alarm from lapse.halt h order by h.id desc limit 1), false)
$lapse$;
comment on function lapse.alarm is 'Stops every deletion in this database until a person resumes it. For the auditor.';

-- After a jump of the server's clock a person accepts the present time. The clock is no longer compared with runs up to after_run.
create table lapse.clock (
  id        bigint generated always as identity primary key,
  accepted  timestamptz not null default clock_timestamp(),
  after_run bigint not null,
  by        text not null default session_user,
  reason    text not null check (octet_length(reason) <= 2000)
);
create trigger append_only before update or delete or truncate on lapse.clock
  for each statement execute function lapse.refuse_change();
comment on table lapse.clock is 'The instants at which a person said that the server''s clock is right, append-only. Written by lapse clock accept.';
comment on column lapse.clock.id is 'Order of the rows.';
comment on column lapse.clock.accepted is 'The clock''s time that was accepted.';
comment on column lapse.clock.after_run is 'The clock is no longer compared with runs up to this number.';
comment on column lapse.clock.by is 'Login that did it.';
comment on column lapse.clock.reason is 'Why.';
