-- What differs from plain.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_1_2, in place of f52a2de6
1+  bound   timestamp with time zone := claim.cutoff - interval '00:00:00';
1+                  when place.cursor is null and place.low is not null then ' and t."last_seen" > (select ' || quote_literal((place.low - interval '00:00:00')::timestamp with time zone) || '::timestamp with time zone)' else ' and t."last_seen" >= ''4713-01-01 BC''' end;
@@ lapse.due_1_2, in place of 142e36ab
1+  bound  timestamp with time zone := cutoff - interval '00:00:00';
1+        low_at := sight.low - interval '00:00:00';
@@ lapse.find_1_2, in place of b5cb1ed4
1+  bound   timestamp with time zone := claim.cutoff - interval '00:00:00';
1+                  when place.cursor is null and place.low is not null then ' and t."last_seen" > (select ' || quote_literal((place.low - interval '00:00:00')::timestamp with time zone) || '::timestamp with time zone)' else ' and t."last_seen" >= ''4713-01-01 BC''' end;
@@ lapse.survey_1_2, in place of 75117795
1+  bound   timestamp with time zone := at_cutoff - interval '00:00:00';
