-- The breaker trips for more than max_fraction: a sudden jump, and due times in the absurd past.

alter table lapse.breaker add column cause text not null default 'max_fraction' check (cause in ('max_fraction', 'sudden_jump', 'absurd_past'));
alter table lapse.breaker add column compared bigint not null default 0 check (compared >= 0);
comment on table lapse.breaker is 'Policies of which a run would have deleted more than was to be expected, by the last time of each.';
comment on column lapse.breaker.cause is 'Why it tripped: more than max_fraction, far more than the last runs, or mostly rows of the absurd past.';
comment on column lapse.breaker.compared is 'What the rows that were due were compared with: how many were to be expected, or how many are of the absurd past.';

-- trip opens the breaker of a policy. A crash before it leaves a policy that is judged again before its next run.
drop function lapse.trip(int, int, bigint, bigint);
create function lapse.trip(policy int, version int, cause text, due bigint, table_rows bigint, compared bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  if not pg_has_role(session_user, {{.ExecutorText}}, 'member') then
    raise exception 'only a member of % may open a breaker', {{.ExecutorText}} using errcode = 'insufficient_privilege';
  end if;
  insert into lapse.breaker as b (policy_id, version, cause, due, table_rows, compared)
  select g.policy_id, g.version, trip.cause, trip.due, trip.table_rows, trip.compared
    from lapse.gate g
   where g.policy_id = trip.policy and g.version = trip.version and g.state = 'armed'
  on conflict (policy_id) do update
     set version = excluded.version, at = clock_timestamp(), cause = excluded.cause, due = excluded.due, table_rows = excluded.table_rows,
         compared = excluded.compared, accepted = null, accepted_at = null;
end
$lapse$;
revoke all on function lapse.trip(int, int, text, bigint, bigint, bigint) from public;
grant execute on function lapse.trip(int, int, text, bigint, bigint, bigint) to {{.Executor}};
comment on function lapse.trip is 'Opens the breaker of a policy of which more is due than was to be expected. For the executor.';
