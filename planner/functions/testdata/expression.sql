-- What differs from epoch.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_7_1, in place of 3eb294d3
3+  bound   timestamp with time zone := claim.cutoff;
+  due     text := 't.tableoid = $3 and case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end';
+  after_1 timestamp with time zone;
1+  last_1  timestamp with time zone;
2+    after := case when place.cursor[1] is not null then ' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) > (select $11)'
+                  when place.cursor is null and place.low is not null then ' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) > (select ' || quote_literal((place.low)::timestamp with time zone) || '::timestamp with time zone)' else ' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''' end;
2+      when 'tie' then case when aim.last[4]::boolean then '(COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= (select $2) and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) = $10' else '((COALESCE(t."seen", ''infinity''::timestamp with time zone)) = $10) is true' end || ' and t.ctid > $5 and t.ctid <= $6'
+      else '(COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= (select $2) and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= (select $10)' || after end;
@@ lapse.due_7_1, in place of 1e55d736
1+  bound  timestamp with time zone := cutoff;
1+  low_at timestamp with time zone;
2+   and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''';
+        low_at := sight.low;
1+   and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) > (select $5)';
1+select t.ctid as at, (COALESCE(t."seen", ''infinity''::timestamp with time zone)) as k1
3+ where (COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= (select $2)
+   and t.tableoid = $3 and case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end' || low || stays || '
+ order by (COALESCE(t."seen", ''infinity''::timestamp with time zone))
1+select t.ctid as at, (COALESCE(t."seen", 'infinity'::timestamp with time zone)) as k1
4+ where (COALESCE(t."seen", 'infinity'::timestamp with time zone)) <= (select bound)
+   and t.tableoid = place.leaf and case when (COALESCE(t."seen", 'infinity'::timestamp with time zone)) between '4713-01-01 BC' and cutoff then true else false end
+   and (COALESCE(t."seen", 'infinity'::timestamp with time zone)) > (select low_at)
+ order by (COALESCE(t."seen", 'infinity'::timestamp with time zone))
1+select t.ctid as at, (COALESCE(t."seen", 'infinity'::timestamp with time zone)) as k1
4+ where (COALESCE(t."seen", 'infinity'::timestamp with time zone)) <= (select bound)
+   and t.tableoid = place.leaf and case when (COALESCE(t."seen", 'infinity'::timestamp with time zone)) between '4713-01-01 BC' and cutoff then true else false end
+   and (COALESCE(t."seen", 'infinity'::timestamp with time zone)) >= '4713-01-01 BC'
+ order by (COALESCE(t."seen", 'infinity'::timestamp with time zone))
@@ lapse.find_7_1, in place of 45194adb
1+  bound   timestamp with time zone := claim.cutoff;
6+  places  timestamp with time zone[];
+  last_1  timestamp with time zone;
+  edge    timestamp with time zone;
+  after_1 timestamp with time zone := place.cursor[1];
+  after   text := case when place.cursor[1] is not null then ' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) > (select $11)'
+                  when place.cursor is null and place.low is not null then ' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) > (select ' || quote_literal((place.low)::timestamp with time zone) || '::timestamp with time zone)' else ' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''' end;
1+select (COALESCE(t."seen", 'infinity'::timestamp with time zone)) as k1
3+ where (COALESCE(t."seen", 'infinity'::timestamp with time zone)) <= (select bound)
+   and (COALESCE(t."seen", 'infinity'::timestamp with time zone)) > (select after_1)
+ order by (COALESCE(t."seen", 'infinity'::timestamp with time zone)) limit work.row_limit + 1
1+' || case when picks then 'select t.ctid as at, (COALESCE(t."seen", ''infinity''::timestamp with time zone)) as k1
2+ where (COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= (select $2)
+   and t.tableoid = $3 and case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end' else 'select (COALESCE(t."seen", ''infinity''::timestamp with time zone)) as k1
2+ where (COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= (select $2)' end || kept || after || '
+ order by (COALESCE(t."seen", ''infinity''::timestamp with time zone)) limit $4 + 1
1+    execute 'select count(*) <= 16 * $4 + 20000 from (select from only ' || place.leaf || ' as t where (COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= (select $2) and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) = $10 limit 16 * $4 + 20000 + 1) s'
1+    tail := ' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= (select $2) and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) = $10 and t.ctid > $5 order by t.ctid limit $4';
1+    tail := ' and ((COALESCE(t."seen", ''infinity''::timestamp with time zone)) = $10) is true' || tail;
1+   and (case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end) is true' || kept || tail || '
@@ lapse.survey_7_1, in place of 7318cbfd
1+  bound   timestamp with time zone := at_cutoff;
2+  rest    text := source || '(COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''
+   and case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end';
1+  execute 'explain (verbose, format json) select (COALESCE(t."seen", ''infinity''::timestamp with time zone)) ' || source || '(COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''' into whole using at_cutoff, bound;
1+  from (select (COALESCE(t."seen", ''infinity''::timestamp with time zone)) as due ' || rest || '
1+select t.ctid as at, (COALESCE(t."seen", ''infinity''::timestamp with time zone)) as k1
3+ where (COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''
+   and case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end
+ order by (COALESCE(t."seen", ''infinity''::timestamp with time zone))
13-
1+      execute 'select (COALESCE(t."seen", ''infinity''::timestamp with time zone)) ' || rest || ' order by (COALESCE(t."seen", ''infinity''::timestamp with time zone)) limit 1' into oldest using at_cutoff, bound;
