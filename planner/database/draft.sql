-- Raises unless table root has this name, and nothing of anybody's would run when it is read; or, of what a policy trusts, unless
-- the login that counts is the table's owner: nobody else lends such code his rights. joined are the tables that its rows are joined with.
-- soft: rows are updated and not deleted. reads: rows are only read, so triggers and rules are no matter. A session makes it once, and
-- keeps its plans for all the tables that it counts.
create function pg_temp.inspect(root oid, name text, joined oid[], soft boolean, trusted boolean, reads boolean) returns oid
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $lapse$
declare
  ends oid[];
begin
  if not exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                  where c.oid = root and c.relkind in ('r', 'p') and format('%I.%I', n.nspname, c.relname) = name) then
    raise exception '% is gone, renamed or another table', name using errcode = 'LP005';
  end if;
  if trusted and current_user = (select pg_get_userbyid(c.relowner) from pg_class c where c.oid = root) then
    return root;
  end if;
  ends := array(
    with recursive tree(relation) as (
      select root
      union
      select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.relation
    )
    select tree.relation from tree where not exists (select from pg_inherits i where i.inhparent = tree.relation));
  if not exists (select from pg_temp.intruders(ends || joined, soft) i
                  where not (reads or trusted) or i.class = 'pg_proc'::regclass) then
    return root;
  end if;
  if reads then
    raise exception 'functions of somebody''s would run when % is read', name using errcode = 'LP006';
  elsif trusted then
    raise exception 'functions that the policy trusts would run with the rights of %, who is not the owner of %', current_user, name
      using errcode = 'LP006';
  end if;
  raise exception 'triggers, rules or functions on the table or on what its foreign keys reach would run' using errcode = 'LP006';
end
$lapse$;
grant execute on function pg_temp.inspect to public;

-- The function that counts, which each count replaces until it is rolled back. So the functions of all counts have one oid, and PL/pgSQL lets go of
-- what it prepared for one when it compiles the next.
create function pg_temp.survey(at_cutoff timestamptz, at_most bigint, look_through bigint)
returns table (due bigint, due_is text, oldest timestamptz, newest timestamptz, seen pg_snapshot, leaf oid, plan json, explained text, cascades json, spans json, held bigint, unread json, ahead float8)
language plpgsql as 'begin end';
grant execute on function pg_temp.survey to public;
