-- Deletes rows of shop.t that are due under policy 'p' version 2 and not held: one batch, the only work of
-- its transaction. Its one DELETE has the whole condition. What lapse.find_1_2 returns is added by AND, as values: it can only make it
-- delete less, never a row that is not due, is held, or is in another partition. Every refusal is an error, and nothing is deleted then.
create function lapse.delete_1_2(claim lapse.claim, mac bytea, work lapse.work) returns lapse.outcome
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
  place   lapse.place := lapse.enter(claim, work, 1, 2, 100, (select caller.proof from lapse.caller));
  bound   text := to_char(least(claim.cutoff - interval '00:00:00' + interval '1 day', '9999-12-31') at time zone 'UTC', 'YYYY-MM-DD') || '~';
  due     text := 't.tableoid = $3 and case when ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 then case when case when (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") >= ''0001'' and (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") ~ ''^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?$'' then substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 9, 2) <= case substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 6, 2) when ''02'' then case when substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 4 = 0 and (substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 100 <> 0 or substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 400 = 0) then ''29'' else ''28'' end when ''04'' then ''30'' when ''06'' then ''30'' when ''09'' then ''30'' when ''11'' then ''30'' else ''31'' end else false end then ((left((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 10) || left(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 16))::timestamp at time zone ''UTC'' + case when substr(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 17) > ''000'' then interval ''1 microsecond'' else interval ''0'' end - case when length(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1)))) > 1 then rpad(left(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 3) || '':'' || right(substr(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 4), 2), 6, ''0'')::interval else interval ''0'' end) + interval ''00:00:00'' <= $1 else false end else false end';
  after   text := case when place.cursor is not null then ' and (((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C"), t."id") > (($5[1])::text collate "C", ($5[2])::integer)' else '' end;
  aim     lapse.aim;
  deletion text; these   text[]; this text; before bigint[]; went bigint; gone bigint := 0; outcome lapse.outcome;
  state   text; in_schema text; in_table text; by_name text; in_column text; stack text; -- of the one row that resists
begin
  execute 'lock table only ' || place.leaf || ' in row exclusive mode';
  select l.spared, l.ways, l.answers into place.spared, place.ways, place.answers from lapse.look(claim, work, place.leaf) l;
  due := due || case when place.spared = '' then '' else ' and (' || place.spared || ') is not true' end;
  deletion := 'delete from only ' || place.leaf || ' as t
 where ' || due || ' and ';
  aim := lapse.find_1_2(claim, work, place);
  perform lapse.pin();
  if aim.found_by = 'row' and aim.counted > 0 then
    aim := lapse.lock_rows(claim, work, place, aim, bound, 'only ' || place.leaf || ' as t', due, 'for update skip locked', 'array[(t."id")::text]');
    perform lapse.pin();
  end if;
  these := case aim.found_by when 'row' then array['t.ctid = any ($7)']
    when 'page' then array['t.ctid > ($5[1])::tid and t.ctid <= ($6[1])::tid']
    when 'tie' then array['((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 and ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") >= ''0001'' and ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") = ($6[1])::text collate "C" and (t."id") > (($5[2])::integer) and (t."id") <= (($6[2])::integer)']
    else array['((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 and ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") >= ''0001'' and ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") < ($6[1])::text collate "C"' || after,
      '((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 and ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") >= ''0001'' and ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") = ($6[1])::text collate "C" and (t."id") <= (($6[2])::integer)'] end;
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
    aim.more or aim.found_by = 'page' and aim.counted > gone, aim.locked);
  outcome.locker := aim.locker; outcome.rested := aim.rested;
  return outcome;
end
$lapse$;
-- Says which partitions of shop.t have a row that is due under policy p version 2 at an instant (null: at
-- this one). A look that finds none is all that the policy costs while nothing is due. It reads no further than the first due row of
-- each, and than 10000 rows that may not be; it changes nothing, waits for nobody, and returns no values.
-- Of many partitions it leaves out those of which the mark is in quiet: see lapse.candidates. Of one in which nothing will be due until
-- something is written to it, it returns the mark, and until when it may be named.
create function lapse.due_1_2(at_cutoff timestamptz, quiet bigint[])
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
  bound  text := to_char(least(cutoff - interval '00:00:00' + interval '1 day', '9999-12-31') at time zone 'UTC', 'YYYY-MM-DD') || '~';
  place  record;
  sight  record;
  spared text;
  stays  text;
  low    text;
  fresh  int := 0;
  read   boolean;
  seen   bigint;
begin
  for place in select * from lapse.candidates(1, 2, '', null,
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
      read := true;
      if place.mark is not null and to_regclass(place.name) = place.leaf and pg_relation_size(place.leaf) = 0 then
        due := false; -- there is nothing in it
        mark := place.mark;
        raise sqlstate 'LP099';
      end if;
      select * into sight from lapse.inspect_leaf(1, 2, place.leaf, place.name, fresh < 50, (select caller.proof from lapse.caller));
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
select t.ctid as at, ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") as k1, t."id" as k2,
       t.tableoid = $3 and case when ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 then case when case when (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") >= ''0001'' and (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") ~ ''^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?$'' then substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 9, 2) <= case substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 6, 2) when ''02'' then case when substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 4 = 0 and (substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 100 <> 0 or substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 400 = 0) then ''29'' else ''28'' end when ''04'' then ''30'' when ''06'' then ''30'' when ''09'' then ''30'' when ''11'' then ''30'' else ''31'' end else false end then ((left((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 10) || left(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 16))::timestamp at time zone ''UTC'' + case when substr(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 17) > ''000'' then interval ''1 microsecond'' else interval ''0'' end - case when length(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1)))) > 1 then rpad(left(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 3) || '':'' || right(substr(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 4), 2), 6, ''0'')::interval else interval ''0'' end) + interval ''00:00:00'' <= $1 else false end else false end as due
  from only ' || place.name || ' as t
 where ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 and ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") >= ''0001''' || low || stays || '
 order by ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C"), t."id"
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
-- Finds the next rows of shop.t for lapse.delete_1_2, and says by values where they are. It changes nothing: PostgreSQL lets a stable
-- function write, lock or set nothing. The batch's one statement restates the whole condition, and so does at most less.
create function lapse.find_1_2(claim lapse.claim, work lapse.work, place lapse.place) returns lapse.aim
language plpgsql stable
as $lapse$
declare
  aim     lapse.aim;
  bound   text := to_char(least(claim.cutoff - interval '00:00:00' + interval '1 day', '9999-12-31') at time zone 'UTC', 'YYYY-MM-DD') || '~';
  shape   text := coalesce(work.shape, 'range');
  kept    text := case when place.spared = '' then '' else ' and (' || place.spared || ') is not true' end;
  picks   boolean := shape in ('pick', 'heap pick') or place.ways is not null or coalesce(work.step_over or work.careful, false);
  rows_at text := case when picks then 'array_agg(d.at)' else 'null::tid[]' end;
  file    text;
  page    bigint;
  after   text := case when place.cursor is not null then ' and (((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C"), t."id") > (($5[1])::text collate "C", ($5[2])::integer)' else '' end;
begin
  if shape not in ('range', 'pick', 'heap', 'heap pick') then
    raise exception 'this policy''s batches do not find their rows by %', shape using errcode = 'LP022';
  end if;
  if num_nonnulls(place.lower, place.upper, place.modulus) > 0 then
    raise exception 'the shard is a slice, and the policy has none' using errcode = 'LP007';
  end if;
  aim.more := false;
  aim.again := false;
  aim.after := place.cursor;
  if shape in ('heap', 'heap pick') then
    -- The first due rows of some pages, in the order of the table's file. In a file that was written anew rows are elsewhere.
    aim.found_by := case when picks then 'row' else 'page' end;
    file := pg_relation_filenode(claim.target)::text;
    if file is distinct from aim.after[2] then
      aim.after := array['(0,0)', file];
    end if;
    page := ((aim.after[1]::point)[0])::bigint + work.row_limit / 2 + 32;
    aim.last := array[format('(%s,0)', page), file];
    execute 'select ' || rows_at || ', count(*), case when count(*) = $4 then array[max(d.at)::text, $6[2]] else $6 end
  from (
select t.ctid as at
  from only ' || place.leaf || ' as t
 where t.tableoid = $3
   and (case when ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 then case when case when (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") >= ''0001'' and (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") ~ ''^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?$'' then substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 9, 2) <= case substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 6, 2) when ''02'' then case when substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 4 = 0 and (substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 100 <> 0 or substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 400 = 0) then ''29'' else ''28'' end when ''04'' then ''30'' when ''06'' then ''30'' when ''09'' then ''30'' when ''11'' then ''30'' else ''31'' end else false end then ((left((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 10) || left(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 16))::timestamp at time zone ''UTC'' + case when substr(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 17) > ''000'' then interval ''1 microsecond'' else interval ''0'' end - case when length(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1)))) > 1 then rpad(left(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 3) || '':'' || right(substr(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 4), 2), 6, ''0'')::interval else interval ''0'' end) + interval ''00:00:00'' <= $1 else false end else false end) is true' || kept || '
   and t.ctid > ($5[1])::tid and t.ctid < ($6[1])::tid
 limit $4
) d'
      into aim.rows_at, aim.counted, aim.last using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at;
    aim.ended := aim.counted < work.row_limit and page >= pg_relation_size(claim.target) / current_setting('block_size')::bigint;
    return aim;
  end if;
  aim.found_by := case when picks then 'row' else 'place' end;
  -- The first due rows in the order, of so many candidates and no more.
  execute 'with seen as materialized (
select t.ctid as at, ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") as k1, t."id" as k2,
       t.tableoid = $3 and case when ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 then case when case when (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") >= ''0001'' and (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") ~ ''^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?$'' then substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 9, 2) <= case substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 6, 2) when ''02'' then case when substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 4 = 0 and (substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 100 <> 0 or substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 400 = 0) then ''29'' else ''28'' end when ''04'' then ''30'' when ''06'' then ''30'' when ''09'' then ''30'' when ''11'' then ''30'' else ''31'' end else false end then ((left((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 10) || left(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 16))::timestamp at time zone ''UTC'' + case when substr(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 17) > ''000'' then interval ''1 microsecond'' else interval ''0'' end - case when length(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1)))) > 1 then rpad(left(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 3) || '':'' || right(substr(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 4), 2), 6, ''0'')::interval else interval ''0'' end) + interval ''00:00:00'' <= $1 else false end else false end as due
  from only ' || place.leaf || ' as t
 where ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 and ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") >= ''0001''' || kept || after || '
 order by ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C"), t."id"
 limit $4 * 8
), due as materialized (
select s.at, s.k1, s.k2 from seen s where s.due limit $4
)
select ' || rows_at || ', count(*),
       case when count(*) = $4 then (select array[r.k1::text, r.k2::text] from due r offset (select greatest(count(*) - 1, 0) from due))
            else (select array[r.k1::text, r.k2::text] from seen r offset (select greatest(count(*) - 1, 0) from seen)) end,
       count(*) < $4 and (select count(*) from seen) < $4 * 8
  from due d'
    into aim.rows_at, aim.counted, aim.last, aim.ended using claim.cutoff, bound, claim.target, work.row_limit, aim.after, aim.last, aim.rows_at;
  -- Equal values are a range of what follows them in the order: as one comparison, PostgreSQL 14 and 15 read through all of them.
  aim.found_by := case when aim.found_by = 'place' and aim.after[1] = aim.last[1] then 'tie' else aim.found_by end;
  return aim;
end
$lapse$;

-- Counts the rows of shop.t that are due under policy p at an instant, and says how a batch would find those of
-- its largest partition. It counts no further than at_most (null: to the end; 0: not at all), and then gives PostgreSQL's own
-- estimate. Rows that are held are counted by themselves. Of the largest partition it looks through so many rows (null: all; 0: none) for
-- values that cannot be read. It returns counts, instants, plans and patterns, never values.
create function lapse.survey_1_2(at_cutoff timestamptz, at_most bigint, look_through bigint)
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
  bound   text := to_char(least(at_cutoff - interval '00:00:00' + interval '1 day', '9999-12-31') at time zone 'UTC', 'YYYY-MM-DD') || '~';
  source  text := 'from shop.t as t
 where ';
  rest    text := source || '((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 and ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") >= ''0001''
   and case when ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 then case when case when (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") >= ''0001'' and (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") ~ ''^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?$'' then substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 9, 2) <= case substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 6, 2) when ''02'' then case when substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 4 = 0 and (substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 100 <> 0 or substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 400 = 0) then ''29'' else ''28'' end when ''04'' then ''30'' when ''06'' then ''30'' when ''09'' then ''30'' when ''11'' then ''30'' else ''31'' end else false end then ((left((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 10) || left(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 16))::timestamp at time zone ''UTC'' + case when substr(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 17) > ''000'' then interval ''1 microsecond'' else interval ''0'' end - case when length(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1)))) > 1 then rpad(left(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 3) || '':'' || right(substr(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 4), 2), 6, ''0'')::interval else interval ''0'' end) + interval ''00:00:00'' <= $1 else false end else false end';
  spared  text;
  counted bigint := 0;
  whole   jsonb;
  place   text;
  pick    text;
  line    text;
begin
  -- What is looked at cannot be another's view or table by the time that it is read. Reading takes the same lock.
  lock table only shop.t in access share mode;
  root := lapse.inspect(1, 2);
  spared := lapse.held_rows(1, 2, (select caller.proof from lapse.caller));
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
  execute 'explain (verbose, format json) select ((left(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 10) || left(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 16))::timestamp at time zone ''UTC'' + case when substr(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 17) > ''000'' then interval ''1 microsecond'' else interval ''0'' end - case when length(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11 + length(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1)))) > 1 then rpad(left(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11 + length(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 3) || '':'' || right(substr(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11 + length(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 4), 2), 6, ''0'')::interval else interval ''0'' end) ' || source || '((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 and ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") >= ''0001''
   and case when ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 then case when case when (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") >= ''0001'' and (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") ~ ''^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?$'' then substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 9, 2) <= case substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 6, 2) when ''02'' then case when substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 4 = 0 and (substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 100 <> 0 or substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 400 = 0) then ''29'' else ''28'' end when ''04'' then ''30'' when ''06'' then ''30'' when ''09'' then ''30'' when ''11'' then ''30'' else ''31'' end else false end then ((left((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 10) || left(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 16))::timestamp at time zone ''UTC'' + case when substr(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 17) > ''000'' then interval ''1 microsecond'' else interval ''0'' end - case when length(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1)))) > 1 then rpad(left(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 3) || '':'' || right(substr(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 4), 2), 6, ''0'')::interval else interval ''0'' end) + interval ''00:00:00'' <= $1 else false end else false end' into whole using at_cutoff, bound;
  perform lapse.pin();
  due := (whole #>> '{0, Plan, Plan Rows}')::bigint;
  due_is := 'estimate';
  if at_most is distinct from 0 then
    execute 'select count(*), min(d.due), max(d.due), pg_current_snapshot()
  from (select ((left(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 10) || left(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 16))::timestamp at time zone ''UTC'' + case when substr(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 17) > ''000'' then interval ''1 microsecond'' else interval ''0'' end - case when length(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11 + length(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1)))) > 1 then rpad(left(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11 + length(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 3) || '':'' || right(substr(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11 + length(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 4), 2), 6, ''0'')::interval else interval ''0'' end) as due ' || rest || '
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
select s.at, s.k1, s.k2
  from (
select t.ctid as at, ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") as k1, t."id" as k2,
       case when ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 then case when case when (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") >= ''0001'' and (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") ~ ''^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?$'' then substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 9, 2) <= case substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 6, 2) when ''02'' then case when substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 4 = 0 and (substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 100 <> 0 or substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 400 = 0) then ''29'' else ''28'' end when ''04'' then ''30'' when ''06'' then ''30'' when ''09'' then ''30'' when ''11'' then ''30'' else ''31'' end else false end then ((left((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 10) || left(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 16))::timestamp at time zone ''UTC'' + case when substr(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 17) > ''000'' then interval ''1 microsecond'' else interval ''0'' end - case when length(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1)))) > 1 then rpad(left(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 3) || '':'' || right(substr(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11 + length(split_part(translate(substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 4), 2), 6, ''0'')::interval else interval ''0'' end) + interval ''00:00:00'' <= $1 else false end else false end as due
  from only ' || place || ' as t
 where ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") <= $2 and ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") >= ''0001''
 order by ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C"), t."id"
 limit $4
) s
 where s.due
 limit $3';
    execute 'explain (format json)' || pick into plan using at_cutoff, bound, 100, 800;
    perform lapse.pin();
    for line in execute 'explain' || pick using at_cutoff, bound, 100, 800 loop
      explained := concat(explained, line, chr(10));
    end loop;
    perform lapse.pin();
    if look_through is distinct from 0 then
      execute '
  with looked as (
    select case when case jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) when ''null'' then false when ''number'' then not (false) when ''string'' then not (case when (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") >= ''0001'' and (substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C") ~ ''^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?$'' then substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 9, 2) <= case substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 6, 2) when ''02'' then case when substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 4 = 0 and (substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 100 <> 0 or substr((substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) collate "C"), 1, 4)::int % 400 = 0) then ''29'' else ''28'' end when ''04'' then ''30'' when ''06'' then ''30'' when ''09'' then ''30'' when ''11'' then ''30'' else ''31'' end else false end) else jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) is not null end then case jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) when ''number'' then regexp_replace(regexp_replace((left((t."doc" #>> ''{meta,valid.to}''::text[]), 40) collate "C"), ''[^ -@[-`{-~]'', ''a'', ''g''), ''[0-9]'', ''9'', ''g'') || case when octet_length((t."doc" #>> ''{meta,valid.to}''::text[])) > 40 then ''...'' else '''' end when ''string'' then ''"'' || regexp_replace(regexp_replace((left((t."doc" #>> ''{meta,valid.to}''::text[]), 40) collate "C"), ''[^ -@[-`{-~]'', ''a'', ''g''), ''[0-9]'', ''9'', ''g'') || case when octet_length((t."doc" #>> ''{meta,valid.to}''::text[])) > 40 then ''...'' else '''' end || ''"'' else jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) end end as pattern
      from (select t."doc" from ' || place || ' as t limit $1) t
  ), alike as (
    select pattern, count(*) as n from looked where pattern is not null group by pattern
  )
  select json_build_object(''rows'', coalesce(sum(n), 0), ''of'', (select count(*) from looked), ''arrays'', coalesce(sum(n) filter (where pattern = ''array''), 0),
           ''patterns'', (select json_agg(a.pattern) from (select pattern from alike order by n desc, pattern limit 3) a))
    from alike' into unread using look_through;
      perform lapse.pin();
    end if;
  end if;
  if due_is <> 'exact' then
    -- Of a part that was counted nothing can be said about the whole, unless an index has it in order.
    oldest := null;
    newest := null;
    if at_most > 0 and plan::text ~ '"Index Name"' and plan::text !~ '"Node Type": "(Sort|Incremental Sort)"' then
      execute 'select ((left(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 10) || left(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 16))::timestamp at time zone ''UTC'' + case when substr(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1), 17) > ''000'' then interval ''1 microsecond'' else interval ''0'' end - case when length(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11 + length(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1)))) > 1 then rpad(left(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11 + length(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 3) || '':'' || right(substr(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11 + length(split_part(translate(substr(((t."doc" #>> ''{meta,valid.to}''::text[]) collate "C"), 11), ''Z-'', ''++''), ''+'', 1))), 4), 2), 6, ''0'')::interval else interval ''0'' end) ' || rest || ' order by ((CASE jsonb_typeof((t."doc" #> ''{meta,valid.to}''::text[])) WHEN ''string''::text THEN substr((t."doc" #>> ''{meta,valid.to}''::text[]), 1, 36) ELSE NULL::text END) collate "C") limit 1' into oldest using at_cutoff, bound;
      perform lapse.pin();
    end if;
  end if;
  pick := lapse.cascade_statement(root, rest);
  cascades := '[]';
  if pick is not null then
    cascades := null;
    if at_most is distinct from 0 then
      execute pick into cascades using at_cutoff, bound, case when due_is <> 'exact' then 10000 end;
      perform lapse.pin();
    end if;
  end if;
  return next;
end
$lapse$;
revoke all on function lapse.find_1_2(lapse.claim, lapse.work, lapse.place) from public;
revoke all on function lapse.delete_1_2(lapse.claim, bytea, lapse.work) from public;
grant execute on function lapse.delete_1_2(lapse.claim, bytea, lapse.work) to "lapse_executor";
revoke all on function lapse.survey_1_2(timestamptz, bigint, bigint) from public;
grant execute on function lapse.survey_1_2(timestamptz, bigint, bigint) to "lapse_executor";
revoke all on function lapse.due_1_2(timestamptz, bigint[]) from public;
grant execute on function lapse.due_1_2(timestamptz, bigint[]) to "lapse_executor";

grant create on schema lapse to "lapse_deleter_0";
alter function lapse.find_1_2(lapse.claim, lapse.work, lapse.place) owner to "lapse_deleter_0";
alter function lapse.delete_1_2(lapse.claim, bytea, lapse.work) owner to "lapse_deleter_0";
alter function lapse.survey_1_2(timestamptz, bigint, bigint) owner to "lapse_deleter_0";
alter function lapse.due_1_2(timestamptz, bigint[]) owner to "lapse_deleter_0";
revoke create on schema lapse from "lapse_deleter_0";
