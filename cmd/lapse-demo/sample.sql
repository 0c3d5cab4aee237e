-- Sample data of the demonstration: 20,000 sessions (8,000 are due) with tags that a cascade deletes and a payment that keeps one of
-- them, a partitioned table of 24,000 page views (12,000 are due), and 1,000 carts (none is due).
create role app login;
create role mallory login;

create table public.sessions (
  id        bigint primary key,
  account   text not null,
  last_seen timestamptz
);
create table public.session_tag (
  session bigint references public.sessions on delete cascade,
  tag     text,
  primary key (session, tag)
);
create index on public.sessions (last_seen, id);
create table public.payment (
  id      bigint primary key,
  session bigint not null references public.sessions
);
create index on public.payment (session);

create table public.page_view (
  id     bigint,
  seen   date not null,
  path   text,
  primary key (id, seen)
) partition by list (seen);
create table public.page_view_old partition of public.page_view for values in ('2020-01-01');
create table public.page_view_today partition of public.page_view default;
create index on public.page_view (seen, id);

create table public.cart (
  id         bigint primary key,
  changed_at timestamptz not null
);
create index on public.cart (changed_at, id);

alter table public.sessions owner to app;
alter table public.session_tag owner to app;
alter table public.payment owner to app;
alter table public.page_view owner to app;
alter table public.page_view_old owner to app;
alter table public.page_view_today owner to app;
alter table public.cart owner to app;
grant select, delete on public.sessions to mallory;

insert into public.sessions
select i, 'account-' || i % 500, case when i <= 8000 then now() - interval '31 days' - i * interval '1 second'
                                      when i % 100 = 0 then null
                                      else now() - (i % 29) * interval '1 day' end
  from generate_series(1, 20000) i;
insert into public.session_tag select i, 'mobile' from generate_series(10, 20000, 10) i;
insert into public.payment values (1, 42);
insert into public.page_view select i, '2020-01-01', '/' from generate_series(1, 12000) i;
insert into public.page_view select i, current_date, '/' from generate_series(1, 12000) i;
insert into public.cart select i, now() from generate_series(1, 1000) i;
analyze public.cart;
