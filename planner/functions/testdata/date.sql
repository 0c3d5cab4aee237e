-- What differs from ttl_interval.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_3_1, in place of 28b0dae0
2+  bound   date := ((claim.cutoff - interval '2 days' - interval '1 mon' + interval '4 days') at time zone 'UTC')::date;
+  due     text := 't.tableoid = $3 and case when t."day" between ''4713-01-01 BC'' and $2 then (t."day"::timestamp at time zone ''UTC'') + interval ''1 mon 2 days'' <= $1 else false end';
@@ lapse.due_3_1, in place of b0300323
1+  bound  date := ((cutoff - interval '2 days' - interval '1 mon' + interval '4 days') at time zone 'UTC')::date;
1+                                              bound::timestamp - interval '14 days', quiet) loop
1+       t.tableoid = $3 and case when t."day" between ''4713-01-01 BC'' and $2 then (t."day"::timestamp at time zone ''UTC'') + interval ''1 mon 2 days'' <= $1 else false end as due
@@ lapse.find_3_1, in place of d8f02cf8
1+  bound   date := ((claim.cutoff - interval '2 days' - interval '1 mon' + interval '4 days') at time zone 'UTC')::date;
1+       t.tableoid = $3 and case when t."day" between ''4713-01-01 BC'' and $2 then (t."day"::timestamp at time zone ''UTC'') + interval ''1 mon 2 days'' <= $1 else false end as due
1+   and (case when t."day" between ''4713-01-01 BC'' and $2 then (t."day"::timestamp at time zone ''UTC'') + interval ''1 mon 2 days'' <= $1 else false end) is true' || kept || '
@@ lapse.survey_3_1, in place of d3209173
1+  bound   date := ((at_cutoff - interval '2 days' - interval '1 mon' + interval '4 days') at time zone 'UTC')::date;
1+   and case when t."day" between ''4713-01-01 BC'' and $2 then (t."day"::timestamp at time zone ''UTC'') + interval ''1 mon 2 days'' <= $1 else false end';
2+  execute 'explain (verbose, format json) select (t."day"::timestamp at time zone ''UTC'') ' || source || 't."day" <= $2 and t."day" >= ''4713-01-01 BC''
+   and case when t."day" between ''4713-01-01 BC'' and $2 then (t."day"::timestamp at time zone ''UTC'') + interval ''1 mon 2 days'' <= $1 else false end' into whole using at_cutoff, bound;
1+  from (select (t."day"::timestamp at time zone ''UTC'') as due ' || rest || '
1+       case when t."day" between ''4713-01-01 BC'' and $2 then (t."day"::timestamp at time zone ''UTC'') + interval ''1 mon 2 days'' <= $1 else false end as due
1+      execute 'select (t."day"::timestamp at time zone ''UTC'') ' || rest || ' order by t."day" limit 1' into oldest using at_cutoff, bound;
