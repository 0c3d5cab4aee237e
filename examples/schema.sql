-- One table for each way to say when a row is due, with rows around the edges. examples/policies.yaml has their policies.
--
--   psql -d app -f examples/schema.sql    # as a superuser: it makes a role, whose tables these are
--   lapse init && lapse apply -f examples/policies.yaml --yes && lapse plan
--
-- Every row is placed relative to now, so that these are the due counts on the day on which this file is run:
--
--   due  policy
--    11  sessions
--     3  invoices
--     4  tokens
--     4  carts
--     3  drafts
--     2  uploads
--     3  links
--     4  devices
--     4  news
--     4  documents
--     4  messages
--     3  measurements
--     2  trials
--     3  orders
--     5  readings

-- Tables of an application belong to a role of its own, and not to a superuser: what runs inside a deletion runs with its rights.
do $$
begin
  create role example_owner nologin;
exception
  when duplicate_object or unique_violation then null; -- it is there, or is being made by somebody else
end
$$;
create schema example authorization example_owner;
set role example_owner;
set search_path = example;
set timezone = 'UTC'; -- as Lapse computes: a day in a zone with summer time can have 23 hours

-- column + after: a session goes thirty days after it was last seen. Infinity, NULL and minus infinity never expire.
create table sessions (id bigint generated always as identity primary key, last_seen timestamptz);
create index on sessions (last_seen, id);
insert into sessions (last_seen)
select now() - n * interval '1 day' from generate_series(31, 40) n; -- 10 are due
insert into sessions (last_seen) values
  (now() - interval '30 days'),                                     -- due to the second
  (now() - interval '29 days'), (now()), (now() + interval '1 day'),
  (null), ('infinity'), ('-infinity');

-- column + after, in months: due is PostgreSQL's own "column + after". A date is midnight in UTC. The last day of a month and
-- one month is the last day of the next month, however short that is.
create table invoices (id bigint generated always as identity primary key, closed_on date);
create index on invoices (closed_on, id);
insert into invoices (closed_on)
with today(day) as (select (now() at time zone 'UTC')::date)
select unnest(array[
  (date_trunc('month', day) - interval '1 month 1 day')::date,      -- due: the last day of the month before last
  (day - interval '1 month')::date,                                 -- due since midnight
  date '2024-01-31',                                                -- due since 2024-02-29
  (day - interval '1 month' + interval '5 days')::date, day, null, date 'infinity'])
  from today;

-- column alone: the column is the instant at which the row expires.
create table tokens (id bigint generated always as identity primary key, expires_at timestamptz);
create index on tokens (expires_at, id);
insert into tokens (expires_at) values
  (now()), (now() - interval '1 second'), (now() - interval '1 year'), ('2001-02-28 23:59:59+00'), -- 4 are due
  (now() + interval '1 day'), (null), ('infinity'), ('-infinity');

-- column + ttl_column: each row has a time to live of its own, in seconds. A negative one never ends.
create table carts (id bigint generated always as identity primary key, opened timestamptz, ttl_seconds int);
create index on carts (opened, id);
insert into carts (opened, ttl_seconds) values
  (now() - interval '2 hours', 3600), (now() - interval '1 hour', 3600), (now() - interval '1 hour', 0), -- 3 are due
  (now() - interval '91 days', null),                               -- due by ttl_default: 90 days
  (now() - interval '89 days', null), (now() - interval '2 hours', 10 * 86400), (now() - interval '9 years', -1),
  (null, 3600), ('infinity', 3600);

-- column + ttl_column, as an interval, without a ttl_default: a row without one stays.
create table drafts (id bigint generated always as identity primary key, saved timestamptz, keep interval);
create index on drafts (saved, id);
insert into drafts (saved, keep) values
  (now() - interval '1 month', '1 month'), (now() - interval '8 days', '1 week'), (now() - interval '1 day', '00:05'), -- 3 are due
  (now() - interval '1 month', '1 month 5 days'), (now() - interval '9 years', null), (now() - interval '9 years', '9999 years'),
  (now() - interval '9 years', '-1 day');

-- sidecar: a registry beside the table says when its rows expire. A row without an entry there stays.
create table uploads (id bigint generated always as identity primary key, name text not null);
create table upload_expiry (id bigint primary key references uploads on delete cascade, expires_at timestamptz);
create index on upload_expiry (expires_at, id);
insert into uploads (name) select 'upload ' || n from generate_series(1, 6) n;
insert into upload_expiry (id, expires_at) values
  (1, now() - interval '1 day'), (2, now()),                        -- 2 are due
  (3, now() + interval '1 day'), (4, null), (5, 'infinity');        -- and of the sixth nothing is said

-- epoch: s: a number of a column is a Unix time, in seconds.
create table links (id bigint generated always as identity primary key, expires bigint);
create index on links (expires, id);
insert into links (expires) values
  (extract(epoch from now())::bigint - 60), (0), (-86400),          -- 3 are due: 1970 and the day before are past
  (extract(epoch from now())::bigint + 86400), (null),
  (extract(epoch from now())::bigint * 1000),                       -- milliseconds, by mistake: far in the future
  (9223372036854775807), (-9223372036854775808);                    -- in no calendar

-- epoch: ms with a path: a number inside a document, in milliseconds. What is no number never expires.
create table devices (id bigint generated always as identity primary key, doc jsonb);
insert into devices (doc)
select jsonb_build_object('meta', jsonb_build_object('expireAt', floor(extract(epoch from now()) * 1000) + n * 86400000))
  from generate_series(-3, 3) n;                                    -- 4 are due: the last one just so
insert into devices (doc) values
  ('{"meta": {"expireAt": "soon"}}'), ('{"meta": {"expireAt": null}}'), ('{"meta": {"expireAt": 1e30}}'), ('{"meta": {}}'), ('[]'), (null);

-- iso8601: a text is a date as programs write it; without an offset it is UTC. Anything else never expires, and plan counts it.
create table news (id bigint generated always as identity primary key, until text);
insert into news (until) values
  ('2019-05-27'), ('2019-05-27T21:20:00.123456789+01:30'), ('2019-05-27 21:20:00+00'),
  (to_char(now() at time zone 'UTC' - interval '1 minute', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')), -- 4 are due
  (to_char(now() at time zone 'UTC' + interval '2 days', 'YYYY-MM-DD')),
  ('2019-02-30'), ('2019-05-27 21:20:00 UTC'), ('27.5.2019'), ('infinity'), ('now'), (''), (null);

-- iso8601 with a path: the same inside a document.
create table documents (id bigint generated always as identity primary key, doc jsonb);
insert into documents (doc)
select jsonb_build_object('valid', jsonb_build_object('to', to_char(now() at time zone 'UTC' + n * interval '1 day', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
  from generate_series(-3, 3) n;                                    -- 4 are due
insert into documents (doc) values
  ('{"valid": {"to": "2019-02-30"}}'), ('{"valid": {"to": 0}}'), ('{"valid": {"to": ""}}'), ('{"valid": {}}'), ('{}'), (null);

-- instant: in one document a number of seconds, in another a date.
create table messages (id bigint generated always as identity primary key, doc jsonb);
insert into messages (doc) values
  ('{"expireAt": 1550165973}'), ('{"expireAt": "2019-03-28T01:06:00Z"}'), ('{"expireAt": 0}'),
  (jsonb_build_object('expireAt', floor(extract(epoch from now())) - 700)), -- 4 are due, ten minutes after
  (jsonb_build_object('expireAt', floor(extract(epoch from now())) + 86400)), ('{"expireAt": "1550165973"}'),
  ('{"expireAt": true}'), ('{"expireAt": "never"}'), ('{}'), (null);

-- bucket: a row holds what was measured in the hour that begins at "hour", and is due a week after that hour's end.
create table measurements (id bigint generated always as identity primary key, hour timestamptz, readings float8[]);
create index on measurements (hour, id);
insert into measurements (hour) values
  (now() - interval '7 days 1 hour'), (now() - interval '7 days 2 hours'), (now() - interval '1 year'), -- 3 are due
  (now() - interval '6 days'), (null), ('infinity'), ('-infinity');

-- expression: SQL over the row's own columns.
create table trials (id bigint generated always as identity primary key, started timestamptz, days int, extended bool not null default false);
insert into trials (started, days, extended) values
  (now() - interval '15 days', 14, false), (now() - interval '30 days', 14, true), -- 2 are due: extended ones after twice as long
  (now() - interval '15 days', 14, true), (now(), 14, false), (null, 14, false), (now() - interval '15 days', null, false);

-- where: only orders that are closed. What "where" says is NULL of is not due.
create table orders (id bigint generated always as identity primary key, closed_at timestamptz, status text);
create index on orders (closed_at, id) where status = 'closed';
insert into orders (closed_at, status)
select now() - interval '8 years', s from unnest(array['closed', 'closed', 'open', 'disputed', null]) s; -- 2 are due
insert into orders (closed_at, status) values
  (now() - interval '7 years', 'closed'),                           -- due to the second
  (now() - interval '6 years', 'closed'), (null, 'closed'), ('infinity', 'closed');

-- A partitioned table: each partition is worked off by itself.
create table readings (sensor int, at timestamptz not null, value float8, primary key (sensor, at)) partition by range (at);
create index on readings (at, sensor);
create table readings_old partition of readings for values from (minvalue) to ('2025-01-01');
create table readings_new partition of readings for values from ('2025-01-01') to (maxvalue);
insert into readings (sensor, at)
select n, date '2024-06-01' from generate_series(1, 3) n;           -- 3 are due
insert into readings (sensor, at)
select n, now() - interval '91 days' + n * interval '10 minutes' from generate_series(1, 2) n; -- 2 are due
insert into readings (sensor, at) values (1, now() - interval '89 days'), (2, now());
