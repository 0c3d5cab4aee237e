-- What differs from plain.sql, for this policy's table. 2+ is a line in the place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_8_1, in the place of ac092458
5+  due     text := 't.tableoid = $3 and case when $8 is null then true else (hashtextextended(coalesce((t."it''s")::text, '''') collate "C", hashtextextended(coalesce((t."tenant")::text, '''') collate "C", 0)) & 9223372036854775807) % $8 = $9 end and case when t."last_seen" between ''4713-01-01 BC'' and $2 then t."last_seen" + interval ''30 days'' <= $1 else false end';
1+    when 'page' then array['t.ctid > ($5[1])::tid and t.ctid <= ($6[1])::tid']
1+    else array['t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'' and t."last_seen" < $12' || after,
1+        execute deletion || these[1] using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, place.modulus, place.remainder, after_1, after_2, last_1, last_2;
1+        execute deletion || this using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, place.modulus, place.remainder, after_1, after_2, last_1, last_2;
@@ lapse.find_8_1, in the place of c05b1d85
4-
2+  if num_nonnulls(place.lower, place.upper) > 0 then
+    raise exception 'the shard is a range, and the policy has hash slices' using errcode = 'LP007';
1+ where t.tableoid = $3 and case when $8 is null then true else (hashtextextended(coalesce((t."it''s")::text, '''') collate "C", hashtextextended(coalesce((t."tenant")::text, '''') collate "C", 0)) & 9223372036854775807) % $8 = $9 end
1-
1+      into aim.rows_at, aim.counted, aim.last using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, place.modulus, place.remainder, after_1, after_2;
18+  -- The first due rows in the order, of so many candidates and no more.
1+select t.ctid as at, t."last_seen" as k1, t."id" as k2,
+       t.tableoid = $3 and case when $8 is null then true else (hashtextextended(coalesce((t."it''s")::text, '''') collate "C", hashtextextended(coalesce((t."tenant")::text, '''') collate "C", 0)) & 9223372036854775807) % $8 = $9 end and case when t."last_seen" between ''4713-01-01 BC'' and $2 then t."last_seen" + interval ''30 days'' <= $1 else false end as due
2+ where t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC''' || kept || after || '
1+ limit $4 * greatest(8, 2 * coalesce($8, 1))
+), due as materialized (
+select s.at, s.k1, s.k2 from seen s where s.due limit $4
3+       case when count(*) = $4 then (select array[r.k1::text, r.k2::text] from due r offset (select greatest(count(*) - 1, 0) from due))
+            else (select array[r.k1::text, r.k2::text] from seen r offset (select greatest(count(*) - 1, 0) from seen)) end,
+       count(*) < $4 and (select count(*) from seen) < $4 * greatest(8, 2 * coalesce($8, 1))
+  from due d'
+    into aim.rows_at, aim.counted, aim.last, aim.ended using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at, place.modulus, place.remainder, after_1, after_2;
@@ lapse.survey_8_1, in the place of 805bbc21
1+  execute 'explain (verbose, format json) select t."last_seen" ' || source || 't."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC''
+   and case when t."last_seen" between ''4713-01-01 BC'' and $2 then t."last_seen" + interval ''30 days'' <= $1 else false end' into whole using at_cutoff, bound;
1+select s.at, s.k1, s.k2
+  from (
+select t.ctid as at, t."last_seen" as k1, t."id" as k2,
+       case when t."last_seen" between ''4713-01-01 BC'' and $2 then t."last_seen" + interval ''30 days'' <= $1 else false end as due
1-
0+ limit $4
+) s
+ where s.due
19-
