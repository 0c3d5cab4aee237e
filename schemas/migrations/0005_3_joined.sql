-- The relations that a policy's condition reads beside its table: a sidecar. They are held to what apply saw of them, as the
-- table is, and nothing of anybody's may run when a batch reads them. What these functions are for is described in
-- 0003_4_batch.sql.

alter table lapse.policy add column joined jsonb not null default '[]';
comment on column lapse.policy.joined is 'the relations that the condition reads beside the table: [{oid, name, columns}]';

-- joined lists those relations.
create function lapse.joined(policy int, version int) returns oid[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return array(select r.oid
                 from lapse.policy p
                cross join lateral jsonb_to_recordset(p.joined) r(oid oid)
                where p.id = joined.policy and p.version = joined.version);
end
$lapse$;
revoke all on function lapse.joined(int, int) from public;
comment on function lapse.joined is 'Relations that a policy version''s condition reads beside its table.';

-- same_table raises unless the policy version's table, and what is joined to it, and their columns are those that apply saw,
-- and returns the table.
drop function lapse.same_table(int, int);
create function lapse.same_table(policy int, version int) returns oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  p       record;
  j       record;
  changed text;
begin
  select v.table_oid, v.table_name, v.columns, v.joined into p
    from lapse.policy v
   where v.id = same_table.policy and v.version = same_table.version;
  if not exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                  where c.oid = p.table_oid and format('%I.%I', n.nspname, c.relname) = p.table_name) then
    raise exception '% is gone, renamed or another table', p.table_name using errcode = 'LP005';
  end if;
  changed := lapse.changed_columns(p.table_oid, p.columns);
  if changed is not null then
    raise exception 'the columns of % are not those that the policy was applied to: %; run `lapse apply` again', p.table_name, changed
      using errcode = 'LP011';
  end if;
  for j in select * from jsonb_to_recordset(p.joined) r(oid oid, name text, columns jsonb) loop
    if not exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                    where c.oid = j.oid and c.relkind = 'r' and not c.relispartition and format('%I.%I', n.nspname, c.relname) = j.name
                      and c.relowner = (select t.relowner from pg_class t where t.oid = p.table_oid)) then
      raise exception '%, which says when rows of % are due, is gone, renamed, another table or another owner''s', j.name, p.table_name
        using errcode = 'LP005';
    end if;
    changed := lapse.changed_columns(j.oid, j.columns);
    if changed is not null then
      raise exception 'the columns of % are not those that the policy was applied to: %; run `lapse apply` again', j.name, changed
        using errcode = 'LP011';
    end if;
  end loop;
  return p.table_oid;
end
$lapse$;
revoke all on function lapse.same_table(int, int) from public;

-- look compares the leaf, which is locked, with what apply saw. leaf is the name that was locked.
drop function lapse.look(lapse.claim, lapse.work, text);
create function lapse.look(claim lapse.claim, work lapse.work, leaf text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  shard   record;
  root    oid;
  touched oid[];
  stranger text;
begin
  select s.policy_id, s.version into shard
    from lapse.shard s
   where s.id = work.shard and s.entered = pg_current_xact_id() and s.batch = claim.batch and s.leaf = claim.target;
  if not found or not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'no batch was entered in this transaction' using errcode = 'LP018';
  end if;
  root := lapse.same_table(shard.policy_id, shard.version);
  if not exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                  where c.oid = claim.target and c.relkind = 'r' and format('%I.%I', n.nspname, c.relname) = look.leaf)
     or claim.target <> root and not exists (select from pg_partition_ancestors(claim.target) a where a.relid = root) then
    raise exception '% is not a leaf of the policy''s table', look.leaf using errcode = 'LP005';
  end if;
  if exists (select from lapse.unseen(array[claim.target])) then
    raise exception 'deletes from % or from what its foreign keys reach would not be seen by the audit', look.leaf
      using errcode = 'LP012';
  end if;
  stranger := lapse.distrusted(shard.policy_id, shard.version, array[claim.target] || lapse.joined(shard.policy_id, shard.version));
  if stranger is not null then
    raise exception '% would run inside the deletion from %, and is not what the policy was applied to', stranger, look.leaf
      using errcode = 'LP006';
  end if;
  select coalesce(array_agg(r.relation order by r.relation) filter (where r.deletes), '{}') into touched
    from lapse.reach(array[claim.target]) r;
  if touched is distinct from claim.cascades then
    raise exception 'the relations that foreign keys reach are not those of the claim' using errcode = 'LP002';
  end if;
end
$lapse$;
revoke all on function lapse.look(lapse.claim, lapse.work, text) from public;

-- inspect asks about a policy's whole table what look asks about one leaf, before a survey reads it: about every leaf, and
-- every partitioned partition that has none, and so about all that is above them. It returns the table.
drop function lapse.inspect(int, int);
create function lapse.inspect(policy int, version int) returns oid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
declare
  root oid;
  ends oid[];
  stranger text;
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may count what is due', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  root := lapse.same_table(inspect.policy, inspect.version);
  ends := array(
    with recursive tree(relation) as (
      select root
      union
      select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.relation
    )
    select tree.relation from tree where not exists (select from pg_inherits i where i.inhparent = tree.relation));
  stranger := lapse.distrusted(inspect.policy, inspect.version, ends || lapse.joined(inspect.policy, inspect.version));
  if stranger is not null then
    raise exception '% would run, and is not what the policy was applied to', stranger using errcode = 'LP006';
  end if;
  return root;
end
$lapse$;
revoke all on function lapse.inspect(int, int) from public;

do $do$
declare
  deleter name;
begin
  for deleter in select d.role from lapse.deleter d join pg_roles r on r.rolname = d.role loop
    execute format('grant execute on function lapse.look(lapse.claim, lapse.work, text), lapse.inspect(int, int) to %I', deleter);
  end loop;
end
$do$;
