package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"lapse/internal/yamldoc"
	"lapse/schemas"
)

// readFile reads the text of lapse.yaml into s. Relative paths in it start from its folder.
func readFile(s *Settings, path string, text []byte) error {
	d := &document{yamldoc.Document{File: path}}
	f := &file{document: d, dir: filepath.Dir(path), s: s}
	if body := d.Root(text); !body.IsZero() {
		d.mapping(body, "the configuration", f.fields()...)
	}
	return d.Err()
}

// file reads lapse.yaml, key by key.
type file struct {
	*document
	dir string
	s   *Settings
}

func (f *file) fields() []field {
	return []field{
		{"database", f.database},
		{"slot", f.checked(&f.s.Slot, checkSlot)},
		{"roles", f.roles},
		{"keys", f.path(&f.s.Keys.Dir)},
		{"state", f.path(&f.s.State)},
		{"kafka", f.kafka},
		{"topics", f.topics},
		{"sink", f.sink},
		{"log_name", f.checked(&f.s.LogName, checkLogName)},
		{"proofs", f.durationOr("forever", &f.s.Proofs)},
		{"witnesses", f.witnesses},
		{"anchors", f.anchors},
		{"format", f.format},
		{"audit", f.word((*string)(&f.s.Audit), string(AuditRequired), string(AuditOff))},
		{"limits", f.limits},
		{"ledger_days", f.count(&f.s.Ledger, 1)},
		{"failover_tolerance", f.tolerance},
		{"floors", f.floors},
		{"declared", f.declared},
		{"http", f.checked(&f.s.HTTP, checkAddress)},
	}
}

// checked reads a text that must satisfy check.
func (f *file) checked(into *string, check func(string) error) func(yamldoc.Node) {
	return func(node yamldoc.Node) {
		var text string
		f.text(&text)(node)
		if text == "" {
			return
		}
		if err := check(text); err != nil {
			f.complain(node, "%v", err)
			return
		}
		*into = text
	}
}

// path reads the name of a file or folder.
func (f *file) path(into *string) func(yamldoc.Node) {
	return func(node yamldoc.Node) {
		var name string
		f.text(&name)(node)
		if name != "" && !filepath.IsAbs(name) {
			name = filepath.Join(f.dir, name)
		}
		if name != "" {
			*into = name
		}
	}
}

// database reads one connection string, or one for each of the three roles.
func (f *file) database(node yamldoc.Node) {
	if node.Kind() != yamldoc.Mapping {
		var one string
		f.checked(&one, checkConnString)(node)
		f.s.Database = sameFor(ConnString(one))
		return
	}
	var owner, executor, auditor string
	f.mapping(node, "database",
		field{"owner", f.checked(&owner, checkConnString)},
		field{"executor", f.checked(&executor, checkConnString)},
		field{"auditor", f.checked(&auditor, checkConnString)})
	f.s.Database = Database{Owner: ConnString(owner), Executor: ConnString(executor), Auditor: ConnString(auditor)}
}

var rolePrefix = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

func checkPrefix(text string) error {
	if !rolePrefix.MatchString(text) || len(text) > 51 {
		return fmt.Errorf("%q cannot begin a role's name: want lower-case letters, digits and underscores", text)
	}
	return nil
}

func (f *file) roles(node yamldoc.Node) {
	prefix := schemas.DefaultRolePrefix
	f.mapping(node, "roles", field{"prefix", f.checked(&prefix, checkPrefix)})
	f.s.Roles = schemas.RolesFor(prefix)
}

func (f *file) kafka(node yamldoc.Node) {
	f.mapping(node, "kafka",
		field{"brokers", f.brokers},
		field{"tls", f.tls},
		field{"sasl", f.sasl})
}

func (f *file) brokers(node yamldoc.Node) {
	f.list(&f.s.Kafka.Brokers)(node)
	for _, broker := range f.s.Kafka.Brokers {
		if err := checkAddress(broker); err != nil {
			f.complain(node, "%v", err)
		}
	}
}

// tls reads `tls: true`, or the names of files.
func (f *file) tls(node yamldoc.Node) {
	if node.Kind() == yamldoc.Boolean {
		var on bool
		f.flag(&on)(node)
		if on {
			f.s.Kafka.TLS = &TLS{}
		}
		return
	}
	f.s.Kafka.TLS = &TLS{}
	f.mapping(node, "tls",
		field{"ca", f.path(&f.s.Kafka.TLS.CA)},
		field{"cert", f.path(&f.s.Kafka.TLS.Cert)},
		field{"key", f.path(&f.s.Kafka.TLS.Key)})
	if (f.s.Kafka.TLS.Cert == "") != (f.s.Kafka.TLS.Key == "") {
		f.complain(node, "cert and key belong together: give both or none")
	}
}

func (f *file) sasl(node yamldoc.Node) {
	sasl := &SASL{}
	f.mapping(node, "sasl",
		field{"mechanism", f.word((*string)(&sasl.Mechanism), string(Plain), string(ScramSHA256), string(ScramSHA512))},
		field{"username", f.text(&sasl.Username)},
		field{"password_file", f.path(&sasl.PasswordFile)})
	if sasl.Mechanism == "" || sasl.Username == "" || sasl.PasswordFile == "" {
		f.complain(node, "sasl needs mechanism, username and password_file")
	}
	f.s.Kafka.SASL = sasl
}

// sink reads kafka, or dir: with the folder that keeps the topics.
func (f *file) sink(node yamldoc.Node) {
	var text string
	f.text(&text)(node)
	dir, isDir := strings.CutPrefix(text, "dir:")
	switch {
	case text == "": // already reported
	case text == "kafka":
		f.s.Folder = ""
	case !isDir || strings.TrimSpace(dir) == "":
		f.complain(node, "%q is no sink: want kafka, or dir: and a folder, as in dir:/var/lib/lapse", text)
	case filepath.IsAbs(dir):
		f.s.Folder = filepath.Clean(dir)
	default:
		f.s.Folder = filepath.Join(f.dir, dir)
	}
}

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

func checkTopic(name string) error {
	if !topicName.MatchString(name) || len(name) > 249 || name == "." || name == ".." {
		return fmt.Errorf("%q is no topic name: Kafka takes letters, digits, dot, underscore and hyphen", name)
	}
	return nil
}

func (f *file) topics(node yamldoc.Node) {
	t := &f.s.Topics
	f.mapping(node, "topics",
		field{"system", f.checked(&t.System, checkTopic)},
		field{"user", f.checked(&t.User, checkTopic)},
		field{"log", f.checked(&t.Log, checkTopic)},
		field{"proofs", f.checked(&t.Proofs, checkTopic)},
		field{"partitions", f.count(&t.Partitions, 1)},
		field{"replication", f.count(&t.Replication, 1)},
		field{"create", f.flag(&t.Create)},
		field{"compression", f.word((*string)(&t.Compression), string(Snappy), string(LZ4), string(Zstd), string(NoCompression))},
		field{"retention", f.durationOr("forever", &t.Retention)})
	if names := []string{t.System, t.User, t.Log, t.Proofs}; len(slices.Compact(slices.Sorted(slices.Values(names)))) < len(names) {
		f.complain(node, "system, user, log and proofs must be four topics")
	}
}

// logName reads a valid name of a C2SP signed note, on one readable line.
var logName = regexp.MustCompile(`^[!-*,-~]+$`)

func checkLogName(name string) error {
	if !logName.MatchString(name) || len(name) > 200 {
		return fmt.Errorf("%q names no log: want up to 200 printable ASCII characters without spaces and plus signs, such as app.example.com/lapse", name)
	}
	return nil
}

func (f *file) format(node yamldoc.Node) {
	f.word((*string)(&f.s.Format), string(Spanner), string(Debezium), string(CloudEvents))(node)
}

func (f *file) limits(node yamldoc.Node) {
	l := &f.s.Limits
	f.mapping(node, "limits",
		field{"rows_per_pass", f.count(&l.PassRows, 1)},
		field{"workers", f.between(&l.Workers, 1, mostWorkers)},
		field{"turn_rows", f.count(&l.TurnRows, 1)},
		field{"turn_time", f.duration(&l.TurnTime)},
		field{"batch_time", f.duration(&l.BatchTime)},
		field{"replica_lag", f.durationOr("off", &l.ReplicaLag)},
		field{"delayed_replicas", f.replicas},
		field{"old_snapshot", f.durationOr("off", &l.OldSnapshot)})
}

func (f *file) replicas(node yamldoc.Node) {
	f.list(&f.s.Limits.DelayedReplicas)(node)
	if slices.Contains(f.s.Limits.DelayedReplicas, "") {
		f.complain(node, "want each standby's application_name, and none that is empty")
	}
}

// durationOr reads a length of time, or a word, which gives a value below 0.
func (f *file) durationOr(word string, into *time.Duration) func(yamldoc.Node) {
	return func(node yamldoc.Node) {
		if text, ok := node.Scalar(); ok && text == word {
			*into = -1
			return
		}
		f.duration(into)(node)
	}
}

// mostWorkers exceeds the number of processors of any database server. Each worker takes two connections.
const mostWorkers = 64

// tolerance reads a length of time, or 0.
func (f *file) tolerance(node yamldoc.Node) {
	if n, ok := node.Int(); ok && n == 0 {
		f.s.FailoverTolerance = 0
		return
	}
	f.duration(&f.s.FailoverTolerance)(node)
}

// checkAddress requires host and port, as in 127.0.0.1:7432.
func checkAddress(text string) error {
	if text == "" {
		return errors.New(`"" is no address: write host:port, in quotes if it is within braces: { brokers: ["kafka-1:9092"] }`)
	}
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q is no address: write host:port", text)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return fmt.Errorf("%q is no address: the port is a number up to 65535", text)
	}
	return nil
}
