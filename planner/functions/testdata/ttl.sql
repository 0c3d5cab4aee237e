-- What differs from ttl_where.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_5_1, in place of 7eeb2eff
1+  due     text := 't.tableoid = $3 and case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end';
@@ lapse.due_5_1, in place of b56e785c
1+       t.tableoid = $3 and case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end as due
@@ lapse.find_5_1, in place of 21170ae7
1+       t.tableoid = $3 and case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end as due
1+   and (case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end) is true' || kept || '
@@ lapse.survey_5_1, in place of 24ff0f68
1+   and case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end';
1+   and case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end' into whole using at_cutoff, bound;
1+       case when t."last_seen" between ''4713-01-01 BC'' and $2 and t."ttl" between 0 and 186624000000 then t."last_seen" + t."ttl" * interval ''1 second'' <= $1 else false end as due
