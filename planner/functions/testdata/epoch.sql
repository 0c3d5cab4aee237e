-- What differs from plain.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_1_2, in place of 87b8cb19
7+  bound   bigint := ((floor(extract(epoch from claim.cutoff - interval '00:00:00')) + 1))::bigint;
+  due     text := 't.tableoid = $3 and case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end';
+  after_1 integer;
1+  last_1  integer;
2+    after := case when place.cursor[1] is not null then ' and t."at" > (select $11)'
+                  when place.cursor is null and place.low is not null then ' and t."at" > (select ' || quote_literal((((floor(extract(epoch from place.low - interval '00:00:00')) + 1))::bigint)::bigint) || '::bigint)' else ' and t."at" >= (-210863520000)::bigint' end;
3+      when 'page' then 't.ctid > $5 and t.ctid <= $6'
+      when 'tie' then case when aim.last[4]::boolean then 't."at" <= (select $2) and t."at" = $10' else '(t."at" = $10) is true' end || ' and t.ctid > $5 and t.ctid <= $6'
+      else 't."at" <= (select $2) and t."at" <= (select $10)' || after end;
1+          execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
1+        execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
@@ lapse.due_1_2, in place of 3e7658fd
1+  bound  bigint := ((floor(extract(epoch from cutoff - interval '00:00:00')) + 1))::bigint;
1+  low_at bigint;
2+  for place in select * from lapse.candidates(1, 2, '', null,
+                                              null, quiet) loop
2+   and t."at" >= (-210863520000)::bigint';
+        low_at := ((floor(extract(epoch from sight.low - interval '00:00:00')) + 1))::bigint;
1+   and t."at" > (select $5)';
1+select t.ctid as at, t."at" as k1
3+ where t."at" <= (select $2)
+   and t.tableoid = $3 and case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end' || low || stays || '
+ order by t."at"
1+select t.ctid as at, t."at" as k1
4+ where t."at" <= (select bound)
+   and t.tableoid = place.leaf and case when t."at" between -210863520000 and bound then to_timestamp(t."at") + interval '00:00:00' <= cutoff else false end
+   and t."at" > (select low_at)
+ order by t."at"
1+select t.ctid as at, t."at" as k1
4+ where t."at" <= (select bound)
+   and t.tableoid = place.leaf and case when t."at" between -210863520000 and bound then to_timestamp(t."at") + interval '00:00:00' <= cutoff else false end
+   and t."at" >= (-210863520000)::bigint
+ order by t."at"
@@ lapse.find_1_2, in place of 4504ef15
1+  bound   bigint := ((floor(extract(epoch from claim.cutoff - interval '00:00:00')) + 1))::bigint;
10+  places  integer[];
+  last_1  integer;
+  edge    integer;
+  after_1 integer := place.cursor[1];
+  after   text := case when place.cursor[1] is not null then ' and t."at" > (select $11)'
+                  when place.cursor is null and place.low is not null then ' and t."at" > (select ' || quote_literal((((floor(extract(epoch from place.low - interval '00:00:00')) + 1))::bigint)::bigint) || '::bigint)' else ' and t."at" >= (-210863520000)::bigint' end;
2+  if num_nonnulls(place.lower, place.upper, place.modulus) > 0 then
+    raise exception 'the shard is a slice, and the policy has none' using errcode = 'LP007';
1+    if not picks and place.leaf = 'shop.logins' and kept = '' and after_1 is not null then
1+select t."at" as k1
3+ where t."at" <= (select bound)
+   and t."at" > (select after_1)
+ order by t."at" limit work.row_limit + 1
1+' || case when picks then 'select t.ctid as at, t."at" as k1
2+ where t."at" <= (select $2)
+   and t.tableoid = $3 and case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end' else 'select t."at" as k1
2+ where t."at" <= (select $2)' end || kept || after || '
+ order by t."at" limit $4 + 1
1+      into aim.rows_at, places using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
2+    execute 'select count(*) <= 16 * $4 + 20000 from (select from only ' || place.leaf || ' as t where t."at" <= (select $2) and t."at" = $10 limit 16 * $4 + 20000 + 1) s'
+      into few using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
1+    tail := ' and t."at" <= (select $2) and t."at" = $10 and t.ctid > $5 order by t.ctid limit $4';
1+    tail := ' and (t."at" = $10) is true' || tail;
2+   and (case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end) is true' || kept || tail || '
1+    into aim.rows_at, aim.counted, found using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
@@ lapse.survey_1_2, in place of 5aa45a48
1+  bound   bigint := ((floor(extract(epoch from at_cutoff - interval '00:00:00')) + 1))::bigint;
2+  rest    text := source || 't."at" <= $2 and t."at" >= (-210863520000)::bigint
+   and case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end';
1+  execute 'explain (verbose, format json) select to_timestamp(t."at") ' || source || 't."at" <= $2 and t."at" >= (-210863520000)::bigint' into whole using at_cutoff, bound;
1+  from (select to_timestamp(t."at") as due ' || rest || '
1+select t.ctid as at, t."at" as k1
3+ where t."at" <= $2 and t."at" >= (-210863520000)::bigint
+   and case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end
+ order by t."at"
0+    if look_through is distinct from 0 then
+      execute '
+  with looked as (
+    select case when (t."at" is not null and t."at" not between -210863520000 and 210863520000) then regexp_replace(regexp_replace((left((t."at")::text, 40) collate "C"), ''[^ -@[-`{-~]'', ''a'', ''g''), ''[0-9]'', ''9'', ''g'') || case when octet_length((t."at")::text) > 40 then ''...'' else '''' end end as pattern
+      from (select t."at" from ' || place || ' as t limit $1) t
+  ), alike as (
+    select pattern, count(*) as n from looked where pattern is not null group by pattern
+  )
+  select json_build_object(''rows'', coalesce(sum(n), 0), ''of'', (select count(*) from looked), ''arrays'', coalesce(sum(n) filter (where pattern = ''array''), 0),
+           ''patterns'', (select json_agg(a.pattern) from (select pattern from alike order by n desc, pattern limit 3) a))
+    from alike' into unread using look_through;
+      perform lapse.pin();
+    end if;
1+      execute 'select to_timestamp(t."at") ' || rest || ' order by t."at" limit 1' into oldest using at_cutoff, bound;
22-
