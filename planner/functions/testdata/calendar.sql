-- What differs from date.sql, for this policy's table. 2+ is a line in the place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_2_1, in the place of e5b6537e
7+  bound   timestamp without time zone := (claim.cutoff - interval '7 years' + interval '4 days' + interval '2 days') at time zone 'UTC';
+  due     text := 't.tableoid = $3 and case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end';
+  lower_1 timestamp without time zone := (place.lower[1])::timestamp without time zone;
+  upper_1 timestamp without time zone := (place.upper[1])::timestamp without time zone;
+  slice   text := case when place.lower is null then '' else ' and t."closed""at" > $8' end
+                  || case when place.upper is null then '' else ' and t."closed""at" <= $9' end;
+  after   text := case when place.cursor is not null then ' and (t."closed""at", (t."email")::text collate "C") > ($10, $11)' else '' end;
2+  after_1 timestamp without time zone; after_2 text collate "C";
+  last_1 timestamp without time zone; last_2 text collate "C";
2+    after_1 := (aim.after[1])::timestamp without time zone; after_2 := (aim.after[2])::text collate "C";
+    last_1 := (aim.last[1])::timestamp without time zone; last_2 := (aim.last[2])::text collate "C";
3+    when 'tie' then array['t."closed""at" <= $2 and t."closed""at" >= ''4713-01-01 BC'' and t."closed""at" = $12 and ((t."email")::text collate "C") > ($11) and ((t."email")::text collate "C") <= ($13)']
+    else array['t."closed""at" <= $2 and t."closed""at" >= ''4713-01-01 BC'' and t."closed""at" < $12' || slice || after,
+      't."closed""at" <= $2 and t."closed""at" >= ''4713-01-01 BC'' and t."closed""at" = $12 and ((t."email")::text collate "C") <= ($13)'] end;
1+        execute deletion || these[1] using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, lower_1, upper_1, after_1, after_2, last_1, last_2;
1+        execute deletion || this using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, lower_1, upper_1, after_1, after_2, last_1, last_2;
@@ lapse.due_2_1, in the place of 9ad88f5e
1+  bound  timestamp without time zone := (cutoff - interval '7 years' + interval '4 days' + interval '2 days') at time zone 'UTC';
1+  for place in select * from lapse.candidates(2, 1, 'closed"at', bound::timestamp,
2+select t.ctid as at, t."closed""at" as k1, (t."email")::text collate "C" as k2,
+       t.tableoid = $3 and case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end as due
2+ where t."closed""at" <= $2 and t."closed""at" >= ''4713-01-01 BC''' || low || stays || '
+ order by t."closed""at", (t."email")::text collate "C"
@@ lapse.find_2_1, in the place of 0df990d3
1+  bound   timestamp without time zone := (claim.cutoff - interval '7 years' + interval '4 days' + interval '2 days') at time zone 'UTC';
6+  lower_1 timestamp without time zone := (place.lower[1])::timestamp without time zone;
+  upper_1 timestamp without time zone := (place.upper[1])::timestamp without time zone;
+  slice   text := case when place.lower is null then '' else ' and t."closed""at" > $8' end
+                  || case when place.upper is null then '' else ' and t."closed""at" <= $9' end;
+  after   text := case when place.cursor is not null then ' and (t."closed""at", (t."email")::text collate "C") > ($10, $11)' else '' end;
+  after_1 timestamp without time zone; after_2 text collate "C";
1+   and (case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end) is true' || kept || '
1+      into aim.rows_at, aim.counted, aim.last using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, lower_1, upper_1, after_1, after_2;
1+  after_1 := (aim.after[1])::timestamp without time zone; after_2 := (aim.after[2])::text collate "C";
2+select t.ctid as at, t."closed""at" as k1, (t."email")::text collate "C" as k2,
+       t.tableoid = $3 and case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end as due
2+ where t."closed""at" <= $2 and t."closed""at" >= ''4713-01-01 BC''' || kept || slice || after || '
+ order by t."closed""at", (t."email")::text collate "C"
1+select s.at, s.k1, s.k2 from seen s where s.due limit $4
2+       case when count(*) = $4 then (select array[r.k1::text, r.k2::text] from due r offset (select greatest(count(*) - 1, 0) from due))
+            else (select array[r.k1::text, r.k2::text] from seen r offset (select greatest(count(*) - 1, 0) from seen)) end,
1+    into aim.rows_at, aim.counted, aim.last, aim.ended using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, lower_1, upper_1, after_1, after_2;
@@ lapse.survey_2_1, in the place of bf174db7
1+  bound   timestamp without time zone := (at_cutoff - interval '7 years' + interval '4 days' + interval '2 days') at time zone 'UTC';
2+  rest    text := source || 't."closed""at" <= $2 and t."closed""at" >= ''4713-01-01 BC''
+   and case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end';
2+  execute 'explain (verbose, format json) select (t."closed""at" at time zone ''Europe/Berlin'') ' || source || 't."closed""at" <= $2 and t."closed""at" >= ''4713-01-01 BC''
+   and case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end' into whole using at_cutoff, bound;
1+  from (select (t."closed""at" at time zone ''Europe/Berlin'') as due ' || rest || '
1+select s.at, s.k1, s.k2
2+select t.ctid as at, t."closed""at" as k1, (t."email")::text collate "C" as k2,
+       case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end as due
2+ where t."closed""at" <= $2 and t."closed""at" >= ''4713-01-01 BC''
+ order by t."closed""at", (t."email")::text collate "C"
1+      execute 'select (t."closed""at" at time zone ''Europe/Berlin'') ' || rest || ' order by t."closed""at" limit 1' into oldest using at_cutoff, bound;
1+    join pg_stats s on s.schemaname = l.nspname and s.tablename = l.relname and s.attname = 'closed"at' and not s.inherited
1+                        from unnest(s.histogram_bounds::text::timestamp without time zone[] || s.most_common_vals::text::timestamp without time zone[]) x(at)
