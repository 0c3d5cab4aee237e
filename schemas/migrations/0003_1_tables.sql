-- The catalog of Lapse: schema "lapse" in the user's database.
--
-- {{.Owner}}, {{.Executor}} and {{.Auditor}} are the roles of this installation, already quoted. The scripts of one
-- number run in one transaction, as a role that may become {{.Owner}}. Everything here belongs to {{.Owner}}; the
-- functions per policy, which `lapse apply` makes, belong to the deleters, one for each owner of tables.
--
--   installation   one row: schema version, slot, fingerprints of the keys       written by init
--   policy         every version of every policy, append-only, published         written by planner (apply)
--   policy_state   every change of state, append-only, published                 written by planner, advance_arming
--   gate           what is in force now; the lock that batches and changes share written by planner, advance_arming
--   deleter        the roles that own functions, one for each owner of tables    written by setup (apply)
--   halt           the switch that stops every deletion, append-only             written by pause and resume --all, alarm
--   clock          the instants at which a person said that the clock is right   written by `lapse clock accept`
--   run, shard     what is being deleted, and how far it has come                written by open_run, lease, enter, leave ...
--   batch          the ledger: what each batch claims, append-only, published    written by record
--   batch_result   what each batch did, append-only, published                   written by leave
--   heartbeat      the auditor's sign of life, published                         written by beat
--   history        the histories of this database, append-only                   written by init, `lapse history accept`
--   publication    the publications as Lapse left them                           written by record_publications
--   published      the tables in them as Lapse left them                         written by record_publications, record_published
--
-- Every column that a login other than the owner's can fill is bounded.

create schema lapse;
revoke all on schema lapse from public;
grant usage on schema lapse to {{.Executor}}, {{.Auditor}};
comment on schema lapse is 'Lapse: row TTL with proof';

create table lapse.installation (
  only_row       boolean primary key default true check (only_row),
  schema_version int not null,
  slot           name not null,
  slot_start     pg_lsn,                       -- the slot's consistent point; null until the slot is made
  slot_made_at   timestamptz,                  -- when it was
  audit_required boolean not null default true,
  keys           jsonb not null default '{}',  -- fingerprint of each key, by the key's name
  installed_at   timestamptz not null default clock_timestamp(),
  publication_faults     bigint not null default 0, -- how often a command found the publications changed by somebody else
  publication_fault_text text check (octet_length(publication_fault_text) <= 2000) -- what it found last
);

create table lapse.policy (
  id         int not null,
  version    int not null check (version > 0),
  name       text not null check (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
  table_oid  oid not null,
  table_name text not null,                    -- schema.table, quoted where SQL wants it
  columns    jsonb not null,                   -- [{name, number, type}] that the functions were made for; type may be null
  spec       jsonb not null,                   -- the policy file's entry, normalised
  made_at    timestamptz not null default clock_timestamp(),
  made_by    text not null default session_user,
  reason     text not null default '',
  primary key (id, version)
);

create table lapse.policy_state (
  policy_id  int not null,
  version    int not null,
  state      text not null check (state in ('observing', 'arming', 'armed', 'paused', 'dropped')),
  changed_at timestamptz not null default clock_timestamp(),
  changed_by text not null default session_user,
  reason     text not null default '',
  foreign key (policy_id, version) references lapse.policy
);
create index on lapse.policy_state (policy_id, changed_at);

-- One row per policy. A batch locks the table ROW SHARE until it commits; whoever changes a row locks the table
-- EXCLUSIVE first, and so waits until no batch runs under what was in force before.
create table lapse.gate (
  policy_id    int primary key,
  name         text not null,
  table_oid    oid not null,
  version      int not null,
  state        text not null check (state in ('observing', 'arming', 'armed', 'paused', 'dropped')),
  held_back    int,                            -- the version that waits for a yes; null for none. See planner/arming.go
  hold_version bigint not null default 0,
  arming_lsn   pg_lsn,                         -- the auditor must have confirmed this before the policy deletes
  foreign key (policy_id, version) references lapse.policy
);
create unique index gate_name  on lapse.gate (name)      where state <> 'dropped';
create unique index gate_table on lapse.gate (table_oid) where state <> 'dropped';

create table lapse.deleter (
  role    name primary key,
  owner   oid not null,                        -- the role that it is a member of, or whose tables it has rights on
  made_at timestamptz not null default clock_timestamp()
);

-- The last row says whether anything may be deleted in this database.
create table lapse.halt (
  id     bigint generated always as identity primary key,
  halted boolean not null,
  at     timestamptz not null default clock_timestamp(),
  by     text not null default session_user,
  reason text not null check (octet_length(reason) <= 2000),
  alarm  boolean not null default false
);

-- After a jump of the server's clock a person says which time is right. Runs up to after_run are no measure any more.
create table lapse.clock (
  id        bigint generated always as identity primary key,
  accepted  timestamptz not null default clock_timestamp(),
  after_run bigint not null,
  by        text not null default session_user,
  reason    text not null check (octet_length(reason) <= 2000)
);

create table lapse.run (
  run        uuid primary key,
  number     bigint not null generated always as identity unique,
  policy_id  int not null,
  version    int not null,
  cutoff     timestamptz not null check (isfinite(cutoff)),
  started_at timestamptz not null default clock_timestamp(),
  foreign key (policy_id, version) references lapse.policy
);
create index on lapse.run (policy_id, number);

create table lapse.shard (
  id          bigint generated always as identity primary key,
  run         uuid not null references lapse.run on delete cascade,
  policy_id   int not null,
  version     int not null,
  leaf        oid not null,                    -- the table, or one partition of it
  cutoff      timestamptz not null check (isfinite(cutoff)),
  holder      text check (octet_length(holder) <= 300),
  term        bigint not null default 0,       -- grows with every lease; a former holder's term is refused
  lease_until timestamptz,
  entered     xid8,                            -- the transaction whose batch is under way, and the batch
  batch       uuid,
  pass        smallint not null default 1,     -- 2: the residual pass, for rows that were locked or moved in the first
  cursor      text[],                          -- where the pick goes on; emptied when the shard is done
  picked      bigint not null default 0,
  deleted     bigint not null default 0,
  done        boolean not null default false,
  left_behind boolean not null default false,  -- done, and due rows are left: somebody has them locked
  aside       boolean not null default false,  -- a row resisted: not tried again in this run
  tries       int not null default 0,          -- how often in a row this leaf resisted, runs before included
  retry_at    timestamptz,                     -- when it is tried again
  sqlstate    text check (octet_length(sqlstate) = 5),
  unique (run, leaf)
);
create index on lapse.shard (policy_id) where not done;

-- What a batch says of itself before it deletes anything; the MAC beside it is made with a key that is not in the database.
create type lapse.claim as (
  system_identifier text, database_oid oid, history int, timeline int, xid xid8, started_at timestamptz, batch uuid, policy_id int,
  policy text, policy_version int, run uuid, cutoff timestamptz, hold_version bigint, target oid, cascades oid[], functions bytea
);
-- Which shard a batch works on, under which lease, and how many rows it may take.
create type lapse.work as (shard bigint, term bigint, holder text, row_limit int);
-- Where a shard stands when a batch begins. leaf is its name in SQL.
create type lapse.place as (leaf text, cursor text[], pass smallint);
-- What a batch did.
create type lapse.outcome as (picked bigint, deleted bigint, finished boolean, left_behind boolean, by_relation jsonb);

create table lapse.batch (
  batch             uuid primary key,
  policy_id         int not null,
  policy            text not null check (octet_length(policy) <= 63),
  policy_version    int not null,
  run               uuid not null,
  cutoff            timestamptz not null,
  hold_version      bigint not null,
  target            oid not null,
  cascades          oid[] not null check (cardinality(cascades) <= 100000),
  functions         bytea not null check (octet_length(functions) = 32), -- SHA-256 over the text of what ran
  system_identifier text not null check (octet_length(system_identifier) <= 20),
  database_oid      oid not null,
  history           int not null,
  timeline          int not null,
  xid               xid8 not null,
  started_at        timestamptz not null,
  mac               bytea not null check (octet_length(mac) = 32)
);

create table lapse.batch_result (
  batch       uuid primary key,
  picked      bigint not null,
  deleted     bigint not null,
  by_relation jsonb not null,                  -- rows deleted, by the relation's oid, cascades too
  finished_at timestamptz not null default clock_timestamp()
);

create table lapse.heartbeat (
  id                bigint generated always as identity primary key,
  at                timestamptz not null default clock_timestamp(),
  system_identifier text not null,
  database_oid      oid not null,
  database          name not null,
  nonce             uuid not null unique,
  former            uuid,                      -- the nonce of the beat before; null for the first
  history           int not null,
  timeline          int not null,
  server_start      timestamptz not null,
  fault             text check (octet_length(fault) <= 2000), -- in what the publications are not as Lapse left them
  faults            bigint not null default 0  -- how often a command had found that by then
);
create index on lapse.heartbeat (at);

-- A database's past can change: a snapshot is restored, a clone started, a standby promoted. A person then says that this
-- past is the one to go on with, and that begins the next history.
create table lapse.history (
  number            int primary key check (number > 0),
  nonce             uuid not null unique default gen_random_uuid(),
  log_end           text check (octet_length(log_end) <= 200), -- where the log ended that was judged: HISTORY/TIMELINE/LSN; null for the first
  fork              text check (octet_length(fork) <= 200),    -- up to where log and database are the same; null for the first
  timeline          int not null,              -- of the server when the row was written
  system_identifier text not null,             -- the same
  at                timestamptz not null default clock_timestamp(),
  by                text not null default session_user,
  reason            text not null check (octet_length(reason) <= 2000)
);

-- What Lapse published, by the rows of the system catalog: any change to one, one that was taken back too, makes another
-- row version.
create table lapse.publication (
  name             name primary key,
  oid              oid not null,
  publication_xmin xid not null
);
create table lapse.published (
  relation    oid not null,
  publication name not null,
  member      oid not null,                    -- pg_publication_rel.oid
  member_xmin xid not null,
  recorded_at timestamptz not null default clock_timestamp(),
  primary key (publication, relation)
);

-- The evidence is append-only for everybody, its owner too.
create function lapse.refuse_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  raise exception 'lapse.% is append-only', tg_table_name using errcode = 'insufficient_privilege';
end
$lapse$;

do $do$
declare
  evidence name;
begin
  foreach evidence in array array['policy', 'policy_state', 'halt', 'clock', 'batch', 'batch_result', 'history'] loop
    execute format('create trigger append_only before update or delete or truncate on lapse.%I
                    for each statement execute function lapse.refuse_change()', evidence);
  end loop;
end
$do$;
