begin;
set local role "app";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock
set local timezone = 'UTC';
set local intervalstyle = 'postgres';
set local datestyle = 'ISO, YMD';

-- Whether a row is due at this moment, by the condition of the policy.
create or replace function "shop"."lapse_due_Or'ders"(t "shop"."Or'ders") returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
set timezone = 'UTC' -- months and days are counted as policies count them
as $lapse$
begin
  return (case when t."closed""at" between '4713-01-01 BC' and ((now() - interval '7 years' + interval '4 days' + interval '2 days') at time zone 'UTC') then (t."closed""at" at time zone 'Europe/Berlin') + interval '7 years' <= now() else false end) is true;
end
$lapse$;

-- Rows that are due are there for nobody but the table's owner, and the deleter, which has the owner's rights. Not with FORCE ROW
-- LEVEL SECURITY: the deleter would be told that it cannot see all rows, and its policy would stop.
-- Row security was off: everybody keeps seeing all other rows.
drop policy if exists lapse_all on "shop"."Or'ders";
create policy lapse_all on "shop"."Or'ders" as permissive for all to public using (true) with check (true);
drop policy if exists lapse_hide_due on "shop"."Or'ders";
create policy lapse_hide_due on "shop"."Or'ders" as restrictive for all to public
  using (not "shop"."lapse_due_Or'ders"("Or'ders".*)) with check (true);
alter table "shop"."Or'ders" enable row level security;
commit;

begin;
set local role "app";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock

alter table "shop"."Or'ders" disable row level security;
drop policy if exists lapse_hide_due on "shop"."Or'ders";
drop policy if exists lapse_all on "shop"."Or'ders";

-- View and row security ask the same function: it goes with the last of them.
do $lapse$
begin
  drop function if exists "shop"."lapse_due_Or'ders"("shop"."Or'ders");
exception when dependent_objects_still_exist then null;
end
$lapse$;
commit;
