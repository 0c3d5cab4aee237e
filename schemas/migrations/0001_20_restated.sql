-- A repetition of what is in force, for a log that may have missed its history: after the slot was made, after another history was accepted,
-- and after somebody else changed the publications. The first beat after each of these writes it, in its own transaction.

create table lapse.restated (
  number  bigint generated always as identity primary key,
  what    text not null check (what in ('policy', 'halt', 'hold', 'quarantine')),
  columns jsonb not null,
  at      timestamptz not null default clock_timestamp()
);
create trigger append_only before update or delete or truncate on lapse.restated
  for each statement execute function lapse.refuse_change();
comment on table lapse.restated is 'What was in force when the log may have missed earlier changes; append-only and published. Written by beat.';
comment on column lapse.restated.number is 'Order of the rows.';
comment on column lapse.restated.what is 'policy: the version in force, and its state; halt: nothing may be deleted; hold: a hold that is not released, and its state; quarantine: how many rows of a table are in it.';
comment on column lapse.restated.columns is 'The row''s columns, as texts.';
comment on column lapse.restated.at is 'When.';

-- as_texts returns a row with each column as PostgreSQL writes it.
create function lapse.as_texts(columns jsonb) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $lapse$
  select coalesce(jsonb_object_agg(c.key, c.value), '{}') from jsonb_each_text(as_texts.columns) c where c.value is not null
$lapse$;
comment on function lapse.as_texts is 'A row with each column as a text.';

create function lapse.restate() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
as $lapse$
begin
  insert into lapse.restated (what, columns)
  select 'policy', lapse.as_texts(jsonb_build_object('id', p.id, 'version', p.version, 'name', p.name, 'table_oid', p.table_oid, 'table_name', p.table_name,
           'spec', p.spec, 'made_at', p.made_at::text, 'made_by', p.made_by, 'reason', p.reason, 'state', g.state, 'held_back', g.held_back))
    from lapse.gate g
    join lapse.policy p on p.id = g.policy_id and p.version = g.version
   where g.state <> 'dropped'
   order by g.policy_id;
  insert into lapse.restated (what, columns)
  select 'halt', lapse.as_texts(jsonb_build_object('id', h.id, 'halted', case when h.halted then 't' end, 'at', h.at::text, 'by', h.by, 'reason', h.reason,
           'alarm', case when h.alarm then 't' end))
    from (select * from lapse.halt l order by l.id desc limit 1) h
   where h.halted;
  insert into lapse.restated (what, columns)
  select 'hold', lapse.as_texts(jsonb_build_object('id', h.id, 'table_oid', coalesce(m.table_oid, h.table_oid), 'table_name', coalesce(m.table_name, h.table_name),
           'keys', h.keys, 'digest', h.digest, 'matter', h.matter, 'reason', h.reason, 'placed_at', h.placed_at::text, 'placed_by', h.placed_by,
           'state', s.state, 'enforced_until', s.enforced_until::text, 'position', s.position))
    from lapse.hold h
   cross join lateral (select * from lapse.hold_state o where o.hold = h.id order by o.id desc limit 1) s
    left join lateral (select * from lapse.hold_state o where o.hold = h.id and o.table_oid is not null order by o.id desc limit 1) m on true
   where s.state <> 'released'
   order by h.id;
  insert into lapse.restated (what, columns)
  select 'quarantine', lapse.as_texts(jsonb_build_object('policy_id', q.policy_id, 'policy', g.name, 'leaf', q.leaf,
           'name', case when c.oid is not null then format('%I.%I', n.nspname, c.relname) end, 'rows', q.rows))
    from (select o.policy_id, o.leaf, count(*) as rows from lapse.quarantine o group by o.policy_id, o.leaf) q
    left join lapse.gate g on g.policy_id = q.policy_id
    left join pg_class c on c.oid = q.leaf
    left join pg_namespace n on n.oid = c.relnamespace
   order by q.policy_id, q.leaf;
end
$lapse$;
comment on function lapse.restate is 'Writes again what is in force.';
