package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"

	"lapse/internal/child"
)

// Options say how a broker is made. The zero value of each field is a good one.
type Options struct {
	// Dir holds data and log, and stays when the broker is closed. A broker that is in it is started as it is: Settings
	// have no effect then. Empty: a temporary folder, which goes with the broker.
	Dir string
	// Settings of server.properties, over the defaults.
	Settings map[string]string
	// Java are arguments for java over the defaults, which are for a quick start: -Xmx512m, and the quick compiler alone
	// (-XX:TieredStopAtLevel=1). A benchmark wants -XX:TieredStopAtLevel=4.
	Java []string
	// Port on 127.0.0.1. Zero: a free one.
	Port int
	// Login adds a second port where clients must log in, by SCRAM unless Settings say otherwise: see LoginAddr and AddUser.
	// A cluster has none.
	Login bool
}

// Server is one broker. Its methods are for one goroutine at a time, but for Addr and the paths.
type Server struct {
	install Install
	options Options
	folder  *child.Folder // nil if the caller named one
	dir     string
	native  *child.Folder // where Java puts libraries that it loads: a killed broker leaves them
	ports   ports
	member  *member        // nil if it is no cluster's
	process *child.Process // nil when it is not running
}

// ports are written into server.properties, and stay.
type ports struct{ broker, controller, login int } // login is 0 without Options.Login

// Start makes a broker and starts it. It returns when the broker answers. If the context ends first, nothing is left
// running.
func Start(ctx context.Context, options Options) (*Server, error) {
	install, err := Find()
	if err != nil {
		return nil, err
	}
	s := &Server{install: install, options: options, dir: options.Dir}
	if err := s.firstStart(ctx); err != nil {
		return nil, errors.Join(err, s.removeFolders())
	}
	return s, nil
}

// firstStart chooses ports, unless the folder holds a broker that has them. Between choice and start somebody else may
// have taken one: then others, with a broker made again.
func (s *Server) firstStart(ctx context.Context) (err error) {
	if s.dir == "" {
		if s.folder, err = child.NewFolder("kafka"); err != nil {
			return err
		}
		s.dir = s.folder.Path
	}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return err
	}
	for try := 1; ; try++ {
		found, err := s.prepare(ctx)
		if err != nil {
			return fmt.Errorf("prepare Kafka: %w", err)
		}
		err = s.Start(ctx)
		taken := !child.PortIsFree(s.ports.broker) || !child.PortIsFree(s.ports.controller) ||
			s.ports.login != 0 && !child.PortIsFree(s.ports.login)
		if err == nil || ctx.Err() != nil || found || s.options.Port != 0 || !taken || try == 3 {
			return err
		}
		if err := os.RemoveAll(s.dataDir()); err != nil {
			return err
		}
	}
}

// Start starts the broker again after Stop or Kill, with its records and its ports. It returns when the broker answers.
func (s *Server) Start(ctx context.Context) error {
	if s.Running() {
		return errors.New("start Kafka: it is running")
	}
	process, err := s.java(syscall.SIGKILL, "kafka.Kafka", s.propertiesFile())
	if err != nil {
		return err
	}
	s.process = process
	if err := s.waitReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("start Kafka: %w\n%s", err, child.Tail(s.LogFile(), 20)), s.Kill())
	}
	return nil
}

// waitReady waits until the broker lists itself among those of the cluster.
func (s *Server) waitReady(ctx context.Context) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !s.answers(ctx) {
		select {
		case <-poll.C:
		case <-s.process.Exited():
			return fmt.Errorf("it ended: %s", s.process.State())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *Server) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, done := s.client()
	defer done()
	answer, err := client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return false
	}
	for _, broker := range answer.Brokers {
		if broker.Port == s.ports.broker {
			return true
		}
	}
	return false
}

// client is a client of this broker alone, and what closes it.
func (s *Server) client() (*kafka.Client, func()) {
	transport := &kafka.Transport{}
	return &kafka.Client{Addr: kafka.TCP(s.Addr()), Transport: transport}, transport.CloseIdleConnections
}

// CreateTopic makes a topic and returns when all its partitions have a leader. It has as many replicas as the broker's
// default.replication.factor says: one, and three in a cluster. Settings are the topic's, such as max.message.bytes; nil
// for none.
func (s *Server) CreateTopic(ctx context.Context, name string, partitions int, settings map[string]string) error {
	client, done := s.client()
	defer done()
	topic := kafka.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: -1}
	for name, value := range settings {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err == nil {
		err = answer.Errors[name]
	}
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for !s.leads(ctx, name, partitions) {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("create topic %s: no leader yet: %w", name, context.Cause(ctx))
		}
	}
	return nil
}

// leads asks over a connection of its own: a kafka.Client answers from what it has seen within the last seconds.
func (s *Server) leads(ctx context.Context, topic string, partitions int) bool {
	client, done := s.client()
	defer done()
	answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil || len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != partitions {
		return false
	}
	var ends []kafka.OffsetRequest
	for _, partition := range answer.Topics[0].Partitions {
		if partition.Error != nil || partition.Leader.Port == 0 {
			return false
		}
		ends = append(ends, kafka.LastOffsetOf(partition.ID))
	}
	// A busy broker says that it leads a partition before it does: only a leader knows where one ends.
	offsets, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: ends}})
	if err != nil || len(offsets.Topics[topic]) != partitions {
		return false
	}
	return !slices.ContainsFunc(offsets.Topics[topic], func(o kafka.PartitionOffsets) bool { return o.Error != nil })
}

// Tool runs one of Kafka's command-line programs by its class, such as org.apache.kafka.tools.consumer.ConsoleConsumer, and
// returns what it has written to its standard output.
func (s *Server) Tool(ctx context.Context, class string, args ...string) (string, error) {
	command := append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(s.install.LibDir, "*"), class}, args...)
	cmd := exec.CommandContext(ctx, s.install.Java, command...)
	var errors strings.Builder
	cmd.Dir, cmd.Stderr = s.dir, &errors
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w\n%s", class, err, errors.String())
	}
	return string(out), nil
}

// Running says whether the broker's process is alive.
func (s *Server) Running() bool {
	return s.process != nil && s.process.State() == nil
}

// Stop asks the broker for a controlled shutdown and waits until it is gone. When the context ends first, the broker
// still runs.
func (s *Server) Stop(ctx context.Context) error {
	if !s.Running() {
		return nil
	}
	err := s.process.Signal(syscall.SIGTERM)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop Kafka: %w", err)
	}
	if err := s.process.Wait(ctx); err != nil {
		return fmt.Errorf("stop Kafka: %w", err)
	}
	return nil
}

// Kill ends the broker as kill -9 does, and returns when it is gone.
func (s *Server) Kill() error {
	if !s.Running() {
		return nil
	}
	err := s.process.Signal(syscall.SIGKILL)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill Kafka: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.process.Wait(ctx)
}

// Freeze holds the broker (SIGSTOP): its connections stay open and it answers nobody, as a machine that has stopped or a long
// pause of its garbage collector. It returns when the process is stopped.
func (s *Server) Freeze() error {
	if !s.Running() {
		return errors.New("freeze Kafka: it is not running")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.signalAndWait(ctx, syscall.SIGSTOP, true)
}

// Thaw lets a frozen broker go on.
func (s *Server) Thaw() error {
	if !s.Running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.signalAndWait(ctx, syscall.SIGCONT, false)
}

// Frozen says whether the broker is held by Freeze.
func (s *Server) Frozen() bool {
	if !s.Running() {
		return false
	}
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.PID()))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(content), ") ") // PID (java) state …
	return strings.HasPrefix(after, "T")
}

func (s *Server) signalAndWait(ctx context.Context, signal syscall.Signal, frozen bool) error {
	if err := s.process.Signal(signal); err != nil {
		return fmt.Errorf("signal Kafka: %w", err)
	}
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for s.Running() && s.Frozen() != frozen {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("signal Kafka: %w", context.Cause(ctx))
		}
	}
	return nil
}

// Close kills the broker and removes the folder that Start made. A folder named in Options stays.
func (s *Server) Close() error {
	return errors.Join(s.Kill(), s.removeFolders())
}

func (s *Server) removeFolders() error {
	var errs []error
	for _, folder := range []*child.Folder{s.folder, s.native} {
		if folder != nil {
			errs = append(errs, folder.Remove())
		}
	}
	return errors.Join(errs...)
}

// Addr is the broker's address for clients, host:port. It stays for the broker's life.
func (s *Server) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports.broker))
}

// Version is the Kafka release.
func (s *Server) Version() string { return s.install.Version }

// PID is the broker's process id, or that of the last one.
func (s *Server) PID() int { return s.process.PID() }

// LogFile is the broker's log. It goes with the folder.
func (s *Server) LogFile() string { return filepath.Join(s.dir, "kafka.log") }
