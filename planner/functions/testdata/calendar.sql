-- What differs from date.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_2_1, in place of 093f75d3
7+  bound   timestamp without time zone := (claim.cutoff - interval '7 years' + interval '4 days' + interval '2 days') at time zone 'UTC';
+  due     text := 't.tableoid = $3 and case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end';
+  lower_1 timestamp without time zone := place.lower[1];
+  upper_1 timestamp without time zone := place.upper[1];
+  slice   text := case when place.lower[1] is null then '' else ' and t."closed""at" > (select $8)' end
+                  || case when place.upper[1] is null then '' else ' and t."closed""at" <= (select $9)' end;
+  after_1 timestamp without time zone;
1+  last_1  timestamp without time zone;
1+    after := case when place.cursor[1] is not null then ' and t."closed""at" > (select $11)' else ' and t."closed""at" >= ''4713-01-01 BC''' end;
2+      when 'tie' then case when aim.last[4]::boolean then 't."closed""at" <= (select $2) and t."closed""at" = $10' else '(t."closed""at" = $10) is true' end || ' and t.ctid > $5 and t.ctid <= $6'
+      else 't."closed""at" <= (select $2) and t."closed""at" <= (select $10)' || slice || after end;
@@ lapse.due_2_1, in place of 4919f37b
1+  bound  timestamp without time zone := (cutoff - interval '7 years' + interval '4 days' + interval '2 days') at time zone 'UTC';
1+  for place in select * from lapse.candidates(2, 1, 'closed"at', bound::timestamp,
1+   and t."closed""at" >= ''4713-01-01 BC''';
2+select t.ctid as at, t."closed""at" as k1,
+       t.tableoid = $3 and case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end as due
2+ where t."closed""at" <= (select $2)' || low || stays || '
+ order by t."closed""at"
@@ lapse.find_2_1, in place of 7faa64cc
1+  bound   timestamp without time zone := (claim.cutoff - interval '7 years' + interval '4 days' + interval '2 days') at time zone 'UTC';
9+  places  timestamp without time zone[];
+  last_1  timestamp without time zone;
+  edge    timestamp without time zone;
+  lower_1 timestamp without time zone := place.lower[1];
+  upper_1 timestamp without time zone := place.upper[1];
+  slice   text := case when place.lower[1] is null then '' else ' and t."closed""at" > (select $8)' end
+                  || case when place.upper[1] is null then '' else ' and t."closed""at" <= (select $9)' end;
+  after_1 timestamp without time zone := place.cursor[1];
+  after   text := case when place.cursor[1] is not null then ' and t."closed""at" > (select $11)' else ' and t."closed""at" >= ''4713-01-01 BC''' end;
2+' || 'select t.ctid as at, t."closed""at" as k1,
+       t.tableoid = $3 and case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end as due
2+ where t."closed""at" <= (select $2)' || kept || slice || after || '
+ order by t."closed""at" limit $4 * 8) s where s.due limit $4 + 1
1+      execute 'select t."closed""at" as k1
1+ where t."closed""at" <= (select $2)' || kept || slice || after || ' order by t."closed""at" offset $4 * 8 limit 1' into edge using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
1+      execute 'select t."closed""at" as k1
1+ where t."closed""at" <= (select $2)' || kept || slice || after || ' and t."closed""at" < (select $10) order by t."closed""at" desc limit 1' into last_1 using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
1+    execute 'select count(*) <= 16 * $4 + 20000 from (select from only ' || place.leaf || ' as t where t."closed""at" <= (select $2) and t."closed""at" = $10 limit 16 * $4 + 20000 + 1) s'
1+    tail := ' and t."closed""at" <= (select $2) and t."closed""at" = $10 and t.ctid > $5 order by t.ctid limit $4';
1+    tail := ' and (t."closed""at" = $10) is true' || tail;
1+   and (case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end) is true' || kept || '
@@ lapse.survey_2_1, in place of faa3982b
1+  bound   timestamp without time zone := (at_cutoff - interval '7 years' + interval '4 days' + interval '2 days') at time zone 'UTC';
2+  rest    text := source || 't."closed""at" <= $2 and t."closed""at" >= ''4713-01-01 BC''
+   and case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end';
2+  execute 'explain (verbose, format json) select (t."closed""at" at time zone ''Europe/Berlin'') ' || source || 't."closed""at" <= $2 and t."closed""at" >= ''4713-01-01 BC''
+   and case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end' into whole using at_cutoff, bound;
1+  from (select (t."closed""at" at time zone ''Europe/Berlin'') as due ' || rest || '
2+select t.ctid as at, t."closed""at" as k1,
+       case when t."closed""at" between ''4713-01-01 BC'' and $2 then (t."closed""at" at time zone ''Europe/Berlin'') + interval ''7 years'' <= $1 else false end as due
2+ where t."closed""at" <= $2 and t."closed""at" >= ''4713-01-01 BC''
+ order by t."closed""at"
1+      execute 'select (t."closed""at" at time zone ''Europe/Berlin'') ' || rest || ' order by t."closed""at" limit 1' into oldest using at_cutoff, bound;
1+             'tie', (select max(c.part) from unnest(s.most_common_vals::text::timestamp without time zone[], s.most_common_freqs) c(at, part) where c.at <= bound) * l.of,
1+      join pg_stats s on s.schemaname = l.nspname and s.tablename = l.relname and s.attname = 'closed"at' and not s.inherited
1+                          from unnest(s.histogram_bounds::text::timestamp without time zone[] || s.most_common_vals::text::timestamp without time zone[]) x(at)
