-- What differs from epoch.sql, for this policy's table. 2+ is a line in the place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_7_1, in the place of 17056d76
4+  bound   timestamp with time zone := claim.cutoff;
+  due     text := 't.tableoid = $3 and case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end';
+  after   text := case when place.cursor is not null then ' and ((COALESCE(t."seen", ''infinity''::timestamp with time zone)), t."id") > ($8, $9)'
+                  when place.low is not null then ' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) > ' || quote_literal((place.low)::timestamp with time zone) || '::timestamp with time zone' else '' end;
2+  after_1 timestamp with time zone; after_2 bigint;
+  last_1 timestamp with time zone; last_2 bigint;
2+    after_1 := (aim.after[1])::timestamp with time zone; after_2 := (aim.after[2])::bigint;
+    last_1 := (aim.last[1])::timestamp with time zone; last_2 := (aim.last[2])::bigint;
3+    when 'tie' then array['(COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC'' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) = $10 and (t."id") > ($9) and (t."id") <= ($11)']
+    else array['(COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC'' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) < $10' || after,
+      '(COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC'' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) = $10 and (t."id") <= ($11)'] end;
@@ lapse.due_7_1, in the place of 57a2d457
1+  bound  timestamp with time zone := cutoff;
1+   and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) > ' || quote_literal((sight.low)::timestamp with time zone) || '::timestamp with time zone';
1+select t.ctid as at, (COALESCE(t."seen", ''infinity''::timestamp with time zone)) as k1, t."id" as k2
3+ where (COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''
+   and t.tableoid = $3 and case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end' || low || stays || '
+ order by (COALESCE(t."seen", ''infinity''::timestamp with time zone))
@@ lapse.find_7_1, in the place of c67471dc
1+  bound   timestamp with time zone := claim.cutoff;
3+  after   text := case when place.cursor is not null then ' and ((COALESCE(t."seen", ''infinity''::timestamp with time zone)), t."id") > ($8, $9)'
+                  when place.low is not null then ' and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) > ' || quote_literal((place.low)::timestamp with time zone) || '::timestamp with time zone' else '' end;
+  after_1 timestamp with time zone; after_2 bigint;
1+   and (case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end) is true' || kept || '
1+  after_1 := (aim.after[1])::timestamp with time zone; after_2 := (aim.after[2])::bigint;
1+select (COALESCE(t."seen", ''infinity''::timestamp with time zone)) as k1, t."id" as k2
2+ where (COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''' || kept || after || '
+ order by (COALESCE(t."seen", ''infinity''::timestamp with time zone)), t."id"
1+select t.ctid as at, (COALESCE(t."seen", ''infinity''::timestamp with time zone)) as k1, t."id" as k2
3+ where (COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''
+   and t.tableoid = $3 and case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end' || kept || after || '
+ order by (COALESCE(t."seen", ''infinity''::timestamp with time zone)), t."id"
@@ lapse.survey_7_1, in the place of eeac3b7c
1+  bound   timestamp with time zone := at_cutoff;
2+  rest    text := source || '(COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''
+   and case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end';
1+  execute 'explain (verbose, format json) select (COALESCE(t."seen", ''infinity''::timestamp with time zone)) ' || source || '(COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''' into whole using at_cutoff, bound;
1+  from (select (COALESCE(t."seen", ''infinity''::timestamp with time zone)) as due ' || rest || '
1+select t.ctid as at, (COALESCE(t."seen", ''infinity''::timestamp with time zone)) as k1, t."id" as k2
3+ where (COALESCE(t."seen", ''infinity''::timestamp with time zone)) <= $2 and (COALESCE(t."seen", ''infinity''::timestamp with time zone)) >= ''4713-01-01 BC''
+   and case when (COALESCE(t."seen", ''infinity''::timestamp with time zone)) between ''4713-01-01 BC'' and $1 then true else false end
+ order by (COALESCE(t."seen", ''infinity''::timestamp with time zone)), t."id"
13-
1+      execute 'select (COALESCE(t."seen", ''infinity''::timestamp with time zone)) ' || rest || ' order by (COALESCE(t."seen", ''infinity''::timestamp with time zone)) limit 1' into oldest using at_cutoff, bound;
