package kafkaserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"lapse/internal/child"
)

// defaultSettings are what a broker has if Options.Settings does not say otherwise. Internal topics have one partition:
// a broker that has just started is ready for groups and transactions sooner.
func (p ports) defaultSettings() map[string]string {
	settings := map[string]string{
		"node.id":                                  "1",
		"process.roles":                            "broker,controller",
		"listeners":                                fmt.Sprintf("BROKER://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", p.broker, p.controller),
		"advertised.listeners":                     fmt.Sprintf("BROKER://127.0.0.1:%d", p.broker),
		"listener.security.protocol.map":           "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":               "BROKER",
		"controller.listener.names":                "CONTROLLER",
		"controller.quorum.voters":                 fmt.Sprintf("1@127.0.0.1:%d", p.controller),
		"auto.create.topics.enable":                "false",
		"num.partitions":                           "1",
		"default.replication.factor":               "1",
		"min.insync.replicas":                      "1",
		"offsets.topic.num.partitions":             "1",
		"offsets.topic.replication.factor":         "1",
		"transaction.state.log.num.partitions":     "1",
		"transaction.state.log.replication.factor": "1",
		"transaction.state.log.min.isr":            "1",
		"group.initial.rebalance.delay.ms":         "0",
		"num.network.threads":                      "2",
		"num.io.threads":                           "2",
		"log.cleaner.dedupe.buffer.size":           "16777216",
		// After a kill the controller waits for the former process's session to end: 9 s by default.
		"broker.session.timeout.ms":    "2000",
		"broker.heartbeat.interval.ms": "500",
	}
	if p.login != 0 {
		settings["listeners"] += fmt.Sprintf(",LOGIN://127.0.0.1:%d", p.login)
		settings["advertised.listeners"] += fmt.Sprintf(",LOGIN://127.0.0.1:%d", p.login)
		settings["listener.security.protocol.map"] += ",LOGIN:SASL_PLAINTEXT"
		settings["listener.name.login.sasl.enabled.mechanisms"] = "SCRAM-SHA-256,SCRAM-SHA-512"
		const scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		for _, mechanism := range []string{"scram-sha-256", "scram-sha-512"} {
			settings["listener.name.login."+mechanism+".sasl.jaas.config"] = scramModule
		}
	}
	return settings
}

const logConfiguration = `status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
`

// prepare writes the configuration of a broker and formats its storage, unless the folder holds one: then its ports are
// taken over from its configuration.
func (s *Server) prepare(ctx context.Context) (found bool, err error) {
	if s.ports, err = s.readPorts(); err == nil {
		return true, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if err := os.MkdirAll(s.dataDir(), 0o755); err != nil {
		return false, err
	}
	if s.member != nil {
		s.ports = s.member.ports()
	} else if s.ports, err = choosePorts(s.options.Port); err != nil {
		return false, err
	}
	for s.options.Login && (s.ports.login == 0 || s.ports.login == s.ports.broker || s.ports.login == s.ports.controller) {
		if s.ports.login, err = child.FreePort(); err != nil {
			return false, err
		}
	}
	settings := s.ports.defaultSettings()
	if s.member != nil {
		maps.Copy(settings, s.member.settings())
	}
	maps.Copy(settings, s.options.Settings)
	settings["log.dirs"] = s.dataDir()
	var properties strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&properties, "%s=%s\n", name, settings[name])
	}
	if err := os.WriteFile(s.propertiesFile(), []byte(properties.String()), 0o644); err != nil {
		return false, err
	}
	if err := os.WriteFile(s.logConfigFile(), []byte(logConfiguration), 0o644); err != nil {
		return false, err
	}
	return false, s.format(ctx)
}

// metaProperties is Kafka's marker of formatted storage.
const metaProperties = "meta.properties"

// checkpoint is the other file of formatted storage: the features of the release.
const checkpoint = "bootstrap.checkpoint"

// format gives the storage its cluster id: with files of its own where an earlier broker's checkpoint was kept, or by Kafka's tool.
func (s *Server) format(ctx context.Context) error {
	id := uuid.New()
	if s.member != nil {
		id = s.member.cluster
	}
	content, err := os.ReadFile(s.install.first)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return s.formatByTool(ctx, id)
	case err != nil:
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dataDir(), checkpoint), content, 0o644); err != nil {
		return err
	}
	node, directory := 1, uuid.New()
	if s.member != nil {
		node = s.member.node
	}
	meta := fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=%d\ndirectory.id=%s\n", kafkaID(id), node, kafkaID(directory))
	return os.WriteFile(filepath.Join(s.dataDir(), metaProperties), []byte(meta), 0o644)
}

func kafkaID(id uuid.UUID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func (s *Server) formatByTool(ctx context.Context, id uuid.UUID) error {
	tool, err := s.java(syscall.SIGKILL, "kafka.tools.StorageTool", "format", "--cluster-id="+kafkaID(id), "--config", s.propertiesFile())
	if err != nil {
		return err
	}
	if err := tool.Wait(ctx); err != nil {
		return errors.Join(err, tool.Signal(syscall.SIGKILL))
	}
	if !tool.State().Success() {
		return fmt.Errorf("format the storage: %s\n%s", tool.State(), child.Tail(s.LogFile(), 20))
	}
	return nil
}

// keepFirst keeps the broker's checkpoint for those that are formatted next.
func (s *Server) keepFirst() error {
	content, err := os.ReadFile(filepath.Join(s.dataDir(), checkpoint))
	if err != nil {
		return err
	}
	partial := s.install.first + ".partial"
	if err := os.WriteFile(partial, content, 0o644); err != nil {
		return err
	}
	return os.Rename(partial, s.install.first)
}

func choosePorts(broker int) (p ports, err error) {
	p.broker = broker
	if p.broker == 0 {
		if p.broker, err = child.FreePort(); err != nil {
			return p, err
		}
	}
	for p.controller == 0 || p.controller == p.broker {
		if p.controller, err = child.FreePort(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// readPorts reads the ports of the broker that the folder holds. os.ErrNotExist: it holds none that was made to the end.
func (s *Server) readPorts() (p ports, err error) {
	if _, err := os.Stat(filepath.Join(s.dataDir(), metaProperties)); err != nil {
		return p, err
	}
	content, err := os.ReadFile(s.propertiesFile())
	if err != nil {
		return p, err
	}
	for line := range strings.Lines(string(content)) {
		const format = "listeners=BROKER://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d,LOGIN://127.0.0.1:%d"
		if n, _ := fmt.Sscanf(line, format, &p.broker, &p.controller, &p.login); n >= 2 {
			return p, nil // n is 3 for a broker with Options.Login
		}
	}
	return p, fmt.Errorf("%s does not name the broker's and the controller's port", s.propertiesFile())
}

// java runs one of Kafka's programs.
func (s *Server) java(onDeath syscall.Signal, class string, args ...string) (process *child.Process, err error) {
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if s.native == nil {
		if s.native, err = child.NewProgramFolder("kafkalib"); err != nil {
			return nil, err
		}
	}
	options := []string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true", "-Djava.io.tmpdir=" + s.native.Path,
		"-Dlog4j2.configurationFile=" + s.logConfigFile(),
	}
	if _, err := os.Stat(s.install.archive); err == nil {
		options = append(options, "-XX:SharedArchiveFile="+s.install.archive)
	}
	options = append(options, s.options.Java...)
	options = append(options, "-cp", filepath.Join(s.install.LibDir, "*"), class)
	cmd := exec.Command(s.install.Java, append(options, args...)...) //nolint:noctx // A broker outlives the context of its start.
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = log, log
	return child.Start(cmd, onDeath)
}

func (s *Server) dataDir() string        { return filepath.Join(s.dir, "data") }
func (s *Server) propertiesFile() string { return filepath.Join(s.dir, "server.properties") }
func (s *Server) logConfigFile() string  { return filepath.Join(s.dir, "log4j2.properties") }
