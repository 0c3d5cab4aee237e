package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"

	"lapse/bench/internal/measure"
	"lapse/internal/child"
	"lapse/internal/kafkaserver"
	"lapse/internal/servers"
)

// findDebezium is the folder of Debezium and Kafka Connect. Without it the rest is measured.
func (b *bench) findDebezium() (folder string, err error) {
	dir, err := servers.Dir()
	if err != nil {
		return "", err
	}
	if folder = servers.DebeziumDir(dir); !servers.Complete(folder, servers.DebeziumRelease()) {
		b.Say("going on without Debezium: %s is not in %s; make debezium fetches it, -debezium=false leaves it out", servers.DebeziumRelease(), folder)
		return "", nil
	}
	return folder, nil
}

// connect is one run of Kafka Connect, standalone, with Debezium's connector in it.
type connect struct {
	place   *place
	tuned   bool
	name    string // and the prefix of its topic
	dir     string
	process *child.Process
}

// warmUp is what a way takes before its first record is in the topic, and how fast it is at the end.
type warmUp struct {
	Seconds    float64 `json:"seconds"`
	CPU        float64 `json:"cpu_seconds"`
	BrokerCPU  float64 `json:"broker_cpu_seconds"` // the broker does nothing for this way yet: it idles, and is asked whether there is a record
	SecondHalf float64 `json:"rows_per_second_of_the_second_half"`
}

// throughDebezium lets Debezium drain a copy of the slot. The clock runs from the first record in the topic to the last; CPU time and memory
// are those of the whole run.
func (p *place) throughDebezium(ctx context.Context, tuned bool) (d drained, err error) {
	p.connects++
	c := &connect{place: p, tuned: tuned, name: fmt.Sprintf("debezium%d", p.connects)}
	c.dir = filepath.Join(p.dir, c.name)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.remove(context.WithoutCancel(ctx)))
		}
	}()
	if err := p.copySlot(ctx); err != nil {
		return d, err
	}
	// What is deleted with the topic is gone at once: with schemas it is gigabytes.
	if err := p.broker.CreateTopic(ctx, c.topic(), partitions, map[string]string{"file.delete.delay.ms": "100"}); err != nil {
		return d, err
	}
	if err := c.start(); err != nil {
		return d, err
	}
	if d, err = c.watch(ctx); err != nil {
		return d, fmt.Errorf("%w\n%s", err, child.Tail(c.logFile(), 20))
	}
	d.after = func(ctx context.Context, through bool) error {
		err := c.stop(ctx) // what it would still have sent is there then
		if err == nil {
			err = p.arrived(ctx, ends{c.topic(): make([]int64, partitions)}, c.records(), 0, through, true)
		}
		return errors.Join(err, c.remove(ctx))
	}
	return d, nil
}

func (c *connect) topic() string   { return c.name + ".shop.sessions" }
func (c *connect) logFile() string { return filepath.Join(c.dir, "connect.log") }

// records is how many it writes for the backlog: by default a tombstone follows each event.
func (c *connect) records() int {
	if c.tuned {
		return c.place.deleted
	}
	return 2 * c.place.deleted
}

// worker is the configuration of Kafka Connect.
func (c *connect) worker(port int) string {
	text := fmt.Sprintf(`bootstrap.servers=%s
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.file.filename=%s
listeners=http://127.0.0.1:%d
plugin.path=%s
plugin.discovery=only_scan
`, c.place.broker.Addr(), filepath.Join(c.dir, "offsets"), port, filepath.Join(c.place.debezium, "plugins"))
	if c.tuned {
		text += `key.converter.schemas.enable=false
value.converter.schemas.enable=false
connector.client.config.override.policy=All
`
	}
	return text
}

// connector is the configuration of Debezium. It reads the publication in which Lapse has the table, and none of Lapse's own: its rows of
// evidence are in another publication, and its messages are left out.
func (c *connect) connector() string {
	text := fmt.Sprintf(`name=%s
topic.prefix=%[1]s
connector.class=io.debezium.connector.postgresql.PostgresConnector
tasks.max=1
plugin.name=pgoutput
database.hostname=127.0.0.1
database.port=%d
database.user=postgres
database.password=none
database.dbname=%s
database.sslmode=disable
slot.name=%s
publication.name=lapse_deletes
publication.autocreate.mode=disabled
table.include.list=shop.sessions
message.prefix.exclude.list=lapse
snapshot.mode=no_data
`, c.name, c.place.server.Port(), database, copied)
	if c.tuned {
		text += `tombstones.on.delete=false
max.batch.size=16384
max.queue.size=65536
poll.interval.ms=10
producer.override.linger.ms=20
producer.override.batch.size=900000
producer.override.buffer.memory=134217728
producer.override.compression.type=lz4
`
	}
	return text
}

const connectLog = `status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n
logger.stats.name = io.debezium.metrics.stats
logger.stats.level = off
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
`

// start starts Kafka Connect.
func (c *connect) start() error {
	install, err := kafkaserver.Find()
	if err != nil {
		return err
	}
	port, err := child.FreePort()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{"worker.properties": c.worker(port), "connector.properties": c.connector(), "log4j2.properties": connectLog} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	log, err := os.Create(c.logFile())
	if err != nil {
		return err
	}
	cmd := exec.Command(install.Java, "-Xmx2g", "-Djava.awt.headless=true", "-Dlog4j2.configurationFile=log4j2.properties", //nolint:noctx // stop ends it.
		"-cp", filepath.Join(c.place.debezium, "connect", "*"), "org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties", "connector.properties")
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log
	c.process, err = child.Start(cmd, syscall.SIGKILL)
	return errors.Join(err, log.Close())
}

// watch watches the topic until the last record is in it.
func (c *connect) watch(ctx context.Context) (s drained, err error) {
	_, brokerBefore, err := c.place.cpu()
	if err != nil {
		return s, err
	}
	g := &gauge{want: c.records(), begun: time.Now()}
	for !g.done() {
		select {
		case <-time.After(g.pause()):
		case <-c.process.Exited():
			return s, fmt.Errorf("wait for Kafka Connect: it has ended with %d of %d records in the topic: %s", g.n, g.want, c.process.State())
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
		found, err := c.place.ends(ctx, c.topic())
		if err != nil {
			return s, err
		}
		g.saw(int(found.sum()), time.Now())
		if g.stalled(time.Now()) {
			return s, fmt.Errorf("wait for Kafka Connect: %d of %d records are in the topic, and none has come for %v", g.n, g.want, standstill)
		}
		if g.n == 0 || s.warmUp != nil {
			continue
		}
		client, clientErr := measure.CPU(c.process.PID())
		_, broker, err := c.place.cpu()
		if err := errors.Join(clientErr, err); err != nil {
			return s, err
		}
		s.warmUp = &warmUp{Seconds: g.first.Sub(g.begun).Seconds(), CPU: client.Seconds(), BrokerCPU: (broker - brokerBefore).Seconds()}
	}
	s.Seconds = g.seconds()
	s.warmUp.SecondHalf = g.secondHalf() * float64(c.place.deleted) / s.Seconds
	var cpuErr, memoryErr error
	s.CPU, cpuErr = measure.CPU(c.process.PID())
	s.Memory, memoryErr = measure.Peak(c.process.PID())
	return s, errors.Join(cpuErr, memoryErr)
}

// stop ends Kafka Connect.
func (c *connect) stop(ctx context.Context) error {
	if c.process == nil {
		return nil
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := c.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := c.process.Wait(limited)
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("stop Kafka Connect: process %d does not end", c.process.PID())
}

// remove leaves nothing of it.
func (c *connect) remove(ctx context.Context) error {
	err := errors.Join(c.stop(ctx), c.place.dropCopy(ctx), os.RemoveAll(c.dir))
	answer, deleted := c.place.kafka.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{c.topic()}})
	if deleted == nil && answer.Errors[c.topic()] != nil && !errors.Is(answer.Errors[c.topic()], kafka.UnknownTopicOrPartition) {
		deleted = answer.Errors[c.topic()]
	}
	return errors.Join(err, deleted)
}
