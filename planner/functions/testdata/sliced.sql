-- What differs from plain.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_8_1, in place of 99411ca5
5+  due     text := 't.tableoid = $3 and case when $8 is null then true else (hashtextextended(coalesce((t."it''s")::text, '''') collate "C", hashtextextended(coalesce((t."tenant")::text, '''') collate "C", 0)) & 9223372036854775807) % $8 = $9 end and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false)';
1+      when 'page' then 't.ctid > $5 and t.ctid <= $6'
1+      else 't."last_seen" <= (select $2) and t."last_seen" <= (select $10)' || after end;
1+          execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
1+        execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
@@ lapse.find_8_1, in place of 5df0f386
1-
4-
2+  if num_nonnulls(place.lower, place.upper) > 0 then
+    raise exception 'the shard is a range, and the policy has hash slices' using errcode = 'LP007';
15+    -- The first due rows in the order, of so many candidates and no more, and one more than fits: no value is cut at the edge.
+    execute 'select ' || rows_at || ', array_agg(d.k1) from (select s.* from (
+' || 'select t.ctid as at, t."last_seen" as k1,
+       t.tableoid = $3 and case when $8 is null then true else (hashtextextended(coalesce((t."it''s")::text, '''') collate "C", hashtextextended(coalesce((t."tenant")::text, '''') collate "C", 0)) & 9223372036854775807) % $8 = $9 end and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false) as due
2+ where t."last_seen" <= (select $2)' || kept || after || '
+ order by t."last_seen" limit $4 * greatest(8, 2 * coalesce($8, 1))) s where s.due limit $4 + 1
2+      into aim.rows_at, places using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
0+    else -- of so many candidates; or there are no more
+      execute 'select t."last_seen" as k1
+  from only ' || place.leaf || ' as t
+ where t."last_seen" <= (select $2)' || kept || after || ' order by t."last_seen" offset $4 * greatest(8, 2 * coalesce($8, 1)) limit 1' into edge using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
+      perform lapse.pin();
1+      aim.counted := coalesce(array_position(places, edge) - 1, aim.counted);
0+    if edge is not null and coalesce(cardinality(places), 0) <= work.row_limit then
+      last_1 := edge;
+      execute 'select t."last_seen" as k1
+  from only ' || place.leaf || ' as t
+ where t."last_seen" <= (select $2)' || kept || after || ' and t."last_seen" < (select $10) order by t."last_seen" desc limit 1' into last_1 using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
+      perform lapse.pin();
+    end if;
1+      into few using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
3+ where t.tableoid = $3 and case when $8 is null then true else (hashtextextended(coalesce((t."it''s")::text, '''') collate "C", hashtextextended(coalesce((t."tenant")::text, '''') collate "C", 0)) & 9223372036854775807) % $8 = $9 end
+   and (coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false)) is true' || kept || tail || '
1+    into aim.rows_at, aim.counted, found using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, place.modulus, place.remainder, last_1, after_1;
@@ lapse.survey_8_1, in place of ceffa3d9
1+  execute 'explain (verbose, format json) select t."last_seen" ' || source || 't."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC''
+   and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false)' into whole using at_cutoff, bound;
1+select s.at, s.k1
+  from (
+select t.ctid as at, t."last_seen" as k1,
+       coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false) as due
1-
0+ limit $4
+) s
+ where s.due
22-
