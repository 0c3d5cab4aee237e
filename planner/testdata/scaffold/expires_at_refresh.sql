begin;
set local role "an owner";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock

-- A row goes when "due ""at""" is past. One that has none never goes: those that are there now have none.

create or replace function "App'x"."lapse_expire_Ta""ble"() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC' -- months and days are counted as policies count them
as $lapse$
begin
  if new."due ""at""" is null then
    new."due ""at""" := now() + interval '1 mon 2 days';
  end if;
  return new;
end
$lapse$;

create or replace trigger lapse_expire_insert before insert on "App'x"."Ta""ble"
  for each row execute function "App'x"."lapse_expire_Ta""ble"();

-- An UPDATE restarts the time, unless it sets another one itself.
create or replace function "App'x"."lapse_refresh_Ta""ble"() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC' -- months and days are counted as policies count them
as $lapse$
begin
  if new."due ""at""" is null or new."due ""at""" = old."due ""at""" then
    new."due ""at""" := now() + interval '1 mon 2 days';
  end if;
  return new;
end
$lapse$;

create or replace trigger lapse_expire_update before update on "App'x"."Ta""ble"
  for each row execute function "App'x"."lapse_refresh_Ta""ble"();
commit;

-- For the policy file:
--
-- policies:
--   - name: ta-ble-expiry
--     table: '"App''x"."Ta""ble"'
--     expire: { column: 'due "at"', after: 0 days }

-- For the rows that were there before. Run this as an owner, not as a superuser, and outside a transaction: the table's own
-- triggers run in it. It commits every thousand blocks, and can be stopped and run again.
set search_path = pg_catalog, pg_temp;
do $lapse$
declare
  leaf  text;
  block bigint;
begin
  leaf := '"App''x"."Ta""ble_1"';
  for block in select generate_series(0, pg_relation_size(leaf::regclass) / current_setting('block_size')::bigint, 1000) loop
    execute 'update only ' || leaf || ' t
         set "due ""at""" = now() + interval ''1 mon 2 days''
       where t.ctid >= $1 and t.ctid < $2 and t."due ""at""" is null'
      using format('(%s,0)', block)::tid, format('(%s,0)', block + 1000)::tid;
    commit;
  end loop;
end
$lapse$;
reset search_path;

begin;
set local role "an owner";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock

drop trigger if exists lapse_expire_insert on "App'x"."Ta""ble";
drop trigger if exists lapse_expire_update on "App'x"."Ta""ble";
drop function if exists "App'x"."lapse_expire_Ta""ble"(), "App'x"."lapse_refresh_Ta""ble"();
commit;

begin;
set local role "an owner";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock

drop trigger if exists lapse_expire_insert on "App'x"."Ta""ble";
drop trigger if exists lapse_expire_update on "App'x"."Ta""ble";
drop function if exists "App'x"."lapse_expire_Ta""ble"(), "App'x"."lapse_refresh_Ta""ble"();
alter table "App'x"."Ta""ble" drop column if exists "due ""at""";
commit;

