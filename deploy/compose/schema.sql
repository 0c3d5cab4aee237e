create table if not exists public.sessions (
  id bigint generated always as identity primary key,
  login text not null,
  last_seen timestamptz not null
);
create index if not exists sessions_last_seen on public.sessions (last_seen, id);
