-- A policy as the program of catalog version 4 wrote it. {{Deleter}} is the deleter's role, {{Role}} the table's owner, {{Owner}} its oid.
create role {{Deleter}};
grant {{Role}} to {{Deleter}};
grant usage on schema lapse to {{Deleter}};
grant execute on function lapse.enter(lapse.claim, lapse.work, int, int, int), lapse.look(lapse.claim, lapse.work, text),
  lapse.record(lapse.claim, bytea, lapse.work), lapse.leave(lapse.claim, lapse.work, bigint, bigint, bigint[], text[], boolean),
  lapse.inspect(int, int), lapse.pin() to {{Deleter}};
insert into lapse.deleter (role, owner) values ('{{Deleter}}', {{Owner}});
insert into lapse.policy (id, version, name, table_oid, table_name, columns, spec) values (1, 1, 'p', 'public.sessions'::regclass, 'public.sessions',
  '[{"name": "at", "type": "timestamp with time zone", "number": 2}, {"name": "id", "number": 1}]',
  '{"key": [{"name": "id", "type": "bigint", "plain": true, "number": 1}], "batch": 20, "every": "01:00:00", "action": "delete",
    "events": {"values": "keys"}, "expire": {"type": "timestamp with time zone", "after": "30 days", "column": "at", "number": 2},
    "cascades": [], "evidence": "claimed", "triggers": "refuse", "table_owner": {{Owner}}}');
insert into lapse.policy_state (policy_id, version, state) values (1, 1, 'armed');
insert into lapse.gate (policy_id, name, table_oid, version, state) values (1, 'p', 'public.sessions'::regclass, 1, 'armed');

-- Deletes rows of public.sessions that are due under policy 'p' version 1, and nothing else: one batch, the only
-- work of its transaction. lapse.enter, look, record and leave are the same for all policies. Every refusal is an error:
-- the transaction ends with nothing deleted.
create function lapse.delete_1_1(claim lapse.claim, mac bytea, work lapse.work) returns lapse.outcome
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = 'postgres'
set extra_float_digits = 1
set standard_conforming_strings = on
set quote_all_identifiers = off
set row_security = off
set jit = off
set constraint_exclusion = off
as $lapse$
declare
  place   lapse.place := lapse.enter(claim, work, 1, 1, 20);
  bound   timestamp with time zone := claim.cutoff - interval '30 days';
  rows_at tid[];
  last    text[];
  before  bigint[];
  gone    bigint := 0;
  more    boolean := false;
begin
  execute 'lock table only ' || place.leaf || ' in row exclusive mode';
  perform lapse.look(claim, work, place.leaf);
  execute 'with pick as materialized (
select t.ctid as at, t."at" as k1, t."id" as k2
  from only ' || place.leaf || ' as t
 where t."at" <= $2
   and case when t."at" between ''4713-01-01 BC'' and $2 then t."at" + interval ''30 days'' <= $1 else false end
   and t.tableoid = $5'
      || case when place.cursor is null then '' else '
   and (t."at", t."id") > (($4[1])::timestamp with time zone, ($4[2])::bigint)' end || '
 order by t."at", t."id"
 limit $3
   for update skip locked
)
select array_agg(p.at), array[((array_agg(p.k1))[count(*)])::text, ((array_agg(p.k2))[count(*)])::text] from pick p'
    into rows_at, last
    using claim.cutoff, bound, work.row_limit, place.cursor, claim.target;
  perform lapse.pin();
  if rows_at is not null then
    before := lapse.record(claim, mac, work);
    execute 'delete from only ' || place.leaf || ' as t
       where t.ctid = any ($3) and t.tableoid = $4 and case when t."at" between ''4713-01-01 BC'' and $2 then t."at" + interval ''30 days'' <= $1 else false end'
      using claim.cutoff, bound, rows_at, claim.target;
    get diagnostics gone = row_count;
    set constraints all immediate; -- deferred ones too: here, not at COMMIT
    perform lapse.pin();
  end if;
  if coalesce(cardinality(rows_at), 0) < work.row_limit then
    execute 'select exists (
  select from only ' || place.leaf || ' as t
   where t."at" <= $2
     and t.tableoid = $3 and case when t."at" between ''4713-01-01 BC'' and $2 then t."at" + interval ''30 days'' <= $1 else false end)' into more using claim.cutoff, bound, claim.target;
    set constraints all immediate;
    perform lapse.pin();
  end if;
  return lapse.leave(claim, work, coalesce(cardinality(rows_at), 0), gone, before, last, more);
end
$lapse$;

revoke all on function lapse.delete_1_1(lapse.claim, bytea, lapse.work) from public;
grant execute on function lapse.delete_1_1(lapse.claim, bytea, lapse.work) to lapse_executor;
grant create on schema lapse to {{Deleter}};
alter function lapse.delete_1_1(lapse.claim, bytea, lapse.work) owner to {{Deleter}};
revoke create on schema lapse from {{Deleter}};
