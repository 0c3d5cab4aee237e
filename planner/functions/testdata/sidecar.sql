-- What differs from plain.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
-- Deletes rows of public.carts that are due under policy 'carts' version 1 and not held: one batch, the only work of
-- its transaction. Its one DELETE, run once for each portion of rows, has the whole condition. What lapse.find_7_1 returns is added by AND, as values: it can only make it
-- delete less, never a row that is not due, is held, or is in another partition. Every refusal is an error, and nothing is deleted then.
create function lapse.delete_7_1(claim lapse.claim, mac bytea, work lapse.work) returns lapse.outcome
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
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $lapse$
declare
  place   lapse.place := lapse.enter(claim, work, 7, 1, 5000, (select caller.proof from lapse.caller));
  bound   timestamp with time zone := claim.cutoff - interval '1 day';
  due     text := 't.tableoid = $3 and r."ten""ant" = case when t.ctid is not null then t."tenant" end and r."id" = case when t.ctid is not null then t."id" end and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false)';
  aim     lapse.aim;
  deletion text; before lapse.tally; portions lapse.portions; gone bigint; outcome lapse.outcome;
  state   text; in_schema text; in_table text; by_name text; in_column text; stack text; -- of the one row that resists
begin
  perform lapse.pin();
  execute 'lock table only ' || place.leaf || ' in row exclusive mode';
  lock table public."Reg" in row share mode;
  select l.spared, l.ways, l.answers into place.spared, place.ways, place.answers from lapse.check_leaf(claim, work, place.leaf) l;
  due := due || case when place.spared = '' then '' else ' and (' || place.spared || ') is not true' end;
  loop
    portions := lapse.next_portion(portions, work, aim, gone); -- pauses
    exit when portions.over;
    place.cursor := coalesce(aim.last, place.cursor);
    aim := lapse.find_7_1(claim, work, place);
    perform lapse.pin();
    if aim.found_by = 'row' and aim.counted > 0 then
      aim := lapse.lock_rows(claim, work, place, aim, bound, 'only ' || place.leaf || ' as t, public."Reg" as r', due, 'for update of t, r skip locked', 'array[(t."id")::text]');
      perform lapse.pin();
    end if;
    deletion := 'delete from only ' || place.leaf || ' as t
       using ' || case aim.found_by when 'row' then 'public."Reg" as r' else '(select r."until", r."ten""ant", r."id" from public."Reg" as r where r.ctid = any ($7) for update) as r' end || '
 where ' || due || ' and ';
    deletion := deletion || case aim.found_by when 'row' then 't.ctid = any ($7)' else 'r."ten""ant" = t."tenant" and r."id" = t."id"' end;
    gone := 0;
    if aim.counted > 0 then
      if portions.picked = 0 then before := lapse.record(claim, mac, work); end if;
      if coalesce(work.step_over, false) then -- the one row that resists: it stays, and what is in its way is recorded with its key
        begin
          execute deletion using claim.cutoff, bound, claim.target, work.row_limit, null, null, aim.rows_at, place.modulus, place.remainder;
          get diagnostics gone = row_count;
          set constraints all immediate;
        exception when others or query_canceled or assert_failure then
          get stacked diagnostics state = returned_sqlstate, in_schema = schema_name, in_table = table_name, by_name = constraint_name,
            in_column = column_name, stack = pg_exception_context;
          gone := 0;
          before := lapse.resist(claim, work, aim.key, state, in_schema, in_table, by_name, in_column, stack);
          if before is null then raise; end if; -- it is no row's fault
          aim.more := aim.more or state = '55P03';
        end;
      else
        execute deletion using claim.cutoff, bound, claim.target, work.row_limit, null, null, aim.rows_at, place.modulus, place.remainder;
        get diagnostics gone = row_count;
        perform lapse.pin();
        if gone > 2 * work.row_limit then
          raise exception 'more than twice as many rows as were counted came into the range meanwhile' using errcode = 'LP023';
        end if;
        set constraints all immediate; -- deferred ones too: here, not at COMMIT
      end if;
      perform lapse.pin();
    end if;
  end loop;
  outcome := lapse.leave(claim, work, portions, before,
    case when aim.again and gone > 0 then place.cursor else aim.last end, aim.ended and not (aim.again and gone > 0), aim.locked);
  outcome.locker := aim.locker; outcome.quarantined := aim.quarantined;
  return outcome;
end
$lapse$;
@@ lapse.due_7_1, in place of 5386be3e
1+-- 10000 rows that may be due; it changes nothing, waits for nobody, and returns no values.
1-
1+  bound  timestamp with time zone := cutoff - interval '1 day';
1-
0+  seen   bigint;
2+  for place in select * from lapse.candidates(7, 1, '', null,
+                                              null, quiet) loop
5+      execute 'lock table only ' || place.name || ' in access share mode nowait';
+      lock table only public."Reg" in access share mode nowait;
6+   and r."until" >= ''4713-01-01 BC''';
7+          execute 'select coalesce(bool_or(s.due), false), count(*) from (
+select t.ctid as at, r."until" as k1, (r."ten""ant")::text collate "C" as k2, r."id" as k3,
+       t.tableoid = $3 and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false) as due
+  from public."Reg" as r
+  left join only ' || place.name || ' as t on r."ten""ant" = t."tenant" and r."id" = t."id"
+ where r."until" <= $2' || low || stays || '
+ order by r."until", (r."ten""ant")::text collate "C", r."id"
21+) s' into due, seen using cutoff, bound, place.leaf, 10000;
+          if not due and seen = 10000 then
+            due := null;
-- Finds the next rows of public.carts for lapse.delete_7_1, and says by values where they are. It changes nothing: PostgreSQL lets a stable
-- function write, lock or set nothing, and lapse.pin gives it its settings back where code of the table's may have run. The batch's one
-- statement restates the whole condition, and so does at most less.
create function lapse.find_7_1(claim lapse.claim, work lapse.work, place lapse.place) returns lapse.aim
language plpgsql stable
as $lapse$
declare
  aim     lapse.aim;
  bound   timestamp with time zone := claim.cutoff - interval '1 day';
  shape   text := coalesce(work.shape, 'range');
  kept    text := case when place.spared = '' then '' else ' and (' || place.spared || ') is not true' end;
  picks   boolean := shape in ('pick', 'heap pick') or place.ways is not null or coalesce(work.step_over or work.careful, false);
  rows_at text := case when picks then 't.ctid' else 'r.ctid' end;
  own     text := 't.tableoid = $3';
  after_1 timestamp with time zone := place.cursor[1]; after_2 text collate "C" := place.cursor[2]; after_3 bigint := place.cursor[3];
  after   text := case when place.cursor[1] is not null then ' and (r."until", (r."ten""ant")::text collate "C", r."id") > ($10, $11, $12)' else ' and r."until" >= ''4713-01-01 BC''' end;
begin
  if shape not in ('range', 'pick') then
    raise exception 'this policy''s batches do not find their rows by %', shape using errcode = 'LP022';
  end if;
  if num_nonnulls(place.lower, place.upper, place.modulus) > 0 then
    raise exception 'the shard is a slice, and the policy has none' using errcode = 'LP007';
  end if;
  aim.more := false;
  aim.again := false;
  aim.after := place.cursor;
  aim.found_by := case when picks then 'row' else 'beside' end;
  if not picks and place.pass = 1 and place.spared = '' and place.leaf = 'public.carts' and exists (
    select from pg_constraint c
     where c.contype = 'f' and c.convalidated and c.conparentid = 0 and c.conrelid = 'public."Reg"'::regclass and c.confrelid = claim.target
       and c.conkey = '{1,2}' and c.confkey = '{2,1}') then
    own := 'true'; -- a foreign key says that each candidate has its row in the table, which need not be looked for
  end if;
  -- The first due rows in the order, of so many candidates and no more.
  execute 'select array_agg(d.at), count(*), array[(array_agg(d.k1))[count(*)]::text, (array_agg(d.k2))[count(*)]::text, (array_agg(d.k3))[count(*)]::text] from (select s.* from (
select ' || rows_at || ' as at, r."until" as k1, (r."ten""ant")::text collate "C" as k2, r."id" as k3,
       ' || own || ' and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false) as due
  from public."Reg" as r
  left join only ' || place.leaf || ' as t on r."ten""ant" = t."tenant" and r."id" = t."id"
 where r."until" <= $2' || kept || after || '
 order by r."until", (r."ten""ant")::text collate "C", r."id"
 limit $4 * 8) s where s.due limit $4
) d'
    into aim.rows_at, aim.counted, aim.last using claim.cutoff, bound, claim.target, work.row_limit, null, null, aim.rows_at, place.modulus, place.remainder, after_1, after_2, after_3;
  perform lapse.pin();
  if aim.counted < work.row_limit then -- not full: go on after the last candidate; without one the pass has ended
    execute 'select array[e.k1::text, e.k2::text, e.k3::text] from (
select r."until" as k1, (r."ten""ant")::text collate "C" as k2, r."id" as k3
  from public."Reg" as r
  left join only ' || place.leaf || ' as t on r."ten""ant" = t."tenant" and r."id" = t."id"
 where r."until" <= $2' || kept || after || '
 order by r."until", (r."ten""ant")::text collate "C", r."id"
 limit 1 offset $4 * 8 - 1
) e'
      into aim.last using claim.cutoff, bound, claim.target, work.row_limit, null, null, aim.rows_at, place.modulus, place.remainder, after_1, after_2, after_3;
    perform lapse.pin();
  end if;
  aim.ended := aim.last is null;
  return aim;
end
$lapse$;
@@ lapse.survey_7_1, in place of 35e7372f
1+  bound   timestamp with time zone := at_cutoff - interval '1 day';
0+  join public."Reg" as r on r."ten""ant" = t."tenant" and r."id" = t."id"
2+  rest    text := source || 'r."until" <= $2 and r."until" >= ''4713-01-01 BC''
+   and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false)';
1+  lock table only public.carts, only public."Reg" in access share mode;
1+  execute 'explain (verbose, format json) select r."until" ' || source || 'r."until" <= $2 and r."until" >= ''4713-01-01 BC''
+   and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false)' into whole using at_cutoff, bound;
1+  from (select r."until" as due ' || rest || '
5+select s.at, s.k1, s.k2, s.k3
+  from (
+select t.ctid as at, r."until" as k1, (r."ten""ant")::text collate "C" as k2, r."id" as k3,
+       t.tableoid is not null and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false) as due
+  from public."Reg" as r
+  left join only ' || place || ' as t on r."ten""ant" = t."tenant" and r."id" = t."id"
+ where r."until" <= $2 and r."until" >= ''4713-01-01 BC''
+ order by r."until", (r."ten""ant")::text collate "C", r."id"
+ limit $4
+) s
+ where s.due
1+      execute 'select r."until" ' || rest || ' order by r."until" limit 1' into oldest using at_cutoff, bound;
22-
