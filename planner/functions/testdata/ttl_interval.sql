-- What differs from ttl_where.sql, for this policy's table. 2+ is a line in the place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_6_1, in the place of 797d99fd
7+  bound   date := ((claim.cutoff + interval '2 days') at time zone 'UTC')::date;
+  due     text := 't.tableoid = $3 and case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end';
+  lower_1 date := (place.lower[1])::date;
+  upper_1 date := (place.upper[1])::date;
+  slice   text := case when place.lower is null then '' else ' and t."day" > $8' end
+                  || case when place.upper is null then '' else ' and t."day" <= $9' end;
+  after   text := case when place.cursor is not null then ' and (t."day", t."id") > ($10, $11)' else '' end;
2+  after_1 date; after_2 bigint;
+  last_1 date; last_2 bigint;
2+    after_1 := (aim.after[1])::date; after_2 := (aim.after[2])::bigint;
+    last_1 := (aim.last[1])::date; last_2 := (aim.last[2])::bigint;
3+    when 'tie' then array['t."day" <= $2 and t."day" >= ''4713-01-01 BC'' and t."day" = $12 and (t."id") > ($11) and (t."id") <= ($13)']
+    else array['t."day" <= $2 and t."day" >= ''4713-01-01 BC'' and t."day" < $12' || slice || after,
+      't."day" <= $2 and t."day" >= ''4713-01-01 BC'' and t."day" = $12 and (t."id") <= ($13)'] end;
@@ lapse.due_6_1, in the place of e7da58b4
1+  bound  date := ((cutoff + interval '2 days') at time zone 'UTC')::date;
1+  for place in select * from lapse.candidates(6, 1, 'day', bound::timestamp,
2+select t.ctid as at, t."day" as k1, t."id" as k2,
+       t.tableoid = $3 and case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end as due
2+ where t."day" <= $2 and t."day" >= ''4713-01-01 BC''' || low || stays || '
+ order by t."day", t."id"
@@ lapse.find_6_1, in the place of 921f678e
1+  bound   date := ((claim.cutoff + interval '2 days') at time zone 'UTC')::date;
6+  lower_1 date := (place.lower[1])::date;
+  upper_1 date := (place.upper[1])::date;
+  slice   text := case when place.lower is null then '' else ' and t."day" > $8' end
+                  || case when place.upper is null then '' else ' and t."day" <= $9' end;
+  after   text := case when place.cursor is not null then ' and (t."day", t."id") > ($10, $11)' else '' end;
+  after_1 date; after_2 bigint;
1+   and (case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end) is true' || kept || '
1+  after_1 := (aim.after[1])::date; after_2 := (aim.after[2])::bigint;
2+select t.ctid as at, t."day" as k1, t."id" as k2,
+       t.tableoid = $3 and case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end as due
2+ where t."day" <= $2 and t."day" >= ''4713-01-01 BC''' || kept || slice || after || '
+ order by t."day", t."id"
@@ lapse.survey_6_1, in the place of 514a5a3e
1+  bound   date := ((at_cutoff + interval '2 days') at time zone 'UTC')::date;
2+  rest    text := source || 't."day" <= $2 and t."day" >= ''4713-01-01 BC''
+   and case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end';
2+  execute 'explain (verbose, format json) select (t."day"::timestamp at time zone ''Europe/Berlin'') ' || source || 't."day" <= $2 and t."day" >= ''4713-01-01 BC''
+   and case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end' into whole using at_cutoff, bound;
1+  from (select (t."day"::timestamp at time zone ''Europe/Berlin'') as due ' || rest || '
2+select t.ctid as at, t."day" as k1, t."id" as k2,
+       case when t."day" between ''4713-01-01 BC'' and $2 then case when t."keep" is null then (t."day"::timestamp at time zone ''Europe/Berlin'') + interval ''3 mons'' <= $1 when t."keep" <= interval ''6000 years'' and get_byte(interval_send(t."keep"), 0) < 128 and get_byte(interval_send(t."keep"), 8) < 128 and get_byte(interval_send(t."keep"), 12) < 128 then (t."day"::timestamp at time zone ''Europe/Berlin'') + t."keep" <= $1 else false end else false end as due
2+ where t."day" <= $2 and t."day" >= ''4713-01-01 BC''
+ order by t."day", t."id"
1+      execute 'select (t."day"::timestamp at time zone ''Europe/Berlin'') ' || rest || ' order by t."day" limit 1' into oldest using at_cutoff, bound;
1+    join pg_stats s on s.schemaname = l.nspname and s.tablename = l.relname and s.attname = 'day' and not s.inherited
1+                        from unnest(s.histogram_bounds::text::date[] || s.most_common_vals::text::date[]) x(at)
