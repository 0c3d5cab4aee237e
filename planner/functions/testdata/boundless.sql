-- What differs from kind_text.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_1_2, in place of b041dcc9
4+  bound   text := null;
+  due     text := 't.tableoid = $3 and coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false)';
1-
2-
1-
3+      when 'page' then 't.ctid > $5 and t.ctid <= $6' end;
1+          execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder;
1+        execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder;
@@ lapse.due_1_2, in place of ef005190
1+  bound  text := null;
2+        low := '';
2+select t.ctid as at, t."id" as k1,
+       t.tableoid = $3 and coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false) as due
2+ where true' || low || stays || '
+ order by t."id"
@@ lapse.find_1_2, in place of 8dae0c8b
2+  bound   text := null;
+  shape   text := coalesce(work.shape, 'heap');
6-
1+  if shape not in ('heap', 'heap pick') then
3-
45-
1+  aim.found_by := case when picks then 'row' else 'page' end;
8-
1+   and (coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false)) is true' || kept || tail || '
1+    into aim.rows_at, aim.counted, found using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder;
1-
@@ lapse.survey_1_2, in place of 59ea6b4c
1+  bound   text := null;
2+  rest    text := source || 'coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false)';
2+  execute 'explain (verbose, format json) select t."at" ' || source || 'coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false)' into whole using at_cutoff, bound;
1+  from (select t."at" as due ' || rest || '
2+select t.ctid as at, t."id" as k1,
+       coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false) as due
2+ where true
+ order by t."id"
13-
4-
