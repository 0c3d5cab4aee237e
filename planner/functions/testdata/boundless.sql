-- What differs from kind_text.sql, for this policy's table. 2+ is a line in the place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_1_2, in the place of 659a3b59
3+  bound   text := null;
+  due     text := 't.tableoid = $3 and coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false)';
+  after   text := case when place.cursor is not null then ' and (t."id") > ($8)' else '' end;
2+  after_1 integer;
+  last_1 integer;
2+    after_1 := (aim.after[1])::integer;
+    last_1 := (aim.last[1])::integer;
3+    else array['true and t."id" <= $9' || after] end;
1+        execute deletion || these[1] using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, after_1, last_1;
1+        execute deletion || this using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, after_1, last_1;
@@ lapse.due_1_2, in the place of db113e10
1+  bound  text := null;
2+select t.ctid as at, t."id" as k1,
+       t.tableoid = $3 and coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false) as due
2+ where true' || low || stays || '
+ order by t."id"
@@ lapse.find_1_2, in the place of 11fdc93d
1+  bound   text := null;
2+  after   text := case when place.cursor is not null then ' and (t."id") > ($8)' else '' end;
+  after_1 integer;
1+   and (coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false)) is true' || kept || '
1+      into aim.rows_at, aim.counted, aim.last using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, after_1;
1+  after_1 := (aim.after[1])::integer;
2+select t.ctid as at, t."id" as k1,
+       t.tableoid = $3 and coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false) as due
2+ where true' || kept || after || '
+ order by t."id"
1+select s.at, s.k1 from seen s where s.due limit $4
2+       case when count(*) = $4 then (select array[r.k1::text] from due r offset (select greatest(count(*) - 1, 0) from due))
+            else (select array[r.k1::text] from seen r offset (select greatest(count(*) - 1, 0) from seen)) end,
3+    into aim.rows_at, aim.counted, aim.last, aim.ended using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, after_1;
@@ lapse.survey_1_2, in the place of c10ddac9
1+  bound   text := null;
2+  rest    text := source || 'coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false)';
2+  execute 'explain (verbose, format json) select t."at" ' || source || 'coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false)' into whole using at_cutoff, bound;
1+  from (select t."at" as due ' || rest || '
1+select s.at, s.k1
2+select t.ctid as at, t."id" as k1,
+       coalesce(t."at" + t."ttl" * interval ''1 second'' <= $1, false) as due
2+ where true
+ order by t."id"
13-
4-
