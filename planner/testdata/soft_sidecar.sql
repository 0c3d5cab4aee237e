-- Sets a column of rows of public.carts that are due under policy 'carts' version 1 and not held: one batch, the only work of
-- its transaction. Its one UPDATE has the whole condition. What lapse.find_11_1 returns is added by AND, as values: it can only make it
-- set less, never a row that is not due, is held, or is in another partition. Every refusal is an error, and nothing is set then.
create function lapse.delete_11_1(claim lapse.claim, mac bytea, work lapse.work) returns lapse.outcome
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = 'postgres'
set extra_float_digits = 1
set standard_conforming_strings = on
set quote_all_identifiers = off
set row_security = off
set jit = off
set constraint_exclusion = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $lapse$
declare
  place   lapse.place := lapse.enter(claim, work, 11, 1, 5000, (select caller.proof from lapse.caller));
  bound   timestamp with time zone := claim.cutoff - interval '1 day';
  due     text := 't.tableoid = $3 and r."ten""ant" = t."tenant" and r."id" = t."id" and case when r."until" between ''4713-01-01 BC'' and $2 then r."until" + interval ''1 day'' <= $1 else false end and ((t."gone" IS NOT TRUE))';
  aim     lapse.aim;
  deletion text; these   text[]; this text; before bigint[]; went bigint; gone bigint := 0; outcome lapse.outcome;
  state   text; in_schema text; in_table text; by_name text; in_column text; stack text; -- of the one row that resists
begin
  execute 'lock table only ' || place.leaf || ' in row exclusive mode';
  lock table public."Reg" in row share mode;
  select l.spared, l.ways, l.answers into place.spared, place.ways, place.answers from lapse.look(claim, work, place.leaf) l;
  due := due || case when place.spared = '' then '' else ' and (' || place.spared || ') is not true' end;
  deletion := 'update only ' || place.leaf || ' as t set "gone" = true
  from public."Reg" as r
 where ' || due || ' and ';
  aim := lapse.find_11_1(claim, work, place);
  perform lapse.pin();
  if aim.found_by = 'row' and aim.counted > 0 then
    aim := lapse.lock_rows(claim, work, place, aim, bound, 'only ' || place.leaf || ' as t, public."Reg" as r', due, 'for no key update of t, r skip locked', 'array[(t."id")::text]');
    perform lapse.pin();
  end if;
  these := array['t.ctid = any ($7)'];
  if aim.counted > 0 then
    before := lapse.record(claim, mac, work);
    if coalesce(work.step_over, false) then -- the one row that resists: it stays, and what is in its way is recorded with its key
      begin
        execute deletion || these[1] using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at;
        get diagnostics gone = row_count;
        set constraints all immediate;
      exception when others or query_canceled or assert_failure then
        get stacked diagnostics state = returned_sqlstate, in_schema = schema_name, in_table = table_name, by_name = constraint_name,
          in_column = column_name, stack = pg_exception_context;
        gone := 0;
        before := lapse.resist(claim, work, aim.key, state, in_schema, in_table, by_name, in_column, stack);
        if before is null then raise; end if; -- it is no row's fault
        aim.more := aim.more or state = '55P03';
      end;
    else
      foreach this in array these loop
        execute deletion || this using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at;
        get diagnostics went = row_count;
        gone := gone + went;
        perform lapse.pin();
      end loop;
      if gone > 2 * work.row_limit then
        raise exception 'more than twice as many rows as were counted came into the range meanwhile' using errcode = 'LP023';
      end if;
      set constraints all immediate; -- deferred ones too: here, not at COMMIT
    end if;
    perform lapse.pin();
  end if;
  outcome := lapse.leave(claim, work, greatest(aim.counted, gone), gone, before,
    case when aim.again and gone > 0 then place.cursor else aim.last end, aim.ended and not (aim.again and gone > 0),
    aim.more, aim.locked);
  outcome.locker := aim.locker; outcome.rested := aim.rested;
  return outcome;
end
$lapse$;
-- Says which partitions of public.carts have a row that is due under policy carts version 1 at an instant (null: at
-- this one). A look that finds none is all that the policy costs while nothing is due. It reads no further than the first due row of
-- each, and than 10000 rows that may not be; it changes nothing, waits for nobody, and returns no values.
-- Of many partitions it leaves out those of which the mark is in quiet: see lapse.candidates. Of one in which nothing will be due until
-- something is written to it, it returns the mark, and until when it may be named.
create function lapse.due_11_1(at_cutoff timestamptz, quiet bigint[])
returns table (leaf oid, due boolean, kept boolean, mark bigint, until timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = 'postgres'
set extra_float_digits = 1
set standard_conforming_strings = on
set quote_all_identifiers = off
set row_security = off
set jit = off
set constraint_exclusion = off
set enable_seqscan = off
as $lapse$
declare
  cutoff timestamptz := coalesce(at_cutoff, clock_timestamp());
  bound  timestamp with time zone := cutoff - interval '1 day';
  place  record;
  sight  record;
  spared text;
  stays  text;
  low    text;
  fresh  int := 0;
  read   boolean;
  seen   bigint;
begin
  for place in select * from lapse.candidates(11, 1, '', null,
                                              null, quiet) loop
    leaf := place.leaf;
    mark := null;
    until := place.until;
    due := null; -- not known: somebody has locked it, or too much would have to be read
    kept := true;
    read := false;
    if leaf is null then
      return next; -- how the table is divided is not kept
      continue;
    end if;
    -- What ends by an error gives its locks back: those of a thousand leaves and of their indexes would fill the server's lock table.
    begin
      execute 'lock table only ' || place.name || ' in access share mode nowait';
      lock table only public."Reg" in access share mode nowait;
      read := true;
      if place.mark is not null and to_regclass(place.name) = place.leaf and pg_relation_size(place.leaf) = 0 then
        due := false; -- there is nothing in it
        mark := place.mark;
        raise sqlstate 'LP099';
      end if;
      select * into sight from lapse.inspect_leaf(11, 1, place.leaf, place.name, fresh < 50, (select caller.proof from lapse.caller));
      kept := sight.kept;
      if not kept then
        fresh := fresh + 1;
      end if;
      if sight.spared is not null then
        spared := case when sight.spared = '' then '' else ' and (' || sight.spared || ') is not true' end;
        low := '';
        -- Where nothing is left even without what spares rows, nothing will be due when that ends.
        foreach stays in array case when place.mark is not null and place.settled_leaf then array['', spared] else array[spared] end loop
          execute 'select coalesce(bool_or(s.due), false), count(*) from (
select t.ctid as at, r."until" as k1, (r."ten""ant")::text collate "C" as k2, r."id" as k3,
       t.tableoid = $3 and case when r."until" between ''4713-01-01 BC'' and $2 then r."until" + interval ''1 day'' <= $1 else false end and ((t."gone" IS NOT TRUE)) as due
  from public."Reg" as r
  left join only ' || place.name || ' as t on r."ten""ant" = t."tenant" and r."id" = t."id"
 where r."until" <= $2 and r."until" >= ''4713-01-01 BC''' || low || stays || '
 order by r."until", (r."ten""ant")::text collate "C", r."id"
 limit $4
) s' into due, seen using cutoff, bound, place.leaf, 10000;
          if not due and seen = 10000 then
            due := null;
          end if;
          exit when not due or stays = spared;
        end loop;
        if not due and stays = '' and place.settled_leaf then
          mark := place.mark;
          until := least(until, sight.low_until);
        end if;
      end if;
      raise sqlstate 'LP099'; -- not LP000, which is all of its class
    exception
      when sqlstate 'LP099' then
        null; -- and takes back what code in the condition has set
      when lock_not_available then
        if read then
          raise;
        end if;
    end;
    if due is distinct from false or not kept or mark is not null then
      return next;
    end if;
  end loop;
end
$lapse$;
-- Finds the next rows of public.carts for lapse.delete_11_1, and says by values where they are. It changes nothing: PostgreSQL lets a stable
-- function write, lock or set nothing. The batch's one statement restates the whole condition, and so does at most less.
create function lapse.find_11_1(claim lapse.claim, work lapse.work, place lapse.place) returns lapse.aim
language plpgsql stable
as $lapse$
declare
  aim     lapse.aim;
  bound   timestamp with time zone := claim.cutoff - interval '1 day';
  shape   text := coalesce(work.shape, 'pick');
  kept    text := case when place.spared = '' then '' else ' and (' || place.spared || ') is not true' end;
  after   text := case when place.cursor is not null then ' and (r."until", (r."ten""ant")::text collate "C", r."id") > (($5[1])::timestamp with time zone, ($5[2])::text collate "C", ($5[3])::bigint)' else '' end;
begin
  if shape not in ('pick') then
    raise exception 'this policy''s batches do not find their rows by %', shape using errcode = 'LP022';
  end if;
  if num_nonnulls(place.lower, place.upper, place.modulus) > 0 then
    raise exception 'the shard is a slice, and the policy has none' using errcode = 'LP007';
  end if;
  aim.more := false;
  aim.again := false;
  aim.after := place.cursor;
  aim.found_by := 'row';
  -- The first due rows in the order, of so many candidates and no more.
  execute 'with seen as materialized (
select t.ctid as at, r."until" as k1, (r."ten""ant")::text collate "C" as k2, r."id" as k3,
       t.tableoid = $3 and case when r."until" between ''4713-01-01 BC'' and $2 then r."until" + interval ''1 day'' <= $1 else false end and ((t."gone" IS NOT TRUE)) as due
  from public."Reg" as r
  left join only ' || place.leaf || ' as t on r."ten""ant" = t."tenant" and r."id" = t."id"
 where r."until" <= $2 and r."until" >= ''4713-01-01 BC''' || kept || after || '
 order by r."until", (r."ten""ant")::text collate "C", r."id"
 limit $4 * 8
), due as materialized (
select s.at, s.k1, s.k2, s.k3 from seen s where s.due limit $4
)
select array_agg(d.at), count(*),
       case when count(*) = $4 then (select array[r.k1::text, r.k2::text, r.k3::text] from due r offset (select greatest(count(*) - 1, 0) from due))
            else (select array[r.k1::text, r.k2::text, r.k3::text] from seen r offset (select greatest(count(*) - 1, 0) from seen)) end,
       count(*) < $4 and (select count(*) from seen) < $4 * 8
  from due d'
    into aim.rows_at, aim.counted, aim.last, aim.ended using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at;
  return aim;
end
$lapse$;

-- Counts the rows of public.carts that are due under policy carts at an instant, and says how a batch would find those of
-- its largest partition. It counts no further than at_most (null: to the end; 0: not at all), and then gives PostgreSQL's own
-- estimate. Rows that are held are counted by themselves. Of the largest partition it looks through so many rows (null: all; 0: none) for
-- values that cannot be read. It returns counts, instants, plans and patterns, never values.
create function lapse.survey_11_1(at_cutoff timestamptz, at_most bigint, look_through bigint)
returns table (due bigint, due_is text, oldest timestamptz, newest timestamptz, seen pg_snapshot, leaf oid, plan json, explained text, cascades json, spans json, held bigint, unread json, ahead float8)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = 'postgres'
set standard_conforming_strings = on
set quote_all_identifiers = off
set row_security = off
set jit = off
set constraint_exclusion = off
as $lapse$
declare
  root    oid;
  bound   timestamp with time zone := at_cutoff - interval '1 day';
  source  text := 'from public.carts as t
  join public."Reg" as r on r."ten""ant" = t."tenant" and r."id" = t."id"
 where ';
  rest    text := source || 'r."until" <= $2 and r."until" >= ''4713-01-01 BC''
   and case when r."until" between ''4713-01-01 BC'' and $2 then r."until" + interval ''1 day'' <= $1 else false end and ((t."gone" IS NOT TRUE))';
  spared  text;
  counted bigint := 0;
  whole   jsonb;
  place   text;
  pick    text;
  line    text;
begin
  -- What is looked at cannot be another's view or table by the time that it is read. Reading takes the same lock.
  lock table only public.carts, only public."Reg" in access share mode;
  root := lapse.inspect(11, 1);
  spared := lapse.held_rows(11, 1, (select caller.proof from lapse.caller));
  if spared is null then
    held := 0;
  elsif at_most is distinct from 0 then
    execute 'select count(*) from (select ' || rest || ' and (' || spared || ') is true
         limit $3) h'
      into held using at_cutoff, bound, at_most + 1;
    perform lapse.pin();
  end if;
  rest := rest || coalesce(' and (' || spared || ') is not true', '');
  -- Partitions that cannot have a due row are left out when this is planned: they are not in the plan, and not locked.
  execute 'explain (verbose, format json) select r."until" ' || source || 'r."until" <= $2 and r."until" >= ''4713-01-01 BC''
   and case when r."until" between ''4713-01-01 BC'' and $2 then r."until" + interval ''1 day'' <= $1 else false end and ((t."gone" IS NOT TRUE))' into whole using at_cutoff, bound;
  perform lapse.pin();
  due := (whole #>> '{0, Plan, Plan Rows}')::bigint;
  due_is := 'estimate';
  if at_most is distinct from 0 then
    execute 'select count(*), min(d.due), max(d.due), pg_current_snapshot()
  from (select r."until" as due ' || rest || '
         limit $3) d'
      into counted, oldest, newest, seen using at_cutoff, bound, at_most + 1;
    perform lapse.pin();
    if counted <= at_most or at_most is null then
      due := counted;
      due_is := 'exact';
    elsif due <= at_most then
      due := at_most;
      due_is := 'more_than';
    end if;
  end if;
  select c.oid, format('%I.%I', n.nspname, c.relname) into leaf, place
    from jsonb_path_query(whole, 'strict $.** ? (exists (@."Relation Name"))') w
    join pg_class c on c.relname = w ->> 'Relation Name'
    join pg_namespace n on n.oid = c.relnamespace and n.nspname = w ->> 'Schema'
   where c.oid = root or exists (select from pg_partition_ancestors(c.oid) a where a.relid = root)
   order by c.relpages desc, c.oid
   limit 1;
  if place is not null then
    pick := '
select s.at, s.k1, s.k2, s.k3
  from (
select t.ctid as at, r."until" as k1, (r."ten""ant")::text collate "C" as k2, r."id" as k3,
       t.tableoid is not null and case when r."until" between ''4713-01-01 BC'' and $2 then r."until" + interval ''1 day'' <= $1 else false end and ((t."gone" IS NOT TRUE)) as due
  from public."Reg" as r
  left join only ' || place || ' as t on r."ten""ant" = t."tenant" and r."id" = t."id"
 where r."until" <= $2 and r."until" >= ''4713-01-01 BC''
 order by r."until", (r."ten""ant")::text collate "C", r."id"
 limit $4
) s
 where s.due
 limit $3';
    execute 'explain (format json)' || pick into plan using at_cutoff, bound, 5000, 40000;
    perform lapse.pin();
    for line in execute 'explain' || pick using at_cutoff, bound, 5000, 40000 loop
      explained := concat(explained, line, chr(10));
    end loop;
    perform lapse.pin();
  end if;
  if due_is <> 'exact' then
    -- Of a part that was counted nothing can be said about the whole, unless an index has it in order.
    oldest := null;
    newest := null;
    if at_most > 0 and plan::text ~ '"Index Name"' and plan::text !~ '"Node Type": "(Sort|Incremental Sort)"' then
      execute 'select r."until" ' || rest || ' order by r."until" limit 1' into oldest using at_cutoff, bound;
      perform lapse.pin();
    end if;
  end if;
  cascades := '[]';
  return next;
end
$lapse$;
revoke all on function lapse.find_11_1(lapse.claim, lapse.work, lapse.place) from public;
revoke all on function lapse.delete_11_1(lapse.claim, bytea, lapse.work) from public;
grant execute on function lapse.delete_11_1(lapse.claim, bytea, lapse.work) to "lapse_executor";
revoke all on function lapse.survey_11_1(timestamptz, bigint, bigint) from public;
grant execute on function lapse.survey_11_1(timestamptz, bigint, bigint) to "lapse_executor";
revoke all on function lapse.due_11_1(timestamptz, bigint[]) from public;
grant execute on function lapse.due_11_1(timestamptz, bigint[]) to "lapse_executor";

grant create on schema lapse to "lapse_deleter_0";
alter function lapse.find_11_1(lapse.claim, lapse.work, lapse.place) owner to "lapse_deleter_0";
alter function lapse.delete_11_1(lapse.claim, bytea, lapse.work) owner to "lapse_deleter_0";
alter function lapse.survey_11_1(timestamptz, bigint, bigint) owner to "lapse_deleter_0";
alter function lapse.due_11_1(timestamptz, bigint[]) owner to "lapse_deleter_0";
revoke create on schema lapse from "lapse_deleter_0";
