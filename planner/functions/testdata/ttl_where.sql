-- What differs from plain.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
-- Deletes rows of public.carts that are due under policy 'carts' version 1 and not held: one batch, the only work of
-- its transaction. Its one DELETE, run once for each portion of rows, has the whole condition. What lapse.find_5_1 returns is added by AND, as values: it can only make it
-- delete less, never a row that is not due, is held, or is in another partition. Every refusal is an error, and nothing is deleted then.
create function lapse.delete_5_1(claim lapse.claim, mac bytea, work lapse.work) returns lapse.outcome
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
as $lapse$
declare
  place   lapse.place := lapse.enter(claim, work, 5, 1, 5000, (select caller.proof from lapse.caller));
  bound   timestamp with time zone := claim.cutoff;
  due     text := 't.tableoid = $3 and case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE)))';
  lower_1 timestamp with time zone := place.lower[1];
  upper_1 timestamp with time zone := place.upper[1];
  slice   text := case when place.lower[1] is null then '' else ' and t."last_seen" > (select $8)' end
                  || case when place.upper[1] is null then '' else ' and t."last_seen" <= (select $9)' end;
  after_1 timestamp with time zone;
  after   text;
  aim     lapse.aim;
  last_1  timestamp with time zone;
  from_at tid; upto_at tid;
  deletion text; before lapse.tally; portions lapse.portions; gone bigint; outcome lapse.outcome;
  state   text; in_schema text; in_table text; by_name text; in_column text; stack text; -- of the one row that resists
begin
  perform lapse.pin();
  execute 'lock table only ' || place.leaf || ' in row exclusive mode';
  select l.spared, l.ways, l.answers into place.spared, place.ways, place.answers from lapse.check_leaf(claim, work, place.leaf) l;
  due := due || case when place.spared = '' then '' else ' and (' || place.spared || ') is not true' end;
  loop
    portions := lapse.next_portion(portions, work, aim, gone); -- pauses
    exit when portions.over;
    place.cursor := coalesce(aim.last, place.cursor);
    after_1 := place.cursor[1];
    after := case when place.cursor[1] is not null then ' and t."last_seen" > (select $11)' else ' and t."last_seen" >= ''4713-01-01 BC''' end;
    aim := lapse.find_5_1(claim, work, place);
    perform lapse.pin();
    if aim.found_by = 'row' and aim.counted > 0 then
      aim := lapse.lock_rows(claim, work, place, aim, bound, 'only ' || place.leaf || ' as t', due, 'for update skip locked', 'array[(t."id")::text]');
      perform lapse.pin();
    end if;
    deletion := 'delete from only ' || place.leaf || ' as t
 where ' || due || ' and ';
    from_at := aim.after[2]; upto_at := aim.last[2];
    last_1 := aim.last[1];
    deletion := deletion || case aim.found_by when 'row' then 't.ctid = any ($7)'
      when 'page' then 't.ctid > $5 and t.ctid <= $6' || slice
      when 'tie' then case when aim.last[4]::boolean then 't."last_seen" <= (select $2) and t."last_seen" = $10' else '(t."last_seen" = $10) is true' end || ' and t.ctid > $5 and t.ctid <= $6'
      else 't."last_seen" <= (select $2) and t."last_seen" <= (select $10)' || slice || after end;
    gone := 0;
    if aim.counted > 0 then
      if portions.picked = 0 then before := lapse.record(claim, mac, work); end if;
      if coalesce(work.step_over, false) then -- the one row that resists: it stays, and what is in its way is recorded with its key
        begin
          execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
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
        execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
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
@@ lapse.due_5_1, in place of 5e5239e3
1+-- 10000 rows that may be due; it changes nothing, waits for nobody, and returns no values.
1-
1+  bound  timestamp with time zone := cutoff;
1-
0+  seen   bigint;
1+                                              null, quiet) loop
5+      execute 'lock table only ' || place.name || ' in access share mode nowait';
5-
3+          execute 'select coalesce(bool_or(s.due), false), count(*) from (
+select t.ctid as at, t."last_seen" as k1,
+       t.tableoid = $3 and case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE))) as due
2+ where t."last_seen" <= (select $2)' || low || stays || '
21+) s' into due, seen using cutoff, bound, place.leaf, 10000;
+          if not due and seen = 10000 then
+            due := null;
-- Finds the next rows of public.carts for lapse.delete_5_1, and says by values where they are. It changes nothing: PostgreSQL lets a stable
-- function write, lock or set nothing, and lapse.pin gives it its settings back where code of the table's may have run. The batch's one
-- statement restates the whole condition, and so does at most less.
create function lapse.find_5_1(claim lapse.claim, work lapse.work, place lapse.place) returns lapse.aim
language plpgsql stable
as $lapse$
declare
  aim     lapse.aim;
  bound   timestamp with time zone := claim.cutoff;
  shape   text := coalesce(work.shape, 'range');
  kept    text := case when place.spared = '' then '' else ' and (' || place.spared || ') is not true' end;
  picks   boolean := shape in ('pick', 'heap pick') or place.ways is not null or coalesce(work.step_over or work.careful, false);
  rows_at text := case when picks then 'array_agg(d.at)' else 'null::tid[]' end;
  file    text := pg_relation_filenode(claim.target);
  tail    text := ' and t.ctid > $5 and t.ctid < $6 limit $4';
  from_at tid;
  upto_at tid;
  found   tid;
  few     boolean;
  places  timestamp with time zone[];
  last_1  timestamp with time zone;
  edge    timestamp with time zone;
  lower_1 timestamp with time zone := place.lower[1];
  upper_1 timestamp with time zone := place.upper[1];
  slice   text := case when place.lower[1] is null then '' else ' and t."last_seen" > (select $8)' end
                  || case when place.upper[1] is null then '' else ' and t."last_seen" <= (select $9)' end;
  after_1 timestamp with time zone := place.cursor[1];
  after   text := case when place.cursor[1] is not null then ' and t."last_seen" > (select $11)' else ' and t."last_seen" >= ''4713-01-01 BC''' end;
begin
  if shape not in ('range', 'pick', 'heap', 'heap pick') then
    raise exception 'this policy''s batches do not find their rows by %', shape using errcode = 'LP022';
  end if;
  if shape in ('range', 'pick') and num_nonnulls(place.lower[2], place.upper[2]) > 0 then
    raise exception 'the shard is a range of the file, and the batch goes by the order' using errcode = 'LP022';
  end if;
  if place.modulus is not null then
    raise exception 'the shard is a hash slice, and the policy has ranges' using errcode = 'LP007';
  end if;
  aim.more := false;
  aim.again := false;
  aim.after := place.cursor;
  if shape in ('range', 'pick') and (aim.after[2] is null or aim.after[2] = '(4294967294,65535)') then
    aim.found_by := case when picks then 'row' else 'place' end;
    -- The first due rows in the order, of so many candidates and no more, and one more than fits: no value is cut at the edge.
    execute 'select ' || rows_at || ', array_agg(d.k1) from (select s.* from (
' || 'select t.ctid as at, t."last_seen" as k1,
       t.tableoid = $3 and case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE))) as due
  from only ' || place.leaf || ' as t
 where t."last_seen" <= (select $2)' || kept || slice || after || '
 order by t."last_seen" limit $4 * 8) s where s.due limit $4 + 1
) d'
      into aim.rows_at, places using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
    perform lapse.pin();
    aim.counted := coalesce(cardinality(places), 0);
    if aim.counted > work.row_limit then
      edge := places[aim.counted];
    else -- of so many candidates; or there are no more
      execute 'select t."last_seen" as k1
  from only ' || place.leaf || ' as t
 where t."last_seen" <= (select $2)' || kept || slice || after || ' order by t."last_seen" offset $4 * 8 limit 1' into edge using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
      perform lapse.pin();
    end if;
    if edge is not null then
      aim.counted := coalesce(array_position(places, edge) - 1, aim.counted);
      aim.rows_at := aim.rows_at[1:aim.counted];
    end if;
    last_1 := places[aim.counted];
    if edge is not null and coalesce(cardinality(places), 0) <= work.row_limit then
      last_1 := edge;
      execute 'select t."last_seen" as k1
  from only ' || place.leaf || ' as t
 where t."last_seen" <= (select $2)' || kept || slice || after || ' and t."last_seen" < (select $10) order by t."last_seen" desc limit 1' into last_1 using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
      perform lapse.pin();
    end if;
    if edge is null or last_1 is not null then
      aim.last := array[last_1::text];
      aim.ended := edge is null;
      return aim;
    end if;
    -- All of them have the value at the edge. Where these are not many they are read by the index for each batch.
    last_1 := edge;
    execute 'select count(*) <= 16 * $4 + 20000 from (select from only ' || place.leaf || ' as t where t."last_seen" <= (select $2) and t."last_seen" = $10 limit 16 * $4 + 20000 + 1) s'
      into few using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
    perform lapse.pin();
    aim.after := array[edge::text, '(0,0)', file, few::text];
  end if;
  -- The first due rows of some pages, in the order of the table's file. In a file that was rewritten rows are elsewhere.
  aim.found_by := case when picks then 'row' when aim.after[1] is not null then 'tie' else 'page' end;
  if file is distinct from aim.after[3] then
    aim.after := array[aim.after[1], coalesce(place.lower[2], '(0,0)'), file, aim.after[4]];
  end if;
  from_at := aim.after[2];
  upto_at := least(format('(%s,0)', ((aim.after[2]::point)[0])::bigint + work.row_limit / 2 + 32)::tid, place.upper[2]::tid);
  last_1 := aim.after[1];
  few := aim.after[4];
  if few then
    upto_at := '(4294967294,65535)';
    tail := ' and t."last_seen" <= (select $2) and t."last_seen" = $10 and t.ctid > $5 order by t.ctid limit $4';
  elsif last_1 is not null then
    tail := ' and (t."last_seen" = $10) is true' || tail;
  end if;
  execute 'select ' || rows_at || ', count(*), max(d.at) from (
select t.ctid as at
  from only ' || place.leaf || ' as t
 where t.tableoid = $3
   and (case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE)))) is true' || kept || '
   and (true' || slice || ') is true' || tail || '
) d'
    into aim.rows_at, aim.counted, found using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
  perform lapse.pin();
  aim.ended := aim.counted < work.row_limit and ((upto_at::text::point)[0])::bigint
    >= least(pg_relation_size(claim.target) / current_setting('block_size')::bigint, ((place.upper[2]::point)[0])::bigint);
  upto_at := case when aim.counted = work.row_limit then found when aim.ended then coalesce(place.upper[2]::tid, '(4294967294,65535)') else upto_at end;
  aim.last := array[aim.after[1], upto_at::text, file, aim.after[4]];
  aim.ended := aim.ended and last_1 is null;
  return aim;
end
$lapse$;
@@ lapse.survey_5_1, in place of fd1b8c6e
1+  bound   timestamp with time zone := at_cutoff;
1+   and case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE)))';
1+  execute 'explain (verbose, format json) select t."last_seen" ' || source || 't."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC''
+   and case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE)))' into whole using at_cutoff, bound;
1+select s.at, s.k1
+  from (
+select t.ctid as at, t."last_seen" as k1,
+       case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE))) as due
1-
0+ limit $4
+) s
+ where s.due
