-- What differs from plain.sql, for this policy's table. 2+ is a line in the place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_1_2, in the place of e7746e55
8+  bound   bigint := ((floor(extract(epoch from claim.cutoff - interval '00:00:00')) + 1))::bigint;
+  due     text := 't.tableoid = $3 and case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end';
+  after   text := case when place.cursor is not null then ' and (t."at", t."id") > ($8, $9)'
+                  when place.low is not null then ' and t."at" > ' || quote_literal((((floor(extract(epoch from place.low - interval '00:00:00')) + 1))::bigint)::bigint) || '::bigint' else '' end;
2+  after_1 integer; after_2 integer;
+  last_1 integer; last_2 integer;
2+    after_1 := (aim.after[1])::integer; after_2 := (aim.after[2])::integer;
+    last_1 := (aim.last[1])::integer; last_2 := (aim.last[2])::integer;
4+    when 'page' then array['t.ctid > ($5[1])::tid and t.ctid <= ($6[1])::tid']
+    when 'tie' then array['t."at" <= $2 and t."at" >= (-210863520000)::bigint and t."at" = $10 and (t."id") > ($9) and (t."id") <= ($11)']
+    else array['t."at" <= $2 and t."at" >= (-210863520000)::bigint and t."at" < $10' || after,
+      't."at" <= $2 and t."at" >= (-210863520000)::bigint and t."at" = $10 and (t."id") <= ($11)'] end;
1+        execute deletion || these[1] using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, after_1, after_2, last_1, last_2;
1+        execute deletion || this using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, after_1, after_2, last_1, last_2;
@@ lapse.due_1_2, in the place of 242254b3
1+  bound  bigint := ((floor(extract(epoch from cutoff - interval '00:00:00')) + 1))::bigint;
2+  for place in select * from lapse.candidates(1, 2, '', null,
+                                              null, quiet) loop
1+   and t."at" > ' || quote_literal((((floor(extract(epoch from sight.low - interval '00:00:00')) + 1))::bigint)::bigint) || '::bigint';
1+select t.ctid as at, t."at" as k1, t."id" as k2
3+ where t."at" <= $2 and t."at" >= (-210863520000)::bigint
+   and t.tableoid = $3 and case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end' || low || stays || '
+ order by t."at"
@@ lapse.find_1_2, in the place of 7184be22
1+  bound   bigint := ((floor(extract(epoch from claim.cutoff - interval '00:00:00')) + 1))::bigint;
7+  after   text := case when place.cursor is not null then ' and (t."at", t."id") > ($8, $9)'
+                  when place.low is not null then ' and t."at" > ' || quote_literal((((floor(extract(epoch from place.low - interval '00:00:00')) + 1))::bigint)::bigint) || '::bigint' else '' end;
+  after_1 integer; after_2 integer;
2+  if num_nonnulls(place.lower, place.upper, place.modulus) > 0 then
+    raise exception 'the shard is a slice, and the policy has none' using errcode = 'LP007';
2+   and (case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end) is true' || kept || '
1+      into aim.rows_at, aim.counted, aim.last using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, after_1, after_2;
1+  after_1 := (aim.after[1])::integer; after_2 := (aim.after[2])::integer;
1+select t."at" as k1, t."id" as k2
2+ where t."at" <= $2 and t."at" >= (-210863520000)::bigint' || kept || after || '
+ order by t."at", t."id"
1+      into aim.last using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, after_1, after_2;
1+select t.ctid as at, t."at" as k1, t."id" as k2
3+ where t."at" <= $2 and t."at" >= (-210863520000)::bigint
+   and t.tableoid = $3 and case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end' || kept || after || '
+ order by t."at", t."id"
1+    into aim.rows_at, aim.counted, aim.last, aim.ended using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, after_1, after_2;
@@ lapse.survey_1_2, in the place of 7e5b262e
1+  bound   bigint := ((floor(extract(epoch from at_cutoff - interval '00:00:00')) + 1))::bigint;
2+  rest    text := source || 't."at" <= $2 and t."at" >= (-210863520000)::bigint
+   and case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end';
1+  execute 'explain (verbose, format json) select to_timestamp(t."at") ' || source || 't."at" <= $2 and t."at" >= (-210863520000)::bigint' into whole using at_cutoff, bound;
1+  from (select to_timestamp(t."at") as due ' || rest || '
1+select t.ctid as at, t."at" as k1, t."id" as k2
3+ where t."at" <= $2 and t."at" >= (-210863520000)::bigint
+   and case when t."at" between -210863520000 and $2 then to_timestamp(t."at") + interval ''00:00:00'' <= $1 else false end
+ order by t."at", t."id"
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
19-
