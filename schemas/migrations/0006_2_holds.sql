-- Legal holds.

-- held is SQL that is true of the rows t of a leaf that are held, null where none are.
create function lapse.held(policy int, version int, leaf oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return null;
end
$lapse$;
comment on function lapse.held is 'SQL that is true of the held rows of a leaf; null where there are none.';
