-- Deletes rows of public.sessions that are due under policy 'sessions-30d' version 3 and not held: one batch, the only work of
-- its transaction. Its one DELETE, run once for each portion of rows, has the whole condition. What lapse.find_1_3 returns is added by AND, as values: it can only make it
-- delete less, never a row that is not due, is held, or is in another partition. Every refusal is an error, and nothing is deleted then.
create function lapse.delete_1_3(claim lapse.claim, mac bytea, work lapse.work) returns lapse.outcome
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
as $lapse$
declare
  place   lapse.place := lapse.enter(claim, work, 1, 3, 5000, (select caller.proof from lapse.caller));
  bound   timestamp with time zone := claim.cutoff - interval '30 days';
  due     text := 't.tableoid = $3 and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false)';
  lower_1 timestamp with time zone := place.lower[1];
  upper_1 timestamp with time zone := place.upper[1];
  slice   text := case when place.lower[1] is null then '' else ' and t."last_seen" > (select $8)' end
                  || case when place.upper[1] is null then '' else ' and t."last_seen" <= (select $9)' end;
  after_1 timestamp with time zone;
  after   text;
  aim     lapse.aim;
  last_1  timestamp with time zone;
  from_at tid; upto_at tid;
  deletion text; before lapse.tally; portions lapse.portions; gone bigint; outcome lapse.outcome;
  state   text; in_schema text; in_table text; by_name text; in_column text; stack text; -- of the one row that resists
begin
  perform lapse.pin();
  execute 'lock table only ' || place.leaf || ' in row exclusive mode';
  select l.spared, l.ways, l.answers into place.spared, place.ways, place.answers from lapse.check_leaf(claim, work, place.leaf) l;
  due := due || case when place.spared = '' then '' else ' and (' || place.spared || ') is not true' end;
  loop
    portions := lapse.next_portion(portions, work, aim, gone); -- pauses
    exit when portions.over;
    place.cursor := coalesce(aim.last, place.cursor);
    after_1 := place.cursor[1];
    after := case when place.cursor[1] is not null then ' and t."last_seen" > (select $11)'
                  when place.cursor is null and place.low is not null then ' and t."last_seen" > (select ' || quote_literal((place.low - interval '30 days')::timestamp with time zone) || '::timestamp with time zone)' else ' and t."last_seen" >= ''4713-01-01 BC''' end;
    aim := lapse.find_1_3(claim, work, place);
    perform lapse.pin();
    if aim.found_by = 'row' and aim.counted > 0 then
      aim := lapse.lock_rows(claim, work, place, aim, bound, 'only ' || place.leaf || ' as t', due, 'for update skip locked', 'array[(t."id")::text]');
      perform lapse.pin();
    end if;
    deletion := 'delete from only ' || place.leaf || ' as t
 where ' || due || ' and ';
    from_at := aim.after[2]; upto_at := aim.last[2];
    last_1 := aim.last[1];
    deletion := deletion || case aim.found_by when 'row' then 't.ctid = any ($7)'
      when 'page' then 't.ctid > $5 and t.ctid <= $6' || slice
      when 'tie' then case when aim.last[4]::boolean then 't."last_seen" <= (select $2) and t."last_seen" = $10' else '(t."last_seen" = $10) is true' end || ' and t.ctid > $5 and t.ctid <= $6'
      else 't."last_seen" <= (select $2) and t."last_seen" <= (select $10)' || slice || after end;
    gone := 0;
    if aim.counted > 0 then
      if portions.picked = 0 then before := lapse.record(claim, mac, work); end if;
      if coalesce(work.step_over, false) then -- the one row that resists: it stays, and what is in its way is recorded with its key
        begin
          execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
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
        execute deletion using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
        get diagnostics gone = row_count;
        perform lapse.pin();
        if gone > 2 * work.row_limit then
          raise exception 'more than twice as many rows as were counted came into the range meanwhile' using errcode = 'LP023';
        end if;
        set constraints all immediate; -- deferred ones too: here, not at COMMIT
      end if;
      perform lapse.pin();
    end if;
  end loop;
  outcome := lapse.leave(claim, work, portions, before,
    case when aim.again and gone > 0 then place.cursor else aim.last end, aim.ended and not (aim.again and gone > 0), aim.locked);
  outcome.locker := aim.locker; outcome.quarantined := aim.quarantined;
  if outcome.finished then perform lapse.clear(claim, work); end if;
  return outcome;
end
$lapse$;
-- Says which partitions of public.sessions have a row that is due under policy sessions-30d version 3 at an instant (null: at
-- this one). A look that finds none is all that the policy costs while nothing is due. Of each it reads no more than
-- the first due row; it changes nothing, waits for nobody, and returns no values.
-- Of many partitions it leaves out those whose mark is in quiet: see lapse.candidates. Of one in which nothing will be due until
-- something is written to it, it returns the mark, and until when it may be named.
create function lapse.due_1_3(at_cutoff timestamptz, quiet bigint[])
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
#variable_conflict use_variable
declare
  cutoff timestamptz := coalesce(at_cutoff, clock_timestamp());
  bound  timestamp with time zone := cutoff - interval '30 days';
  place  record;
  sight  record;
  spared text;
  stays  text;
  low    text;
  low_at timestamp with time zone;
  read   boolean;
begin
  for place in select * from lapse.candidates(1, 3, 'last_seen', bound::timestamp,
                                              bound::timestamp - interval '0 days', quiet) loop
    leaf := place.leaf;
    mark := null;
    until := place.until;
    due := null; -- not known: somebody has locked it, its checks are to be made first, or too much would have to be read
    kept := true;
    read := false;
    if leaf is null then
      return next; -- how the table is divided is not kept
      continue;
    end if;
    -- What ends by an error gives its locks back: those of a thousand leaves and of their indexes would fill the server's lock table.
    begin
      if place.name = 'public.sessions' then -- not put together, so it is parsed once
        lock table only public.sessions in access share mode nowait;
      else
        execute 'lock table only ' || place.name || ' in access share mode nowait';
      end if;
      read := true;
      if place.mark is not null and to_regclass(place.name) = place.leaf and pg_relation_size(place.leaf) = 0 then
        due := false; -- there is nothing in it
        mark := place.mark;
        raise sqlstate 'LP099';
      end if;
      select * into sight from lapse.inspect_leaf(1, 3, place.leaf, place.name, (select caller.proof from lapse.caller));
      kept := sight.kept;
      if sight.spared is not null then
        spared := case when sight.spared = '' then '' else ' and (' || sight.spared || ') is not true' end;
        low := '
   and t."last_seen" >= ''4713-01-01 BC''';
        low_at := sight.low - interval '30 days';
        if low_at is not null then -- dead rows of former runs are not read past
          low := '
   and t."last_seen" > (select $5)';
        end if;
        -- Where nothing is left even without what spares rows, nothing will be due when that ends.
        foreach stays in array case when place.mark is not null and place.settled_leaf then array['', spared] else array[spared] end loop
          if stays <> '' or place.name <> 'public.sessions' then
            execute 'select exists (select from (
select t.ctid as at, t."last_seen" as k1
  from only ' || place.name || ' as t
 where t."last_seen" <= (select $2)
   and t.tableoid = $3 and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false)' || low || stays || '
 order by t."last_seen"
 limit $4
) s)' into due using cutoff, bound, place.leaf, 1, low_at;
          elsif low_at is not null then -- PostgreSQL keeps the plans of statements that are not put together
            select exists (select from (
select t.ctid as at, t."last_seen" as k1
  from only public.sessions as t
 where t."last_seen" <= (select bound)
   and t.tableoid = place.leaf and coalesce(t."last_seen" <= bound and t."last_seen" >= '4713-01-01 BC', false)
   and t."last_seen" > (select low_at)
 order by t."last_seen"
 limit 1
) s) into due;
          else
            select exists (select from (
select t.ctid as at, t."last_seen" as k1
  from only public.sessions as t
 where t."last_seen" <= (select bound)
   and t.tableoid = place.leaf and coalesce(t."last_seen" <= bound and t."last_seen" >= '4713-01-01 BC', false)
   and t."last_seen" >= '4713-01-01 BC'
 order by t."last_seen"
 limit 1
) s) into due;
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
-- Finds the next rows of public.sessions for lapse.delete_1_3, and says by values where they are. It changes nothing: PostgreSQL lets a stable
-- function write, lock or set nothing, and lapse.pin gives it its settings back where code of the table's may have run. The batch's one
-- statement restates the whole condition, and so does at most less.
create function lapse.find_1_3(claim lapse.claim, work lapse.work, place lapse.place) returns lapse.aim
language plpgsql stable
as $lapse$
#variable_conflict use_variable
declare
  aim     lapse.aim;
  bound   timestamp with time zone := claim.cutoff - interval '30 days';
  shape   text := coalesce(work.shape, 'range');
  kept    text := case when place.spared = '' then '' else ' and (' || place.spared || ') is not true' end;
  picks   boolean := shape in ('pick', 'heap pick') or place.ways is not null or coalesce(work.step_over or work.careful, false);
  rows_at text := case when picks then 'array_agg(d.at)' else 'null::tid[]' end;
  file    text := pg_relation_filenode(claim.target);
  tail    text := ' and t.ctid > $5 and t.ctid < $6 limit $4';
  from_at tid;
  upto_at tid;
  found   tid;
  few     boolean;
  places  timestamp with time zone[];
  last_1  timestamp with time zone;
  edge    timestamp with time zone;
  lower_1 timestamp with time zone := place.lower[1];
  upper_1 timestamp with time zone := place.upper[1];
  slice   text := case when place.lower[1] is null then '' else ' and t."last_seen" > (select $8)' end
                  || case when place.upper[1] is null then '' else ' and t."last_seen" <= (select $9)' end;
  after_1 timestamp with time zone := place.cursor[1];
  after   text := case when place.cursor[1] is not null then ' and t."last_seen" > (select $11)'
                  when place.cursor is null and place.low is not null then ' and t."last_seen" > (select ' || quote_literal((place.low - interval '30 days')::timestamp with time zone) || '::timestamp with time zone)' else ' and t."last_seen" >= ''4713-01-01 BC''' end;
begin
  if shape not in ('range', 'pick', 'heap', 'heap pick') then
    raise exception 'this policy''s batches do not find their rows by %', shape using errcode = 'LP022';
  end if;
  if shape in ('range', 'pick') and num_nonnulls(place.lower[2], place.upper[2]) > 0 then
    raise exception 'the shard is a range of the file, and the batch goes by the order' using errcode = 'LP022';
  end if;
  if place.modulus is not null then
    raise exception 'the shard is a hash slice, and the policy has ranges' using errcode = 'LP007';
  end if;
  aim.more := false;
  aim.again := false;
  aim.after := place.cursor;
  if shape in ('range', 'pick') and (aim.after[2] is null or aim.after[2] = '(4294967294,65535)') then
    aim.found_by := case when picks then 'row' else 'place' end;
    -- The first due rows in the order, and one more than fits: no value is cut at the edge.
    if not picks and place.leaf = 'public.sessions' and kept = '' and slice = '' and after_1 is not null then
      select array_agg(d.k1) into places from ( -- not put together, so PostgreSQL keeps its plan
select t."last_seen" as k1
  from only public.sessions as t
 where t."last_seen" <= (select bound)
   and t."last_seen" > (select after_1)
 order by t."last_seen" limit work.row_limit + 1
) d;
    else
    execute 'select ' || rows_at || ', array_agg(d.k1) from (
' || case when picks then 'select t.ctid as at, t."last_seen" as k1
  from only ' || place.leaf || ' as t
 where t."last_seen" <= (select $2)
   and t.tableoid = $3 and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false)' else 'select t."last_seen" as k1
  from only ' || place.leaf || ' as t
 where t."last_seen" <= (select $2)' end || kept || slice || after || '
 order by t."last_seen" limit $4 + 1
) d'
      into aim.rows_at, places using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
    end if;
    perform lapse.pin();
    aim.counted := coalesce(cardinality(places), 0);
    if aim.counted > work.row_limit then
      edge := places[aim.counted];
    end if;
    if edge is not null then
      aim.counted := array_position(places, edge) - 1;
      aim.rows_at := aim.rows_at[1:aim.counted];
    end if;
    last_1 := places[aim.counted];
    if edge is null or last_1 is not null then
      aim.last := array[last_1::text];
      aim.ended := edge is null;
      return aim;
    end if;
    -- All of them have the value at the edge. Where these are not many they are read by the index for each batch.
    last_1 := edge;
    execute 'select count(*) <= 16 * $4 + 20000 from (select from only ' || place.leaf || ' as t where t."last_seen" <= (select $2) and t."last_seen" = $10 limit 16 * $4 + 20000 + 1) s'
      into few using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
    perform lapse.pin();
    aim.after := array[edge::text, '(0,0)', file, few::text];
  end if;
  -- The first due rows of some pages, in the order of the table's file. In a file that was rewritten rows are elsewhere.
  aim.found_by := case when picks then 'row' when aim.after[1] is not null then 'tie' else 'page' end;
  if file is distinct from aim.after[3] then
    aim.after := array[aim.after[1], coalesce(place.lower[2], '(0,0)'), file, aim.after[4]];
  end if;
  from_at := aim.after[2];
  upto_at := least(format('(%s,0)', ((aim.after[2]::point)[0])::bigint + work.row_limit / 2 + 32)::tid, place.upper[2]::tid);
  last_1 := aim.after[1];
  few := aim.after[4];
  if few then
    upto_at := '(4294967294,65535)';
    tail := ' and t."last_seen" <= (select $2) and t."last_seen" = $10 and t.ctid > $5 order by t.ctid limit $4';
  elsif last_1 is not null then
    tail := ' and (t."last_seen" = $10) is true' || tail;
  end if;
  execute 'select ' || rows_at || ', count(*), max(d.at) from (
select t.ctid as at
  from only ' || place.leaf || ' as t
 where t.tableoid = $3
   and (coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false)) is true' || kept || '
   and (true' || slice || ') is true' || tail || '
) d'
    into aim.rows_at, aim.counted, found using claim.cutoff, bound, claim.target, work.row_limit, from_at, upto_at, aim.rows_at, lower_1, upper_1, last_1, after_1;
  perform lapse.pin();
  aim.ended := aim.counted < work.row_limit and ((upto_at::text::point)[0])::bigint
    >= least(pg_relation_size(claim.target) / current_setting('block_size')::bigint, ((place.upper[2]::point)[0])::bigint);
  upto_at := case when aim.counted = work.row_limit then found when aim.ended then coalesce(place.upper[2]::tid, '(4294967294,65535)') else upto_at end;
  aim.last := array[aim.after[1], upto_at::text, file, aim.after[4]];
  aim.ended := aim.ended and last_1 is null;
  return aim;
end
$lapse$;


-- Counts the rows of public.sessions that are due under policy sessions-30d at an instant, and says how a batch would find those of
-- its largest partition. It counts no further than at_most (null: to the end; 0: not at all), and then gives PostgreSQL's own
-- estimate. Rows that are held are counted by themselves. Of the largest partition it looks through so many rows (null: all; 0: none) for
-- values that cannot be read; with 0 it does not count what cascades delete either. It returns counts, instants, plans and patterns, never values.
create function lapse.survey_1_3(at_cutoff timestamptz, at_most bigint, look_through bigint)
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
  bound   timestamp with time zone := at_cutoff - interval '30 days';
  source  text := 'from public.sessions as t
 where ';
  rest    text := source || 't."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC''
   and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false)';
  spared  text;
  counted bigint := 0;
  whole   jsonb;
  place   text;
  pick    text;
  line    text;
begin
  -- What is checked cannot be another's view or table by the time that it is read. Reading takes the same lock.
  lock table only public.sessions in access share mode;
  root := lapse.inspect(1, 3);
  spared := lapse.held_rows(1, 3, (select caller.proof from lapse.caller));
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
  execute 'explain (verbose, format json) select t."last_seen" ' || source || 't."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC''' into whole using at_cutoff, bound;
  perform lapse.pin();
  due := (whole #>> '{0, Plan, Plan Rows}')::bigint;
  due_is := 'estimate';
  if at_most is distinct from 0 then
    execute 'select count(*), min(d.due), max(d.due), pg_current_snapshot()
  from (select t."last_seen" as due ' || rest || '
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
   cross join lateral (select n.oid, n.nspname from pg_namespace n where n.nspname = w ->> 'Schema' offset 0) n
   cross join lateral (select c.oid, c.relname, c.relpages from pg_class c where c.relname = w ->> 'Relation Name' and c.relnamespace = n.oid offset 0) c
   where c.oid = root or exists (select from pg_partition_ancestors(c.oid) a where a.relid = root)
   order by c.relpages desc, c.oid
   limit 1;
  if place is not null then
    pick := '
select t.ctid as at, t."last_seen" as k1
  from only ' || place || ' as t
 where t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC''
   and coalesce(t."last_seen" <= $2 and t."last_seen" >= ''4713-01-01 BC'', false)
 order by t."last_seen"
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
      execute 'select t."last_seen" ' || rest || ' order by t."last_seen" limit 1' into oldest using at_cutoff, bound;
      perform lapse.pin();
    end if;
  end if;
  -- How the rows of leaves with much that is due lie in time, by the statistics of PostgreSQL: nothing of the table is read.
  if (whole #>> '{0, Plan, Plan Rows}')::float8 >= 40000 then
    select json_agg(json_build_object('leaf', l.oid::bigint, 'rows', l.rows, 'of', l.of, 'correlation', s.correlation,
             'tie', (select max(c.part) from unnest(s.most_common_vals::text::timestamp with time zone[], s.most_common_freqs) c(at, part) where c.at <= bound) * l.of,
             'marks', m.marks) order by l.rows desc, l.oid) into spans
      from (select c.oid, n.nspname, c.relname, sum((w ->> 'Plan Rows')::float8) as rows, c.reltuples as of
              from jsonb_path_query(whole, 'strict $.** ? (exists (@."Relation Name"))') w
              join pg_class c on c.relname = w ->> 'Relation Name'
              join pg_namespace n on n.oid = c.relnamespace and n.nspname = w ->> 'Schema'
             where c.oid = root or exists (select from pg_partition_ancestors(c.oid) a where a.relid = root)
             group by c.oid, n.nspname, c.relname, c.reltuples
            having sum((w ->> 'Plan Rows')::float8) >= 40000) l
      join pg_stats s on s.schemaname = l.nspname and s.tablename = l.relname and s.attname = 'last_seen' and not s.inherited
     cross join lateral (
        select json_agg(v.at::timestamptz order by v.at) as marks
          from (select u.at, row_number() over (order by u.at) as n, count(*) over () as marks
                  from (select distinct x.at
                          from unnest(s.histogram_bounds::text::timestamp with time zone[] || s.most_common_vals::text::timestamp with time zone[]) x(at)
                         where x.at between '0001-01-01' and bound) u) v
         where v.n % greatest(v.marks / 100, 1) = 0) m
     where m.marks is not null;
  end if;
  if at_most is distinct from 0 and look_through is distinct from 0 then
    cascades := '[]';
    pick := lapse.cascade_statement(root, rest);
    if pick is not null then
      execute pick into cascades using at_cutoff, bound, case when due_is <> 'exact' then 10000 end;
      perform lapse.pin();
    end if;
  end if;
  return next;
end
$lapse$;
revoke all on function lapse.find_1_3(lapse.claim, lapse.work, lapse.place) from public;
revoke all on function lapse.delete_1_3(lapse.claim, bytea, lapse.work) from public;
grant execute on function lapse.delete_1_3(lapse.claim, bytea, lapse.work) to "lapse_executor";
revoke all on function lapse.survey_1_3(timestamptz, bigint, bigint) from public;
grant execute on function lapse.survey_1_3(timestamptz, bigint, bigint) to "lapse_executor";
revoke all on function lapse.due_1_3(timestamptz, bigint[]) from public;
grant execute on function lapse.due_1_3(timestamptz, bigint[]) to "lapse_executor";

grant create on schema lapse to "lapse_deleter_0";
alter function lapse.find_1_3(lapse.claim, lapse.work, lapse.place) owner to "lapse_deleter_0";
alter function lapse.delete_1_3(lapse.claim, bytea, lapse.work) owner to "lapse_deleter_0";
alter function lapse.survey_1_3(timestamptz, bigint, bigint) owner to "lapse_deleter_0";
alter function lapse.due_1_3(timestamptz, bigint[]) owner to "lapse_deleter_0";
revoke create on schema lapse from "lapse_deleter_0";
