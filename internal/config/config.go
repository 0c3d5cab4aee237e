package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"lapse/internal/yamldoc"
	"lapse/schemas"
)

// Settings are the settings of lapse.yaml, the environment and the common flags, completed by defaults.
type Settings struct {
	File     string // the path of lapse.yaml, "" for none
	Database Database
	Slot     string
	Roles    schemas.Roles
	Keys     KeySource
	State    string // the folder in which executors without an audit remember their databases
	Kafka    Broker
	Folder   string // the folder that keeps the topics instead of Kafka; "" for none
	Topics   Topics
	Format   Format
	Audit    AuditMode
	Limits   Limits
	Ledger   int     // the number of days for which the database keeps the ledger
	Floors   []Floor // how long rows must be kept at least, whatever the policies
	Declared Declared
	HTTP     string // address of the HTTP server

	// LogName is the origin of the log's checkpoints; if it is empty, the audit makes a unique one.
	LogName string
	Proofs  time.Duration // for how long the proof store keeps what receipts need; forever if less than 0
	// Witnesses cosign the log's checkpoints, and Anchors keep them.
	Witnesses Witnesses
	Anchors   []Anchor

	// FailoverTolerance is how much a promotion may lose without confirmation by a person; zero for nothing.
	FailoverTolerance time.Duration

	// AllowSuperuser lets commands other than init and apply log in as a superuser. Only the environment can set it.
	AllowSuperuser bool
}

// Topics are the topics of events and of the log. Each database has its own.
type Topics struct {
	System, User, Log string
	Proofs            string // default: lapse.proofs, or the log's name and .proofs if the log has another name
	Partitions        int    // the partitions of the system topic and of the user topic; the others have one
	Replication       int    // 0 for three, or for the number of brokers if that is smaller
	Create            bool
	Compression       Compression
	Retention         time.Duration // retention of events in new topics; 0 for the brokers' default; forever if less than 0
}

// Compression is the compression of records on their way to Kafka and in it.
type Compression string

// The kinds of compression.
const (
	Snappy        Compression = "snappy"
	LZ4           Compression = "lz4"
	Zstd          Compression = "zstd"
	NoCompression Compression = "none"
)

// Format is the format of events.
type Format string

// The formats.
const (
	Spanner     Format = "spanner"
	Debezium    Format = "debezium"
	CloudEvents Format = "cloudevents"
)

// AuditMode says whether deletions require evidence.
type AuditMode string

// The audit modes.
const (
	AuditRequired AuditMode = "required" // no healthy audit, no deletion
	AuditOff      AuditMode = "off"      // deletes without evidence
)

// Limits bound the executor's work on all policies together. Zero is the executor's default.
type Limits struct {
	Workers   int           // the number of shards on which a process works at once
	TurnRows  int           // the rows of one policy before the next policy's turn
	PassRows  int           // the rows of all policies in one pass of a process; 0 for no bound
	TurnTime  time.Duration // the time of one policy before the next policy's turn
	BatchTime time.Duration // the duration to which the size of batches adapts

	ReplicaLag      time.Duration // how far a standby may lag; not checked if less than 0
	DelayedReplicas []string      // standbys that lag intentionally
	OldSnapshot     time.Duration // for how long a snapshot may be held; not checked if less than 0
}

// Overrides are settings of flags and environment. An empty one is not set.
type Overrides struct {
	Database string // one connection string for owner, executor and auditor
	Brokers  string // comma separated
	Keys     string // folder
	HTTP     string
}

// or fills o's empty settings from weaker.
func (o Overrides) or(weaker Overrides) Overrides {
	pick := func(a, b string) string {
		if a != "" {
			return a
		}
		return b
	}
	return Overrides{
		Database: pick(o.Database, weaker.Database), Brokers: pick(o.Brokers, weaker.Brokers),
		Keys: pick(o.Keys, weaker.Keys), HTTP: pick(o.HTTP, weaker.HTTP),
	}
}

// Environment looks up one variable, as os.LookupEnv does.
type Environment func(name string) (value string, set bool)

func (e Environment) get(name string) string {
	value, _ := e(name)
	return value
}

// fromEnvironment reads the settings of the environment.
func fromEnvironment(env Environment) Overrides {
	return Overrides{
		Database: env.get("LAPSE_DATABASE_URL"), Brokers: env.get("LAPSE_KAFKA_BROKERS"), Keys: env.get("LAPSE_KEYS"), HTTP: env.get("LAPSE_HTTP"),
	}
}

// fromVariables sets the settings that have a variable but no flag. A single role's login overrides the login for all roles, also if both are
// variables.
func (s *Settings) fromVariables(env Environment, oneLogin bool) error {
	if slot := env.get("LAPSE_SLOT"); slot != "" {
		s.Slot = slot
	}
	if state := env.get("LAPSE_STATE"); state != "" {
		s.State = state
	}
	if prefix := env.get("LAPSE_ROLES_PREFIX"); prefix != "" {
		if err := checkPrefix(prefix); err != nil {
			return fmt.Errorf("LAPSE_ROLES_PREFIX: %w", err)
		}
		s.Roles = schemas.RolesFor(prefix)
	}
	for _, login := range []struct {
		name string
		into *ConnString
	}{
		{"LAPSE_DATABASE_URL_OWNER", &s.Database.Owner},
		{"LAPSE_DATABASE_URL_EXECUTOR", &s.Database.Executor},
		{"LAPSE_DATABASE_URL_AUDITOR", &s.Database.Auditor},
	} {
		if url := env.get(login.name); url != "" && !oneLogin {
			if err := checkConnString(url); err != nil {
				return fmt.Errorf("%s: %w", login.name, err)
			}
			*login.into = ConnString(url)
		}
	}
	return nil
}

// Variables lists the names of Lapse's environment variables.
func Variables() []string {
	names := []string{
		"LAPSE_CONFIG", "LAPSE_DATABASE_URL", "LAPSE_DATABASE_URL_OWNER", "LAPSE_DATABASE_URL_EXECUTOR", "LAPSE_DATABASE_URL_AUDITOR",
		"LAPSE_KAFKA_BROKERS", "LAPSE_KEYS", "LAPSE_STATE", "LAPSE_SLOT", "LAPSE_ROLES_PREFIX", "LAPSE_HTTP", "LAPSE_SUPERUSER",
	}
	for _, name := range KeyNames() {
		names = append(names, name.variable(), name.variable()+"_FORMER")
	}
	return names
}

// NearestVariable suggests the variable that was most likely meant: one with the same ending, or else the most similar one.
func NearestVariable(name string) string {
	known := Variables()
	_, end, _ := strings.Cut(name, "_")
	if i := slices.IndexFunc(known, func(v string) bool { return strings.HasSuffix(v, "_"+end) }); i >= 0 {
		return known[i]
	}
	return yamldoc.Nearest(name, known)
}

// Load reads the file at path, if that is not empty, and applies flags and environment. An error in the file is a yamldoc.Errors with
// all of its mistakes.
func Load(path string, flags Overrides, env Environment) (*Settings, error) {
	s := defaults()
	s.Keys.env = env
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		s.File = path
		if err := readFile(s, path, text); err != nil {
			return nil, err
		}
	}
	if err := s.override(flags, fromEnvironment(env)); err != nil {
		return nil, err
	}
	if err := s.fromVariables(env, flags.Database != ""); err != nil {
		return nil, err
	}
	switch allow := env.get("LAPSE_SUPERUSER"); allow {
	case "":
	case "allow":
		s.AllowSuperuser = true
	default:
		return nil, fmt.Errorf("LAPSE_SUPERUSER is %q: the only value is allow; leave it out otherwise", allow)
	}
	return s, s.complete()
}

const defaultLog = "lapse.log"

// defaults are the settings without a file.
func defaults() *Settings {
	return &Settings{
		Roles: schemas.RolesFor(schemas.DefaultRolePrefix),
		Kafka: Broker{},
		Topics: Topics{
			System: "lapse.deletes.system", User: "lapse.deletes.user", Log: defaultLog, Create: true,
			Compression: Snappy,
		},
		Format: Spanner,
		Audit:  AuditRequired,
		Ledger: 30,
		HTTP:   "127.0.0.1:7432",
		Proofs: 400 * 24 * time.Hour,

		FailoverTolerance: 5 * time.Minute,
	}
}

func (s *Settings) override(flags, variables Overrides) error {
	o := flags.or(variables)
	refuse := func(flag, given, variable string, err error) error {
		if given != "" {
			return fmt.Errorf("%s: %w", flag, err)
		}
		return fmt.Errorf("%s: %w", variable, err)
	}
	if o.Database != "" {
		if err := checkConnString(o.Database); err != nil {
			return refuse("--database", flags.Database, "LAPSE_DATABASE_URL", err)
		}
		s.Database = sameFor(ConnString(o.Database))
	}
	if o.Brokers != "" {
		brokers := strings.Split(o.Brokers, ",")
		for i, broker := range brokers {
			brokers[i] = strings.TrimSpace(broker)
			if err := checkAddress(brokers[i]); err != nil {
				return refuse("--brokers", flags.Brokers, "LAPSE_KAFKA_BROKERS", err)
			}
		}
		s.Kafka.Brokers = brokers
	}
	if o.Keys != "" {
		s.Keys.Dir = o.Keys
	}
	if o.HTTP != "" {
		if err := checkAddress(o.HTTP); err != nil {
			return refuse("--http", flags.HTTP, "LAPSE_HTTP", err)
		}
		s.HTTP = o.HTTP
	}
	return nil
}

// complete sets what depends on other settings, and checks that the settings fit together.
func (s *Settings) complete() error {
	database, err := s.Database.Name()
	if err != nil {
		return err
	}
	if s.Slot == "" {
		s.Slot = slotFor(database)
	}
	if err := checkSlot(s.Slot); err != nil {
		return err
	}
	if s.Topics.Proofs == "" {
		s.Topics.Proofs = "lapse.proofs"
		if s.Topics.Log != defaultLog {
			s.Topics.Proofs = s.Topics.Log + ".proofs"
		}
	}
	if s.Keys.Dir == "" {
		s.Keys.Dir, s.Keys.Default = defaultKeys(s.Keys.env), true
	}
	if s.State == "" {
		s.State = defaultState(s.Keys.env)
	}
	switch {
	case s.Topics.Partitions > 0:
	case s.Folder != "":
		s.Topics.Partitions = 1 // nothing reads them in parallel, and each one costs a sync
	default:
		s.Topics.Partitions = 6
	}
	return nil
}

// defaultKeys is the folder for keys in the user's configuration folder, "" if there is none.
func defaultKeys(env Environment) string {
	if dir := env.get("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "lapse", "keys")
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "lapse", "keys")
}

// defaultState is the folder for state in the user's home, or else a server's.
func defaultState(env Environment) string {
	if dir := env.get("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "lapse")
	}
	if home := env.get("HOME"); filepath.IsAbs(home) {
		if is, err := os.Stat(home); err == nil && is.IsDir() {
			return filepath.Join(home, ".local", "state", "lapse")
		}
	}
	return "/var/lib/lapse"
}

var notInSlot = regexp.MustCompile(`[^a-z0-9_]`)

// maxSlotName is the length of the longest slot name in PostgreSQL.
const maxSlotName = 63

// slotFor is the default slot name of a database.
func slotFor(database string) string {
	name := "lapse_" + notInSlot.ReplaceAllString(strings.ToLower(database), "_")
	return name[:min(len(name), maxSlotName)]
}

func checkSlot(name string) error {
	if notInSlot.MatchString(name) || len(name) > maxSlotName {
		return fmt.Errorf("slot %q: PostgreSQL takes lower-case letters, digits and underscores, at most %d", name, maxSlotName)
	}
	return nil
}

// ErrNoBrokers says that no place for the topics is configured.
var ErrNoBrokers = errors.New("no Kafka brokers are configured: set kafka.brokers in lapse.yaml, LAPSE_KAFKA_BROKERS or --brokers; " +
	"or have a folder of this machine keep the topics: sink: dir:PATH in lapse.yaml")

// RequireSink returns ErrNoBrokers unless there are brokers, or a folder.
func (s *Settings) RequireSink() error {
	if s.Folder == "" && len(s.Kafka.Brokers) == 0 {
		return ErrNoBrokers
	}
	return nil
}
