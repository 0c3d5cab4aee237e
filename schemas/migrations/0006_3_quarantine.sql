-- Rows that could not be deleted.

-- resting is SQL that is true of the rows t of a leaf that are in quarantine and not to be tried yet, null where none are.
create function lapse.resting(policy int, version int, leaf oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  return null;
end
$lapse$;
comment on function lapse.resting is 'SQL that is true of the rows of a leaf that are in quarantine and not to be tried yet; null where there are none.';
