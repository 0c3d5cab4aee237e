-- Each second twenty sessions begin, and one user logs out.
with begun as (
  insert into public.sessions (login, last_seen)
  select 'user' || n, now() - random() * interval '30 seconds' from generate_series(1, 20) n
)
delete from public.sessions
 where id = (select id from public.sessions where last_seen > now() - interval '30 seconds' order by random() limit 1)
\watch 1
