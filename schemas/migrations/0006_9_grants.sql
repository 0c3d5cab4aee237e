-- Rights and comments of what this version makes anew: as 0003_6_grants.sql has them, and for each deleter as `lapse apply`
-- gives them. What executor and auditor get, in this file or another, is in schemas/rights.go once more: init gives it back to a role
-- that was dropped and made again. Each is named: the deleters own functions of this schema too, which are not {{.Owner}}'s to revoke.

revoke all on function
  lapse.enter(lapse.claim, lapse.work, int, int, int, bytea), lapse.look(lapse.claim, lapse.work, text), lapse.record(lapse.claim, bytea, lapse.work),
  lapse.leave(lapse.claim, lapse.work, bigint, bigint, bigint[], text[], boolean, boolean, oid[]), lapse.held(int, int, oid), lapse.resting(int, int, oid),
  lapse.open_run(int, int, uuid, oid[], timestamptz[], oid[], bigint), lapse.surroundings(oid[], boolean), lapse.intruders(oid[], boolean), lapse.signature(oid[], oid[], oid[], oid[], oid[]),
  lapse.familiar(int, int, oid), lapse.examine(int, int, oid), lapse.unpromised(int, int, oid), lapse.keep(int, int, oid), lapse.looked(int, int), lapse.measure(int),
  lapse.tree_signature(oid[]), lapse.tree_of(oid, name), lapse.candidates(int, int, name, timestamp, timestamp, bigint[]), lapse.inspect_leaf(int, int, oid, text, boolean, bytea), lapse.acquaint(int, int, oid[], name), lapse.few_leaves() from public;
grant execute on function lapse.open_run(int, int, uuid, oid[], timestamptz[], oid[], bigint), lapse.intruders(oid[], boolean), lapse.acquaint(int, int, oid[], name),
  lapse.looked(int, int), lapse.measure(int) to {{.Executor}};
grant select on lapse.looked to {{.Executor}}, {{.Auditor}};

do $do$
declare
  deleter name;
begin
  for deleter in select d.role from lapse.deleter d join pg_roles r on r.rolname = d.role loop
    execute format('grant execute on function lapse.enter(lapse.claim, lapse.work, int, int, int, bytea), lapse.look(lapse.claim, lapse.work, text),
                    lapse.record(lapse.claim, bytea, lapse.work), lapse.candidates(int, int, name, timestamp, timestamp, bigint[]), lapse.inspect_leaf(int, int, oid, text, boolean, bytea),
                    lapse.resist(lapse.claim, lapse.work, text[], text, text, text, text, text, text), lapse.resting_keys(int, int, oid, timestamptz, bytea),
                    lapse.leave(lapse.claim, lapse.work, bigint, bigint, bigint[], text[], boolean, boolean, oid[]),
                    lapse.clear(lapse.claim, lapse.work) to %I', deleter);
  end loop;
end
$do$;

comment on column lapse.place.spared is 'SQL that is true of rows t which must stay: held, or in quarantine; empty where there are none.';
comment on column lapse.shard.in_heap is 'Whether the cursor is the address of a row with the file that it is in, and no place in the order of the index.';
comment on column lapse.work.shape is 'How the batch finds its rows: range, pick, heap or heap pick, as far as its policy has them; null: the usual one.';
comment on column lapse.work.step_over is 'The batch is one row that resists: it stays, and is entered in the quarantine.';
comment on function lapse.enter is 'Lets a batch in, or refuses it: checks claim, gate, lease, clock and auditor. First in every deletion function.';
comment on function lapse.look is 'Compares the leaf, which is locked, with what apply saw.';
comment on function lapse.record is 'Writes the ledger row of a batch before it deletes.';
comment on function lapse.leave is 'Counts what a batch deleted, writes its result and moves the shard on. Last in every deletion function.';
comment on function lapse.open_run is 'The policy''s run to go on with, or the next one. For the executor.';
