-- How far ahead of the last cutoff a clock may be that nobody asks about depends on how far apart a policy's runs are: the version
-- says so in "apart" where its cron leaves out days. Otherwise a yearly policy would ask about the clock before each of its runs.

-- measure says what the next cutoff of a policy is compared with: the last cutoff since a person said that the clock is
-- right, or else that instant, or else when the policy was last armed; and how far ahead of it a clock may be that nobody
-- asks about: 31 days and twice what lies between two runs.
drop function lapse.measure(int);
create function lapse.measure(policy int) returns table (last timestamptz, reach interval)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
#variable_conflict use_column
declare
  accepted record;
begin
  select c.accepted, c.after_run into accepted from lapse.clock c order by c.id desc limit 1;
  return query
  select coalesce(
           (select max(r.cutoff) from lapse.run r
             where r.policy_id = g.policy_id and r.number > coalesce(accepted.after_run, 0)),
           accepted.accepted,
           (select max(s.changed_at) from lapse.policy_state s where s.policy_id = g.policy_id and s.state = g.state),
           p.made_at),
         interval '31 days' + 2 * coalesce((p.spec ->> 'every')::interval, (p.spec ->> 'apart')::interval, interval '1 day')
    from lapse.gate g
    join lapse.policy p on p.id = g.policy_id and p.version = g.version
   where g.policy_id = measure.policy;
end
$lapse$;
revoke all on function lapse.measure(int) from public;
grant execute on function lapse.measure(int) to {{.Executor}};
