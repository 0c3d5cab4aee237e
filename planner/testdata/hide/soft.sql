begin;
set local role "app";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock
set local timezone = 'UTC';
set local intervalstyle = 'postgres';
set local datestyle = 'ISO, YMD';

-- Whether a row is due at this moment, by the condition of the policy, or is deleted softly.
create or replace function "public"."lapse_due_docs"(t "public"."docs") returns boolean
language sql stable
return not (t."dele""ted'at" IS NULL) or (coalesce(t."at" <= (now() - interval '720:00:00') and t."at" >= '4713-01-01 BC', false)) is true;

-- The table without the rows that are due. Those who may read the table may read it.
create or replace view "public"."docs_live" with (security_barrier = true) as
  select t."id"
    from "public"."docs" as t
   where not "public"."lapse_due_docs"(t.*);
comment on view "public"."docs_live" is 'made by lapse hide';
commit;

begin;
set local role "app";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock

drop view if exists "public"."docs_live";

-- View and row security ask the same function: it goes with the last of them.
do $lapse$
begin
  drop function if exists "public"."lapse_due_docs"("public"."docs");
exception when dependent_objects_still_exist then null;
end
$lapse$;
commit;
