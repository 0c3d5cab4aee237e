-- Deletes rows of shop.t that are due under policy 'p' version 2, and nothing else: one batch, the only
-- work of its transaction. lapse.enter, look, record and leave are the same for all policies. Every refusal is an error:
-- the transaction ends with nothing deleted.
create function lapse.delete_1_2(claim lapse.claim, mac bytea, work lapse.work) returns lapse.outcome
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
  place   lapse.place := lapse.enter(claim, work, 1, 2, 100);
  bound   timestamp with time zone := claim.cutoff - interval '1 day' - interval '01:00:00';
  rows_at tid[];
  last    text[];
  before  bigint[];
  gone    bigint := 0;
  more    boolean := false;
  ended   boolean;
begin
  execute 'lock table only ' || place.leaf || ' in row exclusive mode';
  perform lapse.look(claim, work, place.leaf);
  execute 'with pick as materialized (
select t.ctid as at, t."at" as k1, t."id" as k2
  from only ' || place.leaf || ' as t
 where t."at" <= $2
   and t.tableoid = $5 and case when t."at" between ''4713-01-01 BC'' and $2 then t."at" + interval ''01:00:00'' + interval ''1 day'' <= $1 else false end'
      || case when place.cursor is null then '' else '
   and (t."at", t."id") > (($4[1])::timestamp with time zone, ($4[2])::integer)' end || '
 order by t."at", t."id"
 limit $3
   for update skip locked
)
select array_agg(p.at), (select array[r.k1::text, r.k2::text] from pick r offset (select greatest(count(*) - 1, 0) from pick)) from pick p'
    into rows_at, last
    using claim.cutoff, bound, work.row_limit, place.cursor, claim.target;
  perform lapse.pin();
  ended := coalesce(cardinality(rows_at), 0) < work.row_limit;
  if rows_at is not null then
    before := lapse.record(claim, mac, work);
    execute 'delete from only ' || place.leaf || ' as t
       where t.ctid = any ($3) and t.tableoid = $4 and case when t."at" between ''4713-01-01 BC'' and $2 then t."at" + interval ''01:00:00'' + interval ''1 day'' <= $1 else false end'
      using claim.cutoff, bound, rows_at, claim.target;
    get diagnostics gone = row_count;
    set constraints all immediate; -- deferred ones too: here, not at COMMIT
    perform lapse.pin();
  end if;
  if ended then
    execute 'select exists (
  select from only ' || place.leaf || ' as t
   where t."at" <= $2
     and t.tableoid = $3 and case when t."at" between ''4713-01-01 BC'' and $2 then t."at" + interval ''01:00:00'' + interval ''1 day'' <= $1 else false end)' into more using claim.cutoff, bound, claim.target;
    set constraints all immediate;
    perform lapse.pin();
  end if;
  return lapse.leave(claim, work, coalesce(cardinality(rows_at), 0), gone, before, last, ended, more);
end
$lapse$;

-- Counts the rows of shop.t that are due under policy p at an instant, and where asked says how
-- a batch would find those of one leaf. It returns counts, instants and a plan, never values.
create function lapse.survey_1_2(at_cutoff timestamptz, explain_leaf oid)
returns table (due bigint, oldest timestamptz, newest timestamptz, seen pg_snapshot, plan json, explained text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = 'postgres'
set standard_conforming_strings = on
set quote_all_identifiers = off
set row_security = off
set jit = off
set constraint_exclusion = off
as $lapse$
declare
  root  oid := lapse.inspect(1, 2);
  bound timestamp with time zone := at_cutoff - interval '1 day' - interval '01:00:00';
  leaf  text := (select format('%I.%I', n.nspname, c.relname)
                   from pg_class c join pg_namespace n on n.oid = c.relnamespace
                  where c.oid = explain_leaf
                    and (c.oid = root or exists (select from pg_partition_ancestors(c.oid) a where a.relid = root)));
  pick  text := '
select t.ctid as at, t."at" as k1, t."id" as k2
  from only ' || leaf || ' as t
 where t."at" <= $2
   and case when t."at" between ''4713-01-01 BC'' and $2 then t."at" + interval ''01:00:00'' + interval ''1 day'' <= $1 else false end
 order by t."at", t."id"
 limit $3
   for update skip locked';
  line  text;
begin
  execute 'select count(*), min(t."at"), max(t."at"), pg_current_snapshot()
  from shop.t as t
 where t."at" <= $2
   and case when t."at" between ''4713-01-01 BC'' and $2 then t."at" + interval ''01:00:00'' + interval ''1 day'' <= $1 else false end'
    into due, oldest, newest, seen using at_cutoff, bound;
  perform lapse.pin();
  if leaf is not null then
    execute 'explain (format json)' || pick into plan using at_cutoff, bound, 100, 800;
    perform lapse.pin();
    for line in execute 'explain' || pick using at_cutoff, bound, 100, 800 loop
      explained := concat(explained, line, chr(10));
    end loop;
  end if;
  return next;
end
$lapse$;

revoke all on function lapse.delete_1_2(lapse.claim, bytea, lapse.work) from public;
grant execute on function lapse.delete_1_2(lapse.claim, bytea, lapse.work) to "lapse_executor";
revoke all on function lapse.survey_1_2(timestamptz, oid) from public;
grant execute on function lapse.survey_1_2(timestamptz, oid) to "lapse_executor";

grant create on schema lapse to "lapse_deleter_0";
alter function lapse.delete_1_2(lapse.claim, bytea, lapse.work) owner to "lapse_deleter_0";
alter function lapse.survey_1_2(timestamptz, oid) owner to "lapse_deleter_0";
revoke create on schema lapse from "lapse_deleter_0";
