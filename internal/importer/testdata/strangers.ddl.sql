-- Tables of the jobs in strangers.sql.
create schema audit;
create table public.events (id bigint primary key, event_time timestamptz not null);
create table audit.run_log (id bigint primary key, executed_at timestamptz);
create table public.subscribers (id bigint primary key, status text, valid_till timestamptz);
create table public.page_hits (id bigint primary key, created_at timestamptz);
create table public.alerts (id uuid primary key, "ends" timestamp without time zone);
create table public.usage (org bigint, date date, primary key (org, date));
create table public.processed (key text primary key, occurred_at timestamptz);
create table public.posts (hash varchar(16) primary key, publication_time bigint);
create table public.members (id bigint primary key, email_verified boolean, created_at timestamp default now());
create table public.tokens (id bigint primary key, expires_at timestamptz, revoked_at timestamptz);
create table public.shifts (id bigint primary key, ended_at timestamptz);
create function public.delete_old_shifts() returns integer language plpgsql security definer as $$
DECLARE
  deleted integer;
BEGIN
  -- a year after they ended
  DELETE FROM public.shifts WHERE ended_at < NOW() - INTERVAL '365 days';
  GET DIAGNOSTICS deleted = ROW_COUNT;
  RETURN deleted;
END;
$$;
