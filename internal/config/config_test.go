package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"lapse/internal/config"
	"lapse/internal/yamldoc"
)

// nothing is an environment without variables.
func nothing(string) (string, bool) { return "", false }

func variables(set map[string]string) config.Environment {
	return func(name string) (string, bool) {
		value, ok := set[name]
		return value, ok
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lapse.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// full is the example of the documentation, with every key.
const full = `
database: { owner: "postgres://own:s3cret@db/app", executor: "postgres://exe@db/app", auditor: "postgres://aud@db:5433/app" }
slot: lapse_app
roles: { prefix: shop_ }
keys: /etc/lapse/keys
kafka:
  brokers: [kafka-1:9092, kafka-2:9092]
  tls: { ca: ca.pem, cert: client.pem, key: client.key }
  sasl: { mechanism: scram-sha-512, username: lapse, password_file: secret }
topics:
  system: a.system
  user: a.user
  log: a.log
  partitions: 12
  replication: 2
  create: false
  compression: zstd
  retention: 30 days
log_name: app.example.com/lapse
witnesses: { ask: [{ url: "https://one.example.com/w", key: one.example.com+2ac01aa0+BDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop }, { url: "http://127.0.0.1:8080", key: two.example.com+16f5be17+BM7MFQfcHd1ylZUcKQiI8JWtuQRNG3PWlubfBl1oO9T8 }] }
anchors: [print, "file:anchors/app", "https://keeper.example.com/app?token=1"]
format: spanner
audit: off
limits: { workers: 5, turn_rows: 100_000, rows_per_pass: 7, turn_time: 10 seconds, batch_time: 250 ms, replica_lag: 30 s, delayed_replicas: [dr], old_snapshot: off }
ledger_days: 90
failover_tolerance: 90 seconds
floors: [{ table: "public.audit_*", least: 10 years, reason: "HGB §257" }, { table: "*.x", least: P30D, reason: contract, trust_column: true }]
declared: { wal_archive: 14 days, backups: "35 days, then überschrieben" }
http: 0.0.0.0:9000
`

func TestEveryKeyOfTheFileIsRead(t *testing.T) {
	path := write(t, full)
	s, err := config.Load(path, config.Overrides{}, nothing)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	for _, c := range []struct{ name, got, want string }{
		{"owner", string(s.Database.Owner), "postgres://own:s3cret@db/app"},
		{"auditor", string(s.Database.Auditor), "postgres://aud@db:5433/app"},
		{"roles", s.Roles.Executor, "shop_executor"},
		{"slot", s.Slot, "lapse_app"},
		{"keys", s.Keys.Dir, "/etc/lapse/keys"},
		{"brokers", strings.Join(s.Kafka.Brokers, " "), "kafka-1:9092 kafka-2:9092"},
		{"ca", s.Kafka.TLS.CA, filepath.Join(dir, "ca.pem")},
		{"password file", s.Kafka.SASL.PasswordFile, filepath.Join(dir, "secret")},
		{"mechanism", string(s.Kafka.SASL.Mechanism), "scram-sha-512"},
		{"topics", fmt.Sprint(s.Topics), "{a.system a.user a.log a.log.proofs 12 2 false zstd 720h0m0s}"},
		{"audit", string(s.Audit), "off"},
		{"limits", fmt.Sprint(s.Limits), fmt.Sprint(config.Limits{5, 100_000, 7, 10 * time.Second, 250 * time.Millisecond, 30 * time.Second, []string{"dr"}, -1})},
		{"ledger days", fmt.Sprint(s.Ledger), "90"},
		{"failover tolerance", s.FailoverTolerance.String(), "1m30s"},
		{"floors", fmt.Sprint(s.Floors), "[{public.audit_* 10 years HGB §257 false} {*.x P30D contract true}]"},
		{"declared", fmt.Sprint(s.Declared), "{14 days 35 days, then überschrieben}"},
		{"http", s.HTTP, "0.0.0.0:9000"},
		{"witnesses", fmt.Sprint(s.Witnesses), "{2 [{https://one.example.com/w one.example.com+2ac01aa0+BDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop} {http://127.0.0.1:8080 two.example.com+16f5be17+BM7MFQfcHd1ylZUcKQiI8JWtuQRNG3PWlubfBl1oO9T8}]}"},
		{"anchors", fmt.Sprint(s.Anchors), fmt.Sprint([]config.Anchor{{}, {File: filepath.Join(dir, "anchors/app")}, {URL: "https://keeper.example.com/app?token=1"}})},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q, want %q", c.name, c.got, c.want)
		}
	}
}

func TestAnEmptyFileGivesTheDefaults(t *testing.T) {
	s, err := config.Load(write(t, "# nothing\n"), config.Overrides{Database: "postgres://me@db/My-Shop"}, nothing)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, got, want string }{
		{"slot", s.Slot, "lapse_my_shop"},
		{"roles", s.Roles.Auditor, "lapse_auditor"},
		{"topics", fmt.Sprint(s.Topics), "{lapse.deletes.system lapse.deletes.user lapse.log lapse.proofs 6 0 true snappy 0s}"},
		{"proofs", s.Proofs.String(), "9600h0m0s"},
		{"audit", string(s.Audit), "required"},
		{"format", string(s.Format), "spanner"},
		{"ledger days", fmt.Sprint(s.Ledger), "30"},
		{"failover tolerance", s.FailoverTolerance.String(), "5m0s"},
		{"http", s.HTTP, "127.0.0.1:7432"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q, want %q", c.name, c.got, c.want)
		}
	}
	if !s.Keys.Default {
		t.Error("the folder for keys does not count as the default one")
	}
	if err := s.RequireSink(); !errors.Is(err, config.ErrNoBrokers) {
		t.Errorf("no brokers: %v", err)
	}
}

func TestAPromotionMayBeAllowedToLoseNothing(t *testing.T) {
	path := write(t, "database: postgres://me@db/shop\nfailover_tolerance: 0\n")
	if s, err := config.Load(path, config.Overrides{}, nothing); err != nil || s.FailoverTolerance != 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestFlagsStandAboveTheEnvironmentAndThatAboveTheFile(t *testing.T) {
	path := write(t, "database: postgres://file@db/app\nkeys: of_file\nhttp: 127.0.0.1:1\nkafka: { brokers: 'file:1' }\n")
	env := variables(map[string]string{
		"LAPSE_DATABASE_URL": "postgres://env@db/app", "LAPSE_KAFKA_BROKERS": "env:1, env:2", "LAPSE_KEYS": "of_env",
	})
	s, err := config.Load(path, config.Overrides{Database: "postgres://flag@db/app"}, env)
	if err != nil {
		t.Fatal(err)
	}
	if s.Database.Auditor != "postgres://flag@db/app" || s.Keys.Dir != "of_env" || s.HTTP != "127.0.0.1:1" ||
		strings.Join(s.Kafka.Brokers, ",") != "env:1,env:2" {
		t.Errorf("got %q, %q, %q, %q", s.Database.Auditor, s.Keys.Dir, s.HTTP, s.Kafka.Brokers)
	}
}

func TestAllProblemsOfAFileAreNamedAtOnceWithTheirPlaces(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"an unknown key", "slott: x\n", `:1:1: unknown key "slott": did you mean "slot"?`},
		{"an unknown key inside", "kafka:\n  broker: [a:1]\n", `:2:3: unknown key "broker": did you mean "brokers"?`},
		{"a key like no other", "zebra: 1\n", `:1:1: unknown key "zebra": known here are database, slot, roles,`},
		{"a key given twice", "slot: a\nhttp: a:1\nslot: b\n", `:3:1: "slot" is here already, in line 1`},
		{"an empty key", "topics:\n", `:1:1: "topics" has no value`},
		{"a tag", "slot: !!str a\n", `:1:7: want a text, not a tag, which this file does not use`},
		{"no worker", "limits: { workers: -1 }\n", `:1:20: want a whole number from 1 to 64`},
		{"an octal number", "ledger_days: 030\n", `:1:14: want a whole number in decimal digits that does not begin with 0`},
		{"another database's URL", "database: mysql://u:s3cret@h/d\n", `write postgres://LOGIN@HOST/DATABASE`},
		{"a list for a text", "slot: [a]\n", `:1:7: want a text, not a list`},
		{"a text for a number", "topics:\n  partitions: six\n", `:2:15: want a whole number, not a text`},
		{"a negative number", "topics:\n  partitions: -1\n", `:2:15: want a whole number from 1 to 2147483647`},
		{"no partitions", "topics:\n  partitions: 0\n", `:2:15: want a whole number from 1 to 2147483647`},
		{"a text for a mapping", "kafka: a:1\n", `:1:8: kafka: want names with values below them, not a text`},
		{"two topics in one", "topics: { system: a, user: a }\n", `: system, user, log and proofs must be four topics`},
		{"a witness without its key", "witnesses:\n  ask: [{ url: 'https://a' }]\n", `:2:9: a witness needs url and key`},
		{"a key that is none", "witnesses: { ask: [{ url: 'https://a', key: a+b }] }\n", `:1:45: "a+b" is no witness's key`},
		{"a witness twice", "witnesses: { ask: [{ url: 'https://a', key: one.example.com+2ac01aa0+BDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop }, { url: 'https://b', key: one.example.com+2ac01aa0+BDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop }] }\n", `: this witness is in the list already`},
		{"more than there are", "witnesses: { quorum: 2, ask: [{ url: 'https://a', key: one.example.com+2ac01aa0+BDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop }] }\n", `: the quorum is 2, and there are 1 witnesses`},
		{"an address on the way", "anchors: [ 'http://a.example.com' ]\n", `: "http://a.example.com" is no anchor`},
		{"a format of no version", "format: spaner\n", `:1:9: "spaner" is not one of spanner, debezium, cloudevents: did you mean "spanner"?`},
		{"a compression of no version", "topics: { compression: snapy }\n", `:1:24: "snapy" is not one of snappy, lz4, zstd, none: did you mean "snappy"?`},
		{"an audit mode", "audit: on\n", `:1:8: "on" is not one of required, off`},
		{"a URL", "database: postgres://u:s3cret@db:port/app\n", `:1:11: read the database's connection string: `},
		{"brokers within braces", "kafka: { brokers: [kafka-1:9092] }\n", `:1:19: "" is no address: write host:port, in quotes if it is within braces`},
		{"an address", "http: 7432\n", `:1:7: "7432" is no address: write host:port`},
		{"a duration", "limits: { turn_time: soon }\n", `:1:22: "soon" is not a length of time above zero`},
		{"a duration that does not fit", "proofs: 213504 days\n", `:1:9: "213504 days" is too long: want 292 years at most`},
		{"a duration that would be below nothing", "limits: { replica_lag: 999999 days }\n", `:1:24: "999999 days" is too long`},
		{"a tolerance below nothing", "failover_tolerance: -1 minute\n", `:1:21: "-1 minute" is not a length of time above zero`},
		{"no workers", "limits: { workers: 0 }\n", `:1:20: want a whole number from 1 to 64`},
		{"too many workers", "limits: { workers: 65 }\n", `:1:20: want a whole number from 1 to 64`},
		{"workers that are no number", "limits: { workers: many }\n", `:1:20: want a whole number`},
		{"a lag that is no time", "limits: { replica_lag: never }\n", `:1:24: "never" is not a length of time above zero`},
		{"a ledger of no days", "ledger_days: 0\n", `:1:14: want a whole number`},
		{"a pass without rows", "limits: { rows_per_pass: 0 }\n", `:1:26: want a whole number`},
		{"floors that are no list", "floors: { table: a.b }\n", `floors: want a list of entries with table, least and reason, not a mapping`},
		{"a floor without its reason", "floors: [{ table: a.b, least: 1 day }]\n", `a floor needs table, least and reason`},
		{"a declaration of two lines", "declared: { backups: \"a\\nb\" }\n", `want one line of 200 characters at most`},
		{"a declaration that is too long", "declared: { wal_archive: " + strings.Repeat("ä", 201) + " }\n", `want one line of 200 characters at most`},
		{"a declaration of something else", "declared: { replicas: 1 day }\n", `unknown key "replicas"`},
		{"a floor that is a text", "floors: [a.b]\n", `a floor: want names with values below them`},
		{"a floor without a schema", "floors: [{ table: audit, least: 1 day, reason: x }]\n", `"audit" names no schema: write schema.table`},
		{"an unknown key of a floor", "floors: [{ table: a.b, least: 1 day, reason: x, trust: true }]\n", `unknown key "trust": `},
		{"half a certificate", "kafka:\n  tls: { cert: a }\n", `: cert and key belong together`},
		{"half a login", "kafka:\n  sasl: { username: a }\n", `: sasl needs mechanism, username and password_file`},
		{"an anchor", "slot: &a b\n", `:1:7: want a text, not an anchor or alias`},
		{"no YAML", "slot: [\n", `: not YAML: `},
		{"two documents", "slot: a\n---\nslot: b\n", `a second document`},
		{"no mapping at all", "- slot\n", `:1:1: the configuration: want names with values below them, not a list`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.text)
			_, err := config.Load(path, config.Overrides{}, nothing)
			var file yamldoc.Errors
			if !errors.As(err, &file) {
				t.Fatalf("no error of the file: %v", err)
			}
			if !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path+":") {
				t.Errorf("got %q, want it to contain %q", err, c.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
	_, err := config.Load(write(t, "slott: a\nhttp: nowhere\nkafka:\n  bokers: x:1\n"), config.Overrides{}, nothing)
	var file yamldoc.Errors
	if !errors.As(err, &file) || len(file) != 3 {
		t.Fatalf("want three problems at once, got %v", err)
	}
	for i, line := range []int{1, 2, 4} {
		if file[i].Place.Line != line {
			t.Errorf("problem %d is in line %d, want %d", i, file[i].Place.Line, line)
		}
	}
}

func TestOneDatabaseIsMeantByAllConnectionStrings(t *testing.T) {
	_, err := config.Load(write(t, "database: { owner: postgres://a@db/one, executor: postgres://b@db/two, auditor: postgres://c@db/one }\n"),
		config.Overrides{}, nothing)
	if err == nil || !strings.Contains(err.Error(), `not on "one" and "two"`) {
		t.Errorf("got %v", err)
	}
}

func TestAConnectionStringIsShownWithoutItsPassword(t *testing.T) {
	c := config.ConnString("postgres://me:s3cret@db:5433/app?sslmode=require")
	want := `database "app" at db:5433 as "me"`
	for _, shown := range []string{c.String(), fmt.Sprint(c), fmt.Sprintf("%v %+v %#v", c, c, c)} {
		if strings.Contains(shown, "s3cret") || !strings.Contains(shown, want) {
			t.Errorf("shown as %q", shown)
		}
	}
	settings, err := config.Load("", config.Overrides{Database: string(c)}, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if shown := fmt.Sprintf("%v %+v %#v", settings, settings, settings.Database); strings.Contains(shown, "s3cret") {
		t.Errorf("settings are shown with the password: %s", shown)
	}
}

// Brokers are in a list as people write them: YAML takes host:port for a text, an address in brackets only in quotes.
func TestBrokersAreReadInEveryFormOfAList(t *testing.T) {
	for text, want := range map[string]string{
		"[kafka-1:9092, kafka-2:9092]": "kafka-1:9092 kafka-2:9092",
		"[kafka-1:9092]":               "kafka-1:9092",
		"[a:1,b:2]":                    "a:1 b:2",
		"[10.0.0.1:9092, \"[::1]:9092\", '[fe80::1]:1']": "10.0.0.1:9092 [::1]:9092 [fe80::1]:1",
		"kafka-1:9092": "kafka-1:9092",
		"\n    - kafka-1:9092\n    - '[::1]:9092'": "kafka-1:9092 [::1]:9092",
		"\r\n    - kafka-1:9092\r\n":               "kafka-1:9092",
	} {
		s, err := config.Load(write(t, "\ufeffdatabase: postgres://a@b/c\nkafka:\n  brokers: "+text+"\n"), config.Overrides{}, nothing)
		if err != nil || strings.Join(s.Kafka.Brokers, " ") != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"\n    - [::1]:9092": ":4:12: not YAML: value is not allowed in this context: put a text that holds a colon, or begins with a bracket, into quotes",
		"[kafka-1]":          `"kafka-1" is no address: write host:port`,
		"[kafka-1: 9092]":    "want a text, not a mapping",
	} {
		_, err := config.Load(write(t, "database: postgres://a@b/c\nkafka:\n  brokers: "+text+"\n"), config.Overrides{}, nothing)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// What a connection string says stays out of what is printed: no line of lapse.yaml is shown.
func TestNoLineOfTheFileIsShown(t *testing.T) {
	_, err := config.Load(write(t, "databse: postgres://u:s3cret@h/d\nslot: [x\n"), config.Overrides{}, nothing)
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
}

// The schema must take what the reader takes and refuse what it refuses, as far as a schema can tell.
func TestTheJSONSchemaAgreesWithTheReader(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../schemas/lapse.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		valid      bool
	}{
		{"every key", full, true},
		{"every key as it is published", published, true},
		{"a list of witnesses", "witnesses: [{ url: 'https://a', key: one.example.com+2ac01aa0+BDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop }]\n", true},
		{"a list of witnesses without a key", "witnesses: [{ url: 'https://a' }]\n", false},
		{"one connection string", "database: postgres://a@b/c\nkafka: { brokers: 'a:1', tls: true }\n", true},
		{"an unknown key", "slott: a\n", false},
		{"an unknown key inside", "kafka: { broker: [a:1] }\n", false},
		{"another format", "format: debezium\n", true},
		{"a format of no version", "format: avro\n", false},
		{"an audit mode", "audit: maybe\n", false},
		{"a floor without its reason", "floors: [{ table: a.b, least: 1 day }]\n", false},
		{"a floor without a schema", "floors: [{ table: audit, least: 1 day, reason: x }]\n", false},
		{"half a certificate", "kafka: { tls: { cert: a } }\n", false},
		{"half a login", "kafka: { sasl: { username: a } }\n", false},
		{"no partitions", "topics: { partitions: 0 }\n", false},
		{"a slot in capitals", "slot: Lapse\n", false},
		{"an address", "http: nowhere\n", false},
		{"nobody as a witness", "witnesses: { quorum: 1 }\n", false},
		{"no quorum", "witnesses: { quorum: 0, ask: [{ url: 'https://a', key: one.example.com+2ac01aa0+BDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop }] }\n", false},
		{"a quorum", "witnesses: { quorum: 1, ask: [{ url: 'https://a', key: one.example.com+2ac01aa0+BDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop }] }\n", true},
		{"a witness without its key", "witnesses: { ask: [{ url: 'https://a' }] }\n", false},
		{"a witness that anybody may answer for", "witnesses: { ask: [{ url: 'http://a.example.com', key: one.example.com+2ac01aa0+BDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop }] }\n", false},
		{"an anchor that is none", "anchors: [somewhere]\n", false},
		{"an anchor that anybody may answer for", "anchors: ['http://a.example.com']\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var value any
			if err := yaml.Unmarshal([]byte(c.text), &value); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(value); (err == nil) != c.valid {
				t.Errorf("the schema says %v", err)
			}
			if _, err := config.Load(write(t, c.text), config.Overrides{}, nothing); (err == nil) != c.valid {
				t.Errorf("the reader says %v", err)
			}
		})
	}
}

func FuzzNoFileMakesTheReaderPanic(f *testing.F) {
	f.Add(full)
	f.Add("kafka: { tls: [ }")
	f.Add("? [a]\n: b")
	f.Add("*a : b")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "lapse.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = config.Load(path, config.Overrides{Database: "postgres://a@b/c"}, nothing)
	})
}

func TestTheEnvironmentNamesSlotRolesHTTPAndEachLogin(t *testing.T) {
	t.Parallel()
	variables := map[string]string{
		"LAPSE_DATABASE_URL": "postgres://all@db/app", "LAPSE_DATABASE_URL_AUDITOR": "postgres://auditor@db/app",
		"LAPSE_SLOT": "lapse_other", "LAPSE_ROLES_PREFIX": "p_", "LAPSE_HTTP": "127.0.0.1:1",
	}
	env := func(name string) (string, bool) { value, set := variables[name]; return value, set }
	s, err := config.Load("", config.Overrides{}, env)
	if err != nil || s.Slot != "lapse_other" || s.Roles.Owner != "p_owner" || s.HTTP != "127.0.0.1:1" ||
		s.Database.Auditor != "postgres://auditor@db/app" || s.Database.Owner != "postgres://all@db/app" {
		t.Errorf("got %+v, %v", s, err)
	}
	if s, err = config.Load("", config.Overrides{Database: "postgres://me@db/app"}, env); err != nil || s.Database.Auditor != "postgres://me@db/app" {
		t.Errorf("a flag is above all of them: %+v, %v", s, err)
	}
	for name, value := range map[string]string{"LAPSE_ROLES_PREFIX": "P-", "LAPSE_SLOT": "Slot", "LAPSE_DATABASE_URL_OWNER": "postgres://db:x/app"} {
		mistaken := func(asked string) (string, bool) {
			if asked == name {
				return value, true
			}
			return env(asked)
		}
		if _, err := config.Load("", config.Overrides{}, mistaken); err == nil {
			t.Errorf("%s=%s is taken", name, value)
		}
	}
	for name, value := range map[string]string{"LAPSE_HTTP": "7432", "LAPSE_DATABASE_URL": "app", "LAPSE_KAFKA_BROKERS": "kafka"} {
		one := map[string]string{name: value}
		named := func(asked string) (string, bool) { value, set := one[asked]; return value, set }
		if _, err := config.Load("", config.Overrides{}, named); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	for name := range variables {
		if !slices.Contains(config.Variables(), name) {
			t.Errorf("%s is not among the variables that Lapse knows", name)
		}
	}
}
