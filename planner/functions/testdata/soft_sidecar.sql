-- What differs from sidecar.sql, for this policy's table. 2+ is a line in place of two, 0+ one that is put in, 2- leaves two out.
@@ lapse.delete_11_1, in place of d48bc82b
3+-- Sets a column of rows of public.carts that are due under policy 'carts' version 1 and not held: one batch, the only work of
+-- its transaction. Its one UPDATE, run once for each portion of rows, has the whole condition. What lapse.find_11_1 returns is added by AND, as values: it can only make it
+-- set less, never a row that is not due, is held, or is in another partition. Every refusal is an error, and nothing is set then.
1+  due     text := 't.tableoid = $3 and r."ten""ant" = case when t.ctid is not null then t."tenant" end and r."id" = case when t.ctid is not null then t."id" end and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false) and ((t."gone" IS NOT TRUE))';
1+      aim := lapse.lock_rows(claim, work, place, aim, bound, 'only ' || place.leaf || ' as t, public."Reg" as r', due, 'for no key update of t, r skip locked', 'array[(t."id")::text]');
2+    deletion := 'update only ' || place.leaf || ' as t set "gone" = true
+  from ' || case aim.found_by when 'row' then 'public."Reg" as r' else '(select r."until", r."ten""ant", r."id" from public."Reg" as r where r.ctid = any ($7) for no key update) as r' end || '
@@ lapse.due_11_1, in place of c0272e3a
1+       t.tableoid = $3 and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false) and ((t."gone" IS NOT TRUE)) as due
@@ lapse.find_11_1, in place of 2562d97b
6-
1+       ' || own || ' and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false) and ((t."gone" IS NOT TRUE)) as due
@@ lapse.survey_11_1, in place of 58d51394
1+   and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false) and ((t."gone" IS NOT TRUE))';
1+   and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false) and ((t."gone" IS NOT TRUE))' into whole using at_cutoff, bound;
1+       t.tableoid is not null and coalesce(r."until" <= $2 and r."until" >= ''4713-01-01 BC'', false) and ((t."gone" IS NOT TRUE)) as due
8+  cascades := '[]';
