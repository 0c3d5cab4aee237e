-- Who may what. A deleter gets USAGE on the schema, and EXECUTE on enter, look, record, leave and inspect, when it is made.

revoke all on all functions in schema lapse from public;
grant execute on function lapse.reach(oid[]), lapse.intruders(oid[]), lapse.unseen(oid[]), lapse.leaves(oid) to {{.Executor}};
grant execute on function
  lapse.open_run(int, int, uuid), lapse.lease(uuid, text), lapse.release(bigint, bigint, text),
  lapse.put_aside(bigint, bigint, text, text), lapse.advance_arming(int), lapse.measure(int)
  to {{.Executor}};
grant execute on function lapse.beat(uuid, int, int, timestamptz), lapse.alarm(text) to {{.Auditor}};
grant execute on function lapse.timeline(), lapse.system_identifier(), lapse.publications_fault(), lapse.publications_trouble()
  to {{.Executor}}, {{.Auditor}};

grant select on all tables in schema lapse to {{.Executor}};
grant select on lapse.installation, lapse.policy, lapse.policy_state, lapse.gate, lapse.halt, lapse.heartbeat,
  lapse.history, lapse.publication, lapse.published to {{.Auditor}};
