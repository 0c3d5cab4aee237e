-- What differs from plain.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_1_2, in place of e6fd76fe
1+  bound   timestamp with time zone := claim.cutoff - interval '1 day' - interval '01:00:00';
1+                  when place.cursor is null and place.low is not null then ' and t."last_seen" > ' || quote_literal((place.low - interval '1 day' - interval '01:00:00')::timestamp with time zone) || '::timestamp with time zone' else ' and t."last_seen" >= ''4713-01-01 BC''' end;
@@ lapse.due_1_2, in place of 020cdb70
1+  bound  timestamp with time zone := cutoff - interval '1 day' - interval '01:00:00';
1+   and t."last_seen" > ' || quote_literal((sight.low - interval '1 day' - interval '01:00:00')::timestamp with time zone) || '::timestamp with time zone';
@@ lapse.find_1_2, in place of 4938c2bd
1+  bound   timestamp with time zone := claim.cutoff - interval '1 day' - interval '01:00:00';
1+                  when place.cursor is null and place.low is not null then ' and t."last_seen" > ' || quote_literal((place.low - interval '1 day' - interval '01:00:00')::timestamp with time zone) || '::timestamp with time zone' else ' and t."last_seen" >= ''4713-01-01 BC''' end;
@@ lapse.survey_1_2, in place of 75117795
1+  bound   timestamp with time zone := at_cutoff - interval '1 day' - interval '01:00:00';
