-- Indexes that Lapse made.

-- Written before an index is made, so that what an interrupted attempt leaves is known for Lapse's own; only what stands here is
-- ever dropped.
create table lapse.made_index (
  relation   oid not null,
  schema     name not null,
  name       name not null,
  policy     text not null,
  index      oid,
  made_at    timestamptz not null default clock_timestamp(),
  primary key (relation, name)
);
comment on table lapse.made_index is 'Indexes that lapse apply made because a policy says index: create, one row each; written by setup (apply)';
comment on column lapse.made_index.relation is 'the table or partition that the index is of';
comment on column lapse.made_index.schema is 'the schema of table and index';
comment on column lapse.made_index.name is 'the name that the index was made with';
comment on column lapse.made_index.policy is 'the policy for which it was made';
comment on column lapse.made_index.index is 'the index; null while it is made, and where making it was interrupted';
comment on column lapse.made_index.made_at is 'when Lapse began to make it';
