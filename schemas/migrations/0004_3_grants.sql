-- The rights on the functions of this version that were made anew: as 0003_6_grants.sql has them, and for each deleter as
-- `lapse apply` gives them. Each is named: the deleters own functions of this schema too, which are not {{.Owner}}'s to revoke.

revoke all on function
  lapse.lease_time(), lapse.lease(uuid, text), lapse.open_run(int, int, uuid), lapse.enter(lapse.claim, lapse.work, int, int, int),
  lapse.leave(lapse.claim, lapse.work, bigint, bigint, bigint[], text[], boolean) from public;
grant execute on function lapse.open_run(int, int, uuid), lapse.lease(uuid, text) to {{.Executor}};

do $do$
declare
  deleter name;
begin
  for deleter in select d.role from lapse.deleter d join pg_roles r on r.rolname = d.role loop
    execute format('grant execute on function lapse.enter(lapse.claim, lapse.work, int, int, int),
                    lapse.leave(lapse.claim, lapse.work, bigint, bigint, bigint[], text[], boolean) to %I', deleter);
  end loop;
end
$do$;
