begin;
set local role "app";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock

-- A row is due "ttl_seconds" after "created_at": "expires_at" is computed from the two. A row without them never goes: those
-- that are there now have none.
alter table "app"."sessions" add column if not exists "ttl_seconds" bigint;
comment on column "app"."sessions"."ttl_seconds" is 'made by lapse scaffold';
alter table "app"."sessions" add column if not exists "expires_at" timestamp with time zone;
comment on column "app"."sessions"."expires_at" is 'made by lapse scaffold';
alter table "app"."sessions" alter column "ttl_seconds" set default 86400;

create or replace function "app"."lapse_expire_sessions"() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC' -- months and days are counted as policies count them
as $lapse$
begin
  new."expires_at" := case
    when new.ttl_seconds between 0 and 186624000000 -- 6000 years; NULL and what is negative mean never
     and new.created_at > '-infinity' and new.created_at < '10000-01-01'
    then new.created_at + new.ttl_seconds * interval '1 second' end;
  return new;
end
$lapse$;

create or replace trigger lapse_expire_insert before insert on "app"."sessions"
  for each row execute function "app"."lapse_expire_sessions"();

-- An UPDATE restarts the time.
create or replace function "app"."lapse_refresh_sessions"() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC' -- months and days are counted as policies count them
as $lapse$
begin
  new."expires_at" := case
    when new.ttl_seconds between 0 and 186624000000 -- 6000 years; NULL and what is negative mean never
     and new.created_at > '-infinity' and new.created_at < '10000-01-01'
    then now() + new.ttl_seconds * interval '1 second' end;
  return new;
end
$lapse$;

create or replace trigger lapse_expire_update before update on "app"."sessions"
  for each row execute function "app"."lapse_refresh_sessions"();
commit;

-- For the policy file:
--
-- policies:
--   - name: sessions-expiry
--     table: '"app"."sessions"'
--     expire: { column: 'expires_at', after: 0 days }

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
commit;

