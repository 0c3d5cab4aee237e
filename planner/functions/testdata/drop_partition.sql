-- What differs from plain.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_9_2, in place of 06cf0239
7+  bound   timestamp without time zone := (claim.cutoff - interval '30 days') at time zone 'UTC';
+  due     text := 't.tableoid = $3 and coalesce(t."at" <= $2 and t."at" >= ''4713-01-01 BC'', false)';
+  after_1 timestamp without time zone;
1+  last_1  timestamp without time zone;
2+    after := case when place.cursor[1] is not null then ' and t."at" > (select $11)'
+                  when place.cursor is null and place.low is not null then ' and t."at" > (select ' || quote_literal(((place.low - interval '30 days') at time zone 'UTC')::timestamp without time zone) || '::timestamp without time zone)' else ' and t."at" >= ''4713-01-01 BC''' end;
3+      when 'page' then 't.ctid > $5 and t.ctid <= $6'
+      when 'tie' then case when aim.last[4]::boolean then 't."at" <= (select $2) and t."at" = $10' else '(t."at" = $10) is true' end || ' and t.ctid > $5 and t.ctid <= $6'
+      else 't."at" <= (select $2) and t."at" <= (select $10)' || after end;
1+          execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
1+        execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
-- Drops a partition of public.events whole, if every row of it is due under policy 'events' version 2, none has to stay and
-- none is referred to; else it says why not, and lapse.delete_9_2 deletes what is due. lapse.enter, look, part,
-- record_drop and leave_drop are the same for all policies. Every refusal is an error: the transaction ends with nothing done.
create function lapse.drop_9_2(claim lapse.claim, mac bytea, work lapse.work) returns lapse.dropping
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
set lock_timeout = '100ms'
as $lapse$
declare
  place    lapse.place := lapse.enter(claim, work, 9, 2, 5000, (select caller.proof from lapse.caller));
  bound    timestamp without time zone := (claim.cutoff - interval '30 days') at time zone 'UTC';
  kept     text;
  began    timestamptz := clock_timestamp();
  part     lapse.part;
  page     bigint := 0;
  pages    bigint;
  counted  record;
  rows     bigint := 0;
  oldest   timestamptz;
  newest   timestamptz;
  met      boolean;
  dropped  boolean := false;
  whole    jsonb;
  likely   jsonb;
begin
  perform lapse.pin();
  -- The application never waits long because of a lock that is waited for here, and is never the victim of a deadlock.
  perform set_config('lock_timeout', greatest(1, floor(1000 * extract(epoch from
    least(interval '100 milliseconds', current_setting('deadlock_timeout')::interval / 4))))::text, true);
  execute 'lock table only ' || place.leaf || ' in row exclusive mode';
  select l.spared, l.ways, l.answers into place.spared, place.ways, place.answers from lapse.check_leaf(claim, work, place.leaf) l;
  kept := case when place.spared = '' then '' else ' and (' || place.spared || ') is not true' end;
  part := lapse.part(claim, work, 'at');
  if part.why is null and part.upper::timestamp without time zone > bound then
    part.why := 'its range reaches to what is not due yet';
  end if;
  if part.why is null and part.upper is null then
    execute 'explain (format json) select from only ' || place.leaf || ' as t' into whole;
    execute 'explain (format json) select from only ' || place.leaf || ' as t where t."at" <= $2 and t."at" >= ''4713-01-01 BC''' into likely using claim.cutoff, bound;
    perform lapse.pin();
    if (likely #>> '{0, Plan, Plan Rows}')::float8 < 0.9 * (whole #>> '{0, Plan, Plan Rows}')::float8 then
      part.why := 'not nearly all of its rows are expected to be due';
    end if;
  end if;
  if part.why is null then
    -- Nobody writes into it from here on. Reading goes on, and Lapse gives way to a session that waits to write.
    execute 'lock table only ' || place.leaf || ' in share mode';
    pages := pg_relation_size(claim.target) / current_setting('block_size')::bigint;
  end if;
  while part.why is null and page < pages loop
    execute 'select count(*) as rows, count(d.due) as due, min(d.due) as oldest, max(d.due) as newest
  from (select case when coalesce(t."at" <= $2 and t."at" >= ''4713-01-01 BC'', false)' || kept || ' then (t."at" at time zone ''UTC'') end as due
          from only ' || place.leaf || ' as t
         where t.ctid >= $4 and t.ctid < $5 and t.tableoid = $3) d'
      into counted using claim.cutoff, bound, claim.target, format('(%s,0)', page)::tid, format('(%s,0)', page + 2048)::tid;
    perform lapse.pin();
    page := page + 2048;
    rows := rows + counted.rows;
    oldest := least(oldest, counted.oldest);
    newest := greatest(newest, counted.newest);
    if counted.due < counted.rows then
      part.why := 'a row of it is not due, or has to stay';
    elsif lapse.awaited(claim.target) then
      raise exception 'somebody waits to write into partition %', place.leaf using errcode = 'lock_not_available';
    elsif clock_timestamp() > began + interval '10 seconds' and page < pages then
      part.why := 'counting its rows takes too long';
    end if;
  end loop;
  if rows = 0 then
    part.why := coalesce(part.why, 'it is empty');
  end if;
  for try in 1..3 loop
    exit when part.why is not null or dropped;
    begin
      if part.referring is not null and try = 1 then
        began := clock_timestamp();
        execute 'select ' || part.referring into met;
        perform lapse.pin();
        part.why := case when met then 'rows refer to rows of it'
                         when clock_timestamp() > began + interval '50 milliseconds' then 'looking for rows that refer to it takes too long' end;
        exit when part.why is not null;
      end if;
      if lapse.awaited(claim.target) then
        raise exception 'somebody waits to write into partition %', place.leaf using errcode = 'lock_not_available';
      end if;
      execute 'lock table only ' || part.parent || ' in access exclusive mode';
      execute 'lock table only ' || place.leaf || ' in access exclusive mode';
      part.why := lapse.record_drop(claim, mac, work, rows, oldest, newest);
      exit when part.why is not null;
      if part.referring is not null then
        execute 'alter table only ' || part.parent || ' detach partition ' || place.leaf;
      end if;
      execute 'drop table ' || place.leaf;
      dropped := true;
    exception
      when lock_not_available then
        perform pg_sleep(0.02);
      when dependent_objects_still_exist then
        part.why := 'something depends on it, a view for instance';
      when foreign_key_violation then
        part.why := 'rows refer to rows of it';
      when insufficient_privilege then
        part.why := 'the deleter may not drop it, or not read what refers to it';
    end;
  end loop;
  if part.why is null and not dropped then
    raise exception 'somebody holds a lock on partition %, or on what it is a partition of', place.leaf using errcode = 'lock_not_available';
  end if;
  perform lapse.pin();
  return lapse.leave_drop(claim, work, part.why);
end
$lapse$;
@@ lapse.due_9_2, in place of ad428b86
1+  bound  timestamp without time zone := (cutoff - interval '30 days') at time zone 'UTC';
1+  low_at timestamp without time zone;
1+  for place in select * from lapse.candidates(9, 2, 'at', bound::timestamp,
2+   and t."at" >= ''4713-01-01 BC''';
+        low_at := (sight.low - interval '30 days') at time zone 'UTC';
1+   and t."at" > (select $5)';
1+select t.ctid as at, t."at" as k1
3+ where t."at" <= (select $2)
+   and t.tableoid = $3 and coalesce(t."at" <= $2 and t."at" >= ''4713-01-01 BC'', false)' || low || stays || '
+ order by t."at"
1+select t.ctid as at, t."at" as k1
4+ where t."at" <= (select bound)
+   and t.tableoid = place.leaf and coalesce(t."at" <= bound and t."at" >= '4713-01-01 BC', false)
+   and t."at" > (select low_at)
+ order by t."at"
1+select t.ctid as at, t."at" as k1
4+ where t."at" <= (select bound)
+   and t.tableoid = place.leaf and coalesce(t."at" <= bound and t."at" >= '4713-01-01 BC', false)
+   and t."at" >= '4713-01-01 BC'
+ order by t."at"
@@ lapse.find_9_2, in place of a01d8d18
1+  bound   timestamp without time zone := (claim.cutoff - interval '30 days') at time zone 'UTC';
10+  places  timestamp without time zone[];
+  last_1  timestamp without time zone;
+  edge    timestamp without time zone;
+  after_1 timestamp without time zone := place.cursor[1];
+  after   text := case when place.cursor[1] is not null then ' and t."at" > (select $11)'
+                  when place.cursor is null and place.low is not null then ' and t."at" > (select ' || quote_literal(((place.low - interval '30 days') at time zone 'UTC')::timestamp without time zone) || '::timestamp without time zone)' else ' and t."at" >= ''4713-01-01 BC''' end;
2+  if num_nonnulls(place.lower, place.upper, place.modulus) > 0 then
+    raise exception 'the shard is a slice, and the policy has none' using errcode = 'LP007';
1+    if not picks and place.leaf = 'public.events' and kept = '' and after_1 is not null then
1+select t."at" as k1
3+ where t."at" <= (select bound)
+   and t."at" > (select after_1)
+ order by t."at" limit work.row_limit + 1
1+' || case when picks then 'select t.ctid as at, t."at" as k1
2+ where t."at" <= (select $2)
+   and t.tableoid = $3 and coalesce(t."at" <= $2 and t."at" >= ''4713-01-01 BC'', false)' else 'select t."at" as k1
2+ where t."at" <= (select $2)' end || kept || after || '
+ order by t."at" limit $4 + 1
1+      into aim.rows_at, places using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
2+    execute 'select count(*) <= 16 * $4 + 20000 from (select from only ' || place.leaf || ' as t where t."at" <= (select $2) and t."at" = $10 limit 16 * $4 + 20000 + 1) s'
+      into few using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
1+    tail := ' and t."at" <= (select $2) and t."at" = $10 and t.ctid > $5 order by t.ctid limit $4';
1+    tail := ' and (t."at" = $10) is true' || tail;
2+   and (coalesce(t."at" <= $2 and t."at" >= ''4713-01-01 BC'', false)) is true' || kept || tail || '
1+    into aim.rows_at, aim.counted, found using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
@@ lapse.survey_9_2, in place of 7ed3974a
1+  bound   timestamp without time zone := (at_cutoff - interval '30 days') at time zone 'UTC';
2+  rest    text := source || 't."at" <= $2 and t."at" >= ''4713-01-01 BC''
+   and coalesce(t."at" <= $2 and t."at" >= ''4713-01-01 BC'', false)';
1+  execute 'explain (verbose, format json) select (t."at" at time zone ''UTC'') ' || source || 't."at" <= $2 and t."at" >= ''4713-01-01 BC''' into whole using at_cutoff, bound;
1+  from (select (t."at" at time zone ''UTC'') as due ' || rest || '
1+select t.ctid as at, t."at" as k1
3+ where t."at" <= $2 and t."at" >= ''4713-01-01 BC''
+   and coalesce(t."at" <= $2 and t."at" >= ''4713-01-01 BC'', false)
+ order by t."at"
1+      execute 'select (t."at" at time zone ''UTC'') ' || rest || ' order by t."at" limit 1' into oldest using at_cutoff, bound;
21+  -- Local times that are not in UTC are whole hours from now when they are written. How far the newest is from now, where an index has it.
+  if at_most is distinct from 0 then
+    pick := 'select extract(epoch from (t."at" at time zone ''UTC'') - clock_timestamp()) from public.events as t
+ where t."at" between localtimestamp - interval ''26 hours'' and localtimestamp + interval ''26 hours'' order by t."at" desc limit 1';
+    execute 'explain (format json) ' || pick into line;
+    perform lapse.pin();
+    if line ~ '"Index Name"' and line !~ '"Node Type": "(Sort|Incremental Sort)"' then
+      execute pick into ahead;
+      perform lapse.pin();
+    end if;
@@ grants, in place of 8eb56df1
0+revoke all on function lapse.drop_9_2(lapse.claim, bytea, lapse.work) from public;
+grant execute on function lapse.drop_9_2(lapse.claim, bytea, lapse.work) to "lapse_executor";
0+alter function lapse.drop_9_2(lapse.claim, bytea, lapse.work) owner to "lapse_deleter_0";
