-- What differs from ttl_where.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_6_1, in place of 069f19f0
7+  bound   date := ((claim.cutoff + interval '2 days') at time zone 'UTC')::date;
+  due     text := 't.tableoid = $3 and case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end';
+  lower_1 date := place.lower[1];
+  upper_1 date := place.upper[1];
+  slice   text := case when place.lower[1] is null then '' else ' and t."day" > (select $8)' end
+                  || case when place.upper[1] is null then '' else ' and t."day" <= (select $9)' end;
+  after_1 date;
1+  last_1  date;
1+    after := case when place.cursor[1] is not null then ' and t."day" > (select $11)' else ' and t."day" >= ''4713-01-01 BC''' end;
2+      when 'tie' then case when aim.last[4]::boolean then 't."day" <= (select $2) and t."day" = $10' else '(t."day" = $10) is true' end || ' and t.ctid > $5 and t.ctid <= $6'
+      else 't."day" <= (select $2) and t."day" <= (select $10)' || slice || after end;
@@ lapse.due_6_1, in place of ed8479a8
1+  bound  date := ((cutoff + interval '2 days') at time zone 'UTC')::date;
1+  for place in select * from lapse.candidates(6, 1, 'day', bound::timestamp,
1+   and t."day" >= ''4713-01-01 BC''';
2+select t.ctid as at, t."day" as k1,
+       t.tableoid = $3 and case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end as due
2+ where t."day" <= (select $2)' || low || stays || '
+ order by t."day"
@@ lapse.find_6_1, in place of 0c9f8159
1+  bound   date := ((claim.cutoff + interval '2 days') at time zone 'UTC')::date;
9+  places  date[];
+  last_1  date;
+  edge    date;
+  lower_1 date := place.lower[1];
+  upper_1 date := place.upper[1];
+  slice   text := case when place.lower[1] is null then '' else ' and t."day" > (select $8)' end
+                  || case when place.upper[1] is null then '' else ' and t."day" <= (select $9)' end;
+  after_1 date := place.cursor[1];
+  after   text := case when place.cursor[1] is not null then ' and t."day" > (select $11)' else ' and t."day" >= ''4713-01-01 BC''' end;
2+' || 'select t.ctid as at, t."day" as k1,
+       t.tableoid = $3 and case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end as due
2+ where t."day" <= (select $2)' || kept || slice || after || '
+ order by t."day" limit $4 * 8) s where s.due limit $4 + 1
1+      execute 'select t."day" as k1
1+ where t."day" <= (select $2)' || kept || slice || after || ' order by t."day" offset $4 * 8 limit 1' into edge using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
1+      execute 'select t."day" as k1
1+ where t."day" <= (select $2)' || kept || slice || after || ' and t."day" < (select $10) order by t."day" desc limit 1' into last_1 using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
1+    execute 'select count(*) <= 16 * $4 + 20000 from (select from only ' || place.leaf || ' as t where t."day" <= (select $2) and t."day" = $10 limit 16 * $4 + 20000 + 1) s'
1+    tail := ' and t."day" <= (select $2) and t."day" = $10 and t.ctid > $5 order by t.ctid limit $4';
1+    tail := ' and (t."day" = $10) is true' || tail;
1+   and (case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end) is true' || kept || '
@@ lapse.survey_6_1, in place of 97170db9
1+  bound   date := ((at_cutoff + interval '2 days') at time zone 'UTC')::date;
2+  rest    text := source || 't."day" <= $2 and t."day" >= ''4713-01-01 BC''
+   and case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end';
2+  execute 'explain (verbose, format json) select (t."day"::timestamp at time zone ''Europe/Berlin'') ' || source || 't."day" <= $2 and t."day" >= ''4713-01-01 BC''
+   and case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end' into whole using at_cutoff, bound;
1+  from (select (t."day"::timestamp at time zone ''Europe/Berlin'') as due ' || rest || '
2+select t.ctid as at, t."day" as k1,
+       case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end as due
2+ where t."day" <= $2 and t."day" >= ''4713-01-01 BC''
+ order by t."day"
1+      execute 'select (t."day"::timestamp at time zone ''Europe/Berlin'') ' || rest || ' order by t."day" limit 1' into oldest using at_cutoff, bound;
1+             'tie', (select max(c.part) from unnest(s.most_common_vals::text::date[], s.most_common_freqs) c(at, part) where c.at <= bound) * l.of,
1+      join pg_stats s on s.schemaname = l.nspname and s.tablename = l.relname and s.attname = 'day' and not s.inherited
1+                          from unnest(s.histogram_bounds::text::date[] || s.most_common_vals::text::date[]) x(at)
