-- The catalog of Lapse: schema "lapse" in the user's database, a file per subject. Every table, column, type and function has a
-- comment where psql and other tools show it: \d+ lapse.*, \dT+, \df+.
--
-- {{.Owner}} is a role of this installation, already quoted. The files of one number run in one transaction,
-- in the order of their names, as {{.Owner}}. Everything here belongs to it. The functions per policy, which `lapse apply` makes, belong
-- to the deleters, one for each owner of tables. What executor and auditor may read and call is in schemas/rights.go, what a deleter
-- may call in schemas/function.go. Every column that a login other than the owner's can write to has a bounded size.

create schema lapse;
revoke all on schema lapse from public;
comment on schema lapse is 'Lapse: row TTL with proof';

-- Evidence is append-only for every role, even for its owner.
create function lapse.refuse_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $lapse$
begin
  raise exception 'lapse.% is append-only', tg_table_name using errcode = 'insufficient_privilege';
end
$lapse$;
comment on function lapse.refuse_change is 'Trigger that keeps evidence append-only, even for its owner.';

create table lapse.installation (
  only_row               boolean primary key default true check (only_row),
  schema_version         int not null,
  slot                   name not null,
  slot_start             pg_lsn,
  slot_made_at           timestamptz,
  audit_required         boolean not null default true,
  keys                   jsonb not null default '{}',
  installed_at           timestamptz not null default clock_timestamp(),
  publication_faults     bigint not null default 0,
  publication_fault_text text check (octet_length(publication_fault_text) <= 2000),
  covered_slot           pg_lsn,
  doubted                bigint
);
comment on table lapse.installation is 'One row: what lapse init made, and with which settings. Written by lapse init.';
comment on column lapse.installation.only_row is 'Always true: there is one row.';
comment on column lapse.installation.schema_version is 'Version of this schema. A lapse of another version refuses to use it; only lapse init does, and upgrades it.';
comment on column lapse.installation.slot is 'Name of the replication slot that the auditor reads.';
comment on column lapse.installation.slot_start is 'Where the slot began: there is no evidence of deletions before. Null until the slot is made.';
comment on column lapse.installation.slot_made_at is 'When the slot was made; null until then.';
comment on column lapse.installation.audit_required is 'Whether rows are deleted only while an auditor reads the log.';
comment on column lapse.installation.keys is 'Fingerprint of each key, by the key''s name. The keys themselves are nowhere in the database.';
comment on column lapse.installation.installed_at is 'When lapse init ran first.';
comment on column lapse.installation.publication_faults is 'How often a command found that somebody else had changed the publications.';
comment on column lapse.installation.publication_fault_text is 'What the last of these commands found; null if there was none.';
comment on column lapse.installation.covered_slot is 'Start of the slot for which lapse.covered was written completely; an auditor may have missed rows written for another slot.';
comment on column lapse.installation.doubted is 'The auditor has revoked its beats up to this one.';

-- The versions of this catalog, one row each, written by init. A program whose files of a version have another checksum cannot use the
-- catalog: see internal/setup/site/migration.go.
create table lapse.migration (
  version    int primary key check (version > 0),
  checksum   text not null check (checksum ~ '^[0-9a-f]{64}$'),
  applied_at timestamptz not null default clock_timestamp(),
  applied_by text not null default session_user,
  program    text not null check (octet_length(program) <= 200)
);
create trigger append_only before update or delete or truncate on lapse.migration
  for each statement execute function lapse.refuse_change();
comment on table lapse.migration is 'The versions of this schema, one row each, append-only. Written by lapse init, which refuses a schema that was made from other files than it has.';
comment on column lapse.migration.version is 'Number of the version.';
comment on column lapse.migration.checksum is 'SHA-256 of the files that the version was made from, in hexadecimal digits.';
comment on column lapse.migration.applied_at is 'When the version was applied.';
comment on column lapse.migration.applied_by is 'Login that did it.';
comment on column lapse.migration.program is 'Version of the lapse that did it.';

create table lapse.deleter (
  role    name primary key,
  owner   oid not null,
  made_at timestamptz not null default clock_timestamp()
);
comment on table lapse.deleter is 'The roles that own deletion functions, one for each owner of tables with policies. Written by lapse apply.';
comment on column lapse.deleter.role is 'Name of the role.';
comment on column lapse.deleter.owner is 'The role that owns the tables: the deleter is a member of it, or has rights on its tables.';
comment on column lapse.deleter.made_at is 'When the role was made.';
