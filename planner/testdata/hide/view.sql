begin;
set local role "app";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock
set local timezone = 'UTC';
set local intervalstyle = 'postgres';
set local datestyle = 'ISO, YMD';

-- Whether a row is due at this moment, by the condition of the policy.
create or replace function "public"."lapse_due_sessions"(t "public"."sessions") returns boolean
language sql stable
return (coalesce(t."last_seen" <= (now() - interval '720:00:00') and t."last_seen" >= '4713-01-01 BC', false)) is true;

-- The table without the rows that are due. Those who may read the table may read it.
create or replace view "public"."sessions_live" with (security_barrier = true, security_invoker = true) as
  select t."id", t."Last ""seen"""
    from "public"."sessions" as t
   where not "public"."lapse_due_sessions"(t.*);
comment on view "public"."sessions_live" is 'made by lapse hide';
grant select on "public"."sessions_live" to web;
commit;

begin;
set local role "app";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock

drop view if exists "public"."sessions_live";

-- View and row security ask the same function: it goes with the last of them.
do $lapse$
begin
  drop function if exists "public"."lapse_due_sessions"("public"."sessions");
exception when dependent_objects_still_exist then null;
end
$lapse$;
commit;
