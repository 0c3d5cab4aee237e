-- What is on record of migrations and policies.

-- The versions of this catalog, one row each, written by init. A program whose files of a version have another checksum is
-- refused: see internal/setup/migration.go.
create table lapse.migration (
  version    int primary key check (version > 0),
  checksum   text not null check (checksum ~ '^[0-9a-f]{64}$'), -- SHA-256 of the files that it was made from
  assumed    boolean not null, -- made before there was this table, or by an init that did not end: the checksum is the recorder's
  applied_at timestamptz not null default clock_timestamp(),    -- of an assumed one: when it was put on record
  applied_by text not null default session_user,
  program    text not null check (octet_length(program) <= 200) -- version of the lapse that wrote the row
);
create trigger append_only before update or delete or truncate on lapse.migration
  for each statement execute function lapse.refuse_change();
grant select on lapse.migration to {{.Executor}}, {{.Auditor}};

-- The entry of the policy file that a version was made from, as it was written there, and that of the version before. Both are
-- null in rows of earlier catalog versions.
alter table lapse.policy
  add column entry        text check (octet_length(entry) <= 65536),
  add column former_entry text check (octet_length(former_entry) <= 65536);
