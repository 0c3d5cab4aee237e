begin;
set local role "app";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock

-- A row goes when its entry in the sidecar is past. One without an entry never goes: those that are there now have none.

create or replace function "app"."lapse_expire_sessions"() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC' -- months and days are counted as policies count them
as $lapse$
begin
  insert into "app"."sessions_ttl" as r ("id", "expires_at")
  values (new."id", now() + interval '90 days')
  on conflict ("id") do update set "expires_at" = excluded."expires_at";
  return new;
end
$lapse$;

create or replace trigger lapse_expire_insert after insert on "app"."sessions"
  for each row execute function "app"."lapse_expire_sessions"();
-- An UPDATE restarts the time.
create or replace trigger lapse_expire_update after update on "app"."sessions"
  for each row execute function "app"."lapse_expire_sessions"();
drop function if exists "app"."lapse_refresh_sessions"();
commit;

-- For the policy file:
--
-- policies:
--   - name: sessions-expiry
--     table: '"app"."sessions"'
--     expire: { sidecar: '"app"."sessions_ttl"', column: 'expires_at', after: 0 days }

-- For the rows that were there before. Run this as app, not as a superuser, and outside a transaction: the table's own
-- triggers run in it. It commits every thousand blocks, and can be stopped and run again.
set search_path = pg_catalog, pg_temp;
do $lapse$
declare
  leaf  text;
  block bigint;
begin
end
$lapse$;
reset search_path;

begin;
set local role "app";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock

drop trigger if exists lapse_expire_insert on "app"."sessions";
drop trigger if exists lapse_expire_update on "app"."sessions";
drop function if exists "app"."lapse_expire_sessions"(), "app"."lapse_refresh_sessions"();
commit;

begin;
set local role "app";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock

drop trigger if exists lapse_expire_insert on "app"."sessions";
drop trigger if exists lapse_expire_update on "app"."sessions";
drop function if exists "app"."lapse_expire_sessions"(), "app"."lapse_refresh_sessions"();
drop table if exists "app"."sessions_ttl";
commit;

