-- What differs from boundless.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_8_1, in place of 58272652
1+  due     text := 't.tableoid = $3 and case when ((t."seen" + t."ttl")) between ''4713-01-01 BC'' and $1 then true else false end and (t."kept")';
@@ lapse.due_8_1, in place of 17728a02
1+       t.tableoid = $3 and case when ((t."seen" + t."ttl")) between ''4713-01-01 BC'' and $1 then true else false end and (t."kept") as due
@@ lapse.find_8_1, in place of 14b315a8
1+   and (case when ((t."seen" + t."ttl")) between ''4713-01-01 BC'' and $1 then true else false end and (t."kept")) is true' || kept || tail || '
@@ lapse.survey_8_1, in place of b2ea1b82
1+  rest    text := source || 'case when ((t."seen" + t."ttl")) between ''4713-01-01 BC'' and $1 then true else false end and (t."kept")';
1+  execute 'explain (verbose, format json) select ((t."seen" + t."ttl")) ' || source || 'case when ((t."seen" + t."ttl")) between ''4713-01-01 BC'' and $1 then true else false end and (t."kept")' into whole using at_cutoff, bound;
1+  from (select ((t."seen" + t."ttl")) as due ' || rest || '
1+       case when ((t."seen" + t."ttl")) between ''4713-01-01 BC'' and $1 then true else false end and (t."kept") as due
