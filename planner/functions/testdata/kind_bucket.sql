-- What differs from plain.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_1_2, in place of c1813de5
2+  bound   timestamp with time zone := claim.cutoff - interval '1 day' - interval '01:00:00';
+  due     text := 't.tableoid = $3 and case when t."last_seen" between ''4713-01-01 BC'' and $2 then t."last_seen" + interval ''01:00:00'' + interval ''1 day'' <= $1 else false end';
1+                  when place.cursor is null and place.low is not null then ' and t."last_seen" > ' || quote_literal((place.low - interval '1 day' - interval '01:00:00')::timestamp with time zone) || '::timestamp with time zone' else '' end;
@@ lapse.due_1_2, in place of 7ce5a124
1+  bound  timestamp with time zone := cutoff - interval '1 day' - interval '01:00:00';
1+   and t."last_seen" > ' || quote_literal((sight.low - interval '1 day' - interval '01:00:00')::timestamp with time zone) || '::timestamp with time zone';
1+   and t.tableoid = $3 and case when t."last_seen" between ''4713-01-01 BC'' and $2 then t."last_seen" + interval ''01:00:00'' + interval ''1 day'' <= $1 else false end' || low || stays || '
@@ lapse.find_1_2, in place of c6ff1a6b
1+  bound   timestamp with time zone := claim.cutoff - interval '1 day' - interval '01:00:00';
1+                  when place.cursor is null and place.low is not null then ' and t."last_seen" > ' || quote_literal((place.low - interval '1 day' - interval '01:00:00')::timestamp with time zone) || '::timestamp with time zone' else '' end;
1+   and t.tableoid = $3 and case when t."last_seen" between ''4713-01-01 BC'' and $2 then t."last_seen" + interval ''01:00:00'' + interval ''1 day'' <= $1 else false end' else 'select t."last_seen" as k1
1+   and (case when t."last_seen" between ''4713-01-01 BC'' and $2 then t."last_seen" + interval ''01:00:00'' + interval ''1 day'' <= $1 else false end) is true' || kept || '
@@ lapse.survey_1_2, in place of e13128c2
1+  bound   timestamp with time zone := at_cutoff - interval '1 day' - interval '01:00:00';
1+   and case when t."last_seen" between ''4713-01-01 BC'' and $2 then t."last_seen" + interval ''01:00:00'' + interval ''1 day'' <= $1 else false end';
1+   and case when t."last_seen" between ''4713-01-01 BC'' and $2 then t."last_seen" + interval ''01:00:00'' + interval ''1 day'' <= $1 else false end
