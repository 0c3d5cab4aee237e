-- What differs from ttl_where.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_1_3, in place of f857dd9b
2+  bound   timestamp with time zone := claim.cutoff - interval '30 days';
+  due     text := 't.tableoid = $3 and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false) and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE)))';
@@ lapse.due_1_3, in place of d951bfdf
1+  bound  timestamp with time zone := cutoff - interval '30 days';
1+                                              bound::timestamp - interval '0 days', quiet) loop
1+       t.tableoid = $3 and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false) and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE))) as due
@@ lapse.find_1_3, in place of 8d354f9d
1+  bound   timestamp with time zone := claim.cutoff - interval '30 days';
1+       t.tableoid = $3 and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false) and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE))) as due
1+   and (coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false) and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE)))) is true' || kept || '
@@ lapse.survey_1_3, in place of 56be1593
1+  bound   timestamp with time zone := at_cutoff - interval '30 days';
1+   and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false) and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE)))';
1+   and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false) and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE)))' into whole using at_cutoff, bound;
1+       coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false) and (((t."status" = ''it''''s closed''::text) AND (t."Flag" IS NOT TRUE))) as due
