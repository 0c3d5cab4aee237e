-- The breaker of max_fraction: a run that would delete more of its table than that is not begun until somebody says yes.

create table lapse.breaker (
  policy_id   int primary key,
  version     int not null,
  at          timestamptz not null default clock_timestamp(),
  due         bigint not null check (due >= 0),
  table_rows  bigint not null check (table_rows >= 0),
  accepted    bigint check (accepted > 0),
  accepted_at timestamptz
);
comment on table lapse.breaker is 'Policies whose max_fraction a run would have gone beyond, by the last time of each.';
comment on column lapse.breaker.policy_id is 'The policy.';
comment on column lapse.breaker.version is 'Its version then: another one is judged anew.';
comment on column lapse.breaker.at is 'When the breaker tripped.';
comment on column lapse.breaker.due is 'How many rows were due.';
comment on column lapse.breaker.table_rows is 'How many rows the table had, by PostgreSQL''s statistics.';
comment on column lapse.breaker.accepted is 'How many rows somebody let go, by the next run to begin and no other; null: the breaker is open.';
comment on column lapse.breaker.accepted_at is 'When.';

-- trip opens the breaker of a policy. A crash before it leaves a policy that is judged again before its next run.
create function lapse.trip(policy int, version int, due bigint, table_rows bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may open a breaker', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  insert into lapse.breaker as b (policy_id, version, due, table_rows)
  select g.policy_id, g.version, trip.due, trip.table_rows
    from lapse.gate g
   where g.policy_id = trip.policy and g.version = trip.version and g.state = 'armed'
  on conflict (policy_id) do update
     set version = excluded.version, at = clock_timestamp(), due = excluded.due, table_rows = excluded.table_rows,
         accepted = null, accepted_at = null;
end
$lapse$;
comment on function lapse.trip is 'Opens the breaker of a policy of which more than max_fraction is due. For the executor.';

revoke all on function lapse.trip(int, int, bigint, bigint) from public;
grant execute on function lapse.trip(int, int, bigint, bigint) to {{.Executor}};
grant select on lapse.breaker to {{.Executor}};
