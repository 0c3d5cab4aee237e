-- A beat also says up to where the log was written when it looked at the publications. Whoever changes them between that
-- look and the beat's commit is found by the next beat only, and what was deleted meanwhile lies below the former beat's end.

alter table lapse.heartbeat add column looked_at pg_lsn; -- null in rows of version 3

-- beat is the auditor's sign of life. One row a minute, kept for a day, and the newest thousand for ever: by them logs and
-- databases are compared. Published, so that it also moves an idle slot. What the auditor looked at must be this server, in
-- the history that is in force. Each names the one before it: one at a time, in the order in which they commit.
drop function lapse.beat(uuid, int, int, timestamptz);
create function lapse.beat(nonce uuid, history int, timeline int, server_start timestamptz) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  newest    int := (select n.number from lapse.history n order by n.number desc limit 1);
  looked_at pg_lsn;
begin
  if beat.history is distinct from newest or beat.timeline is distinct from lapse.timeline()
     or beat.server_start is distinct from pg_postmaster_start_time() then
    raise exception 'the beat is of history %, timeline %, a server that started at %; in force are %, %, %', beat.history,
      beat.timeline, beat.server_start, newest, lapse.timeline(), pg_postmaster_start_time() using errcode = 'LP019';
  end if;
  lock table lapse.heartbeat in share row exclusive mode;
  delete from lapse.heartbeat h
   where h.at < clock_timestamp() - interval '1 day'
     and h.id < (select k.id from lapse.heartbeat k order by k.id desc offset 999 limit 1);
  looked_at := pg_current_wal_insert_lsn(); -- before the next statement's snapshot: what it does not see commits above
  insert into lapse.heartbeat
    (system_identifier, database_oid, database, nonce, former, history, timeline, server_start, looked_at, fault, faults)
  select lapse.system_identifier(), d.oid, d.datname, beat.nonce,
         (select k.nonce from lapse.heartbeat k order by k.id desc limit 1), beat.history, beat.timeline, beat.server_start, looked_at,
         coalesce(lapse.publications_fault(), lapse.publications_unlogged()), i.publication_faults
    from pg_database d, lapse.installation i
   where d.datname = current_database();
end
$lapse$;
revoke all on function lapse.beat(uuid, int, int, timestamptz) from public;
grant execute on function lapse.beat(uuid, int, int, timestamptz) to {{.Auditor}};
