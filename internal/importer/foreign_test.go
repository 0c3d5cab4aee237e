package importer

import (
	"strings"
	"testing"

	"lapse/planner/policyfile"
)

// systems are texts of other databases, and the policies that they become; what begins with ! is why there is none.
var systems = []struct{ from, text, want string }{
	{
		"cockroach", `CREATE TABLE events (id UUID PRIMARY KEY, at TIMESTAMPTZ) WITH (ttl_expiration_expression = 'at', ttl_job_cron = '@daily', ttl_delete_batch_size = 50)`,
		`table: 'public.events' expire: { column: 'at' } cron: '@daily UTC' batch: 50`,
	},
	{
		"cockroach", `create table app."Events" (id int primary key) with (ttl = 'on', ttl_expiration_expression = '(created_at + INTERVAL ''30 days'')', ttl_delete_rate_limit = 100)`,
		`table: 'app."Events"' expire: { column: 'created_at', after: 30 days } rate: 100`,
	},
	{
		"cockroach", `ALTER TABLE events SET (ttl_expire_after = '3 months', ttl_pause = true);`,
		`table: 'public.events' expire: { column: 'crdb_internal_expiration' }`,
	},
	{
		"cockroach", `ALTER TABLE e SET (ttl_expiration_expression = $$((created_at AT TIME ZONE 'UTC') + '1 day') AT TIME ZONE 'UTC'$$)`,
		`table: 'public.e' expire: { expression: '((created_at AT TIME ZONE ''UTC'') + ''1 day'') AT TIME ZONE ''UTC''' }`,
	},
	{
		"cockroach", `create table e (id int) with (ttl_expire_after = '1 day'); alter table e set (ttl_expiration_expression = 'at::timestamptz')`,
		`table: 'public.e' expire: { expression: 'at::timestamptz' }`,
	},
	{
		"tidb", "CREATE TABLE t1 (id int PRIMARY KEY, created_at DATETIME) TTL = `created_at` + INTERVAL 3 MONTH TTL_ENABLE = 'OFF' TTL_JOB_INTERVAL='24h'",
		`table: 'public.t1' expire: { column: 'created_at', after: 3 mons } every: 1 day`,
	},
	{
		"tidb", "CREATE TABLE `T` (`id` int, `at` timestamp) ENGINE=InnoDB /*T![ttl] TTL=`at` + INTERVAL 90 DAY */ /*T![ttl] TTL_ENABLE='ON' */ /*T![ttl] TTL_JOB_INTERVAL='1h' */;",
		`table: 'public."T"' expire: { column: 'at', after: 90 days } every: '01:00:00'`,
	},
	{"tidb", "ALTER TABLE t TTL = created_at + INTERVAL '1' HOUR", `table: 'public.t' expire: { column: 'created_at', after: '01:00:00' }`},
	{"tidb", "ALTER TABLE t TTL = created_at + INTERVAL '1:30' HOUR_MINUTE", `!it is not column + INTERVAL number unit`},
	{
		"spanner", "CREATE TABLE MyTable (Id INT64, CreatedAt TIMESTAMP) PRIMARY KEY (Id), ROW DELETION POLICY (OLDER_THAN(CreatedAt, INTERVAL 30 DAY));",
		`table: 'public."MyTable"' expire: { column: 'CreatedAt', after: 30 days }`,
	},
	{
		"spanner", "ALTER TABLE t ADD ROW DELETION POLICY (OLDER_THAN(at, INTERVAL 1 DAY)); ALTER TABLE t REPLACE ROW DELETION POLICY (OLDER_THAN(at, INTERVAL 7 DAY))",
		`table: 'public.t' expire: { column: 'at', after: 7 days }`,
	},
	{"spanner", "CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz) TTL INTERVAL '4 DAYS' ON at", `table: 'public.t' expire: { column: 'at', after: 4 days }`},
	{"spanner", "ALTER TABLE t ADD TTL INTERVAL 'soon' ON at", `!its column or its interval is not one that import knows`},
	{
		"mongodb", `{"createIndexes": "sessions", "indexes": [{"key": {"seen": 1}, "name": "ttl", "expireAfterSeconds": 3600}, {"key": {"a": 1}, "name": "other"}]}`,
		`table: 'public.sessions' expire: { column: 'seen', after: '01:00:00' } every: 1 minute`,
	},
	{
		"mongodb", `[{"v": 2, "key": {"at": 1}, "name": "at_1", "ns": "db.Logs", "expireAfterSeconds": {"$numberInt": "2592000"}, "partialFilterExpression": {"status": "o'k", "n": {"$gt": 5}, "x": {"$exists": true}}}]`,
		`table: 'public."Logs"' expire: { column: 'at', after: 30 days } every: 1 minute where: '"n" > 5 and "status" = ''o''''k'' and "x" is not null'`,
	},
	{"mongodb", `{"key": {"at": 1}, "expireAfterSeconds": 0}`, `!the JSON does not name the collection`},
	{"mongodb", `{"createIndexes": "s", "indexes": [{"key": {"at": 1}, "expireAfterSeconds": 1, "partialFilterExpression": {"a": {"$type": "int"}}}]}`, `!partialFilterExpression: $type`},
	{"mongodb", `{"createIndexes": "s", "indexes": [{"key": {"meta.at": 1}, "expireAfterSeconds": 60}]}`, `!meta.at is inside a document`},
	{"dynamodb", `{"TableName": "Sessions", "TimeToLiveSpecification": {"Enabled": true, "AttributeName": "ttl"}}`, `table: 'public."Sessions"' expire: { column: 'ttl', epoch: 's' }`},
	{"dynamodb", `{"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}}`, `!describe-time-to-live does not name`},
	{"dynamodb", `{"TableName": "t", "TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}}`, `table: 'public.t' expire: { column: 'ttl', epoch: 's' }`},
	{"dynamodb", `{"Properties": {"TableName": "t", "TimeToLiveSpecification": {"AttributeName": "e", "Enabled": false}}}`, `table: 'public.t' expire: { column: 'e', epoch: 's' }`},
	{
		"timescaledb", `[{"job_id": 1000, "proc_name": "policy_retention", "schedule_interval": "1 day", "config": {"drop_after": "3 months", "hypertable_id": 1}, "hypertable_schema": "public",
	  "hypertable_name": "conditions", "column_name": "time", "time_interval": "7 days"}, {"job_id": 1001, "proc_name": "policy_compression", "config": {}}]`,
		`table: 'public.conditions' expire: { column: 'time', after: 99 days } every: 1 day action: drop_partition`,
	},
	{"timescaledb", `{"job_id": 1, "proc_name": "policy_retention", "config": {"drop_after": 1000}, "hypertable_name": "c"}`, `!drop_after is no interval`},
	{"timescaledb", `{"job_id": 1, "proc_name": "policy_retention", "config": {"drop_after": "1 day"}, "hypertable_name": "c"}`, `!the JSON does not say column_name`},
}

func TestATextOfAnotherDatabaseBecomesAPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range systems {
		source, _ := Find(c.from)
		items, err := source.Text(t.Context(), nil, c.text)
		if err != nil || len(items) != 1 {
			t.Errorf("%s: %s: %d items, %v", c.from, c.text, len(items), err)
			continue
		}
		got := policyLine(&items[0])
		if reason, none := strings.CutPrefix(c.want, "!"); none != (items[0].Policy == nil) || !none && got != c.want || none && !strings.Contains(got, reason) {
			t.Errorf("%s: %s\n got %s\nwant %s", c.from, c.text, got, c.want)
		}
		f := Text(c.from, items)
		if _, err := policyfile.Parse("", f.Text); err != nil {
			t.Errorf("%s: %v\n%s", c.text, err, f.Text)
		}
	}
}

func TestATextThatIsOfAnotherKindIsAnError(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cockroach", "tidb", "spanner", "mongodb", "dynamodb", "timescaledb"} {
		source, _ := Find(name)
		for _, text := range []string{"", "select 1", "{", "{}", "[]", "'", "create table t (id int)", `{"a": [[[{"key": 1}]]]}`} {
			items, err := source.Text(t.Context(), nil, text)
			if err == nil && len(items) > 0 {
				t.Errorf("%s: %q: %v", name, text, items)
			}
		}
	}
}

// Whatever is in a text, the file is YAML, and what it has of policies observes.
func FuzzText(f *testing.F) {
	for _, c := range systems {
		f.Add(c.from, c.text)
	}
	f.Add("tidb", "create table \"a\u2028\n# - name: x\" ttl = `b\u0085: {` + interval 1 day")
	f.Fuzz(func(t *testing.T, from, text string) {
		source, there := Find(from)
		if !there || source.Parses {
			return
		}
		items, err := source.Text(t.Context(), nil, text)
		if err != nil {
			return
		}
		written := Text(from, items)
		read, err := policyfile.Parse("", written.Text)
		if err != nil || len(read.Policies) != written.Policies {
			t.Fatalf("%d policies, %v\n%s", len(read.Policies), err, written.Text)
		}
		for _, p := range read.Policies {
			if p.State != "observing" {
				t.Errorf("%s is %s", p.Name, p.State)
			}
		}
	})
}
