-- Jobs in the forms that people publish: migrations, issues and tutorials, with names of our own.
select cron.schedule('30 3 * * 6', $$DELETE FROM events WHERE event_time < now() - interval '1 week'$$);

SELECT cron.schedule(
  'run-log-retention',
  '0 * * * *',  -- hourly
  $$
  DELETE FROM audit.run_log
  WHERE executed_at < NOW() - INTERVAL '7 days';
  $$
);

SELECT cron.schedule('*/15 * * * *', $$delete from subscribers where status = 'not_verified' and now() > valid_till$$);
SELECT cron.schedule('0 0 * * *', $$delete from page_hits where created_at < now() - interval '1 month'$$);

SELECT cron.schedule(
  job_name => 'cleanup_alerts',
  schedule => '0 0 * * *',
  command => $$DELETE FROM public.alerts WHERE "ends" < now() - interval '1 day';$$
);

select cron.schedule('usage-13-months', '0 2 * * *', 'DELETE FROM usage WHERE date < NOW() - INTERVAL ''13 months''');

SELECT cron.schedule('processed', '*/10 * * * *', $$WITH gone AS (
    SELECT ctid FROM processed WHERE occurred_at < NOW() - INTERVAL '1 hour' * 24 LIMIT 5000
  )
  DELETE FROM processed USING gone WHERE processed.ctid = gone.ctid;$$);

SELECT cron.schedule('0 */6 * * *', $$WITH latest AS (
    SELECT row_number() over (order by publication_time desc), publication_time, hash FROM posts
  ) DELETE FROM posts USING latest WHERE latest.hash = posts.hash AND latest.row_number > 1000$$);

SELECT cron.schedule('unverified members', '0 1 * * *',
  'DELETE FROM members WHERE email_verified = FALSE AND created_at < NOW() - INTERVAL ''5 days''');

select cron.schedule('tokens', '@hourly', $$
  DELETE FROM "tokens" WHERE "expires_at" < CURRENT_TIMESTAMP;
  DELETE FROM "tokens" WHERE "revoked_at" IS NOT NULL AND "revoked_at" < CURRENT_TIMESTAMP - INTERVAL '30 days';
  VACUUM ANALYZE tokens;
$$);

SELECT cron.schedule('nightly-shifts', '0 3 * * *', $$SELECT public.delete_old_shifts();$$);
SELECT cron.schedule('expire', '0 * * * *', $$CALL expire_rows('1 hour');$$);
SELECT cron.schedule('stats', '0 4 * * *', 'REFRESH MATERIALIZED VIEW CONCURRENTLY stats');
