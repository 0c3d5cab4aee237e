begin;
set local role "app";
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '250ms'; -- sessions queued behind this wait no longer; run it again if it does not get the lock

-- A row goes when its entry in the sidecar is past. One without an entry never goes: those that are there now have none.
create table if not exists "app"."sessions_ttl" (
  "tenant" text collate pg_catalog."C" not null,
  "Id" bigint not null,
  "expires_at" timestamp with time zone not null,
  primary key ("tenant", "Id"),
  foreign key ("tenant", "Id") references "app"."sessions" ("tenant", "Id") on update cascade on delete cascade
);
comment on table "app"."sessions_ttl" is 'made by lapse scaffold';
create index if not exists "lapse_sessions_ttl" on "app"."sessions_ttl" ("expires_at", "tenant", "Id");
grant select, insert, update on "app"."sessions_ttl" to web; -- may insert into the table
grant select, insert, update on "app"."sessions_ttl" to public; -- may insert into the table

create or replace function "app"."lapse_expire_sessions"() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC' -- months and days are counted as policies count them
as $lapse$
begin
  insert into "app"."sessions_ttl" as r ("tenant", "Id", "expires_at")
  values (new."tenant", new."Id", now() + interval '90 days')
  on conflict ("tenant", "Id") do update set "expires_at" = excluded."expires_at";
  return new;
end
$lapse$;

create or replace trigger lapse_expire_insert after insert on "app"."sessions"
  for each row execute function "app"."lapse_expire_sessions"();
drop trigger if exists lapse_expire_update on "app"."sessions";
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
  leaf := 'app.sessions';
  for block in select generate_series(0, pg_relation_size(leaf::regclass) / current_setting('block_size')::bigint, 1000) loop
    execute 'insert into "app"."sessions_ttl" ("tenant", "Id", "expires_at")
      select t."tenant", t."Id", now() + interval ''90 days'' from only ' || leaf || ' t
       where t.ctid >= $1 and t.ctid < $2
      on conflict ("tenant", "Id") do nothing'
      using format('(%s,0)', block)::tid, format('(%s,0)', block + 1000)::tid;
    commit;
  end loop;
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

