package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lapse/audit/evidence"
	"lapse/audit/folder"
	"lapse/audit/kafka"
	"lapse/audit/store"
	"lapse/internal/config"
	"lapse/replication"
	"lapse/schemas"
)

func (a *app) eventsCommand() *cobra.Command {
	var c consumer
	var since, until, key, export string
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print events from the topics: the reference consumer",
		Long: `Reads the system and the user topic from beginning to current end, in the order in which the rows were
deleted, and prints one line per event. With --json the line is the event as it is in the topic. With --follow it then
prints new events as they arrive.

The filters read the records' headers, keys and times only, as any consumer can. Gaps and rewinds are always printed:
they say that events are missing, or that some events never happened. --since and --until compare the commit time; a --key is one
value, several as CSV in the order of the table's identity, or a JSON object; truncates and drops, which remove every key, are printed too.
A --table without a schema is the only table of that name. A table or policy that neither catalog nor topics know is an
error; for a known one, no output means that nothing was deleted.
If the key file named hash is there, hashed keys are found too.

Whatever the filter, every record is checked against the promise of the topics: in one partition events are in the order of
the database's history, each once, and policies' deletes are in the system topic only, with nothing else in it. What breaks the promise is named on stderr, and the exit code is 3.

With --export every record of the topics and of the log goes into files of a folder, byte for byte, with its key, headers and offset. A folder that has
an export already is gone on with.`,
		Example: `  lapse events --cause user --table public.sessions
  lapse events --table public.sessions --key 42 --since 2026-11-01
  lapse events --export evidence
  lapse events --follow --policy sessions-30d --json`,
		Args: noArgs,
	}
	once := true
	cmd.RunE = a.untilStopped(&once, func(cmd *cobra.Command) error {
		once = !c.follow
		s, err := a.settings()
		if err != nil {
			return err
		}
		c.app, c.settings, c.order = a, s, newOrder(a.err, s.Topics.System)
		if export != "" {
			return c.export(cmd, export)
		}
		if err := c.setFilters(since, until, key, s); err != nil {
			return err
		}
		if err := c.run(cmd.Context()); !errors.Is(err, errEnough) {
			return err
		}
		return c.order.verdict()
	})
	flags := cmd.Flags()
	flags.StringVar(&c.cause, "cause", "", "only events of this `cause`: system, user or unverified")
	flags.StringVar(&c.policy, "policy", "", "only events of this `policy`")
	flags.StringVar(&c.table, "table", "", "only events of this `table` and its partitions, as schema.table")
	flags.StringVar(&since, "since", "", "only events of commits at this `time` or later")
	flags.StringVar(&until, "until", "", "only events of commits before this `time`")
	flags.StringVar(&key, "key", "", "only events of the row with this `key`")
	flags.IntVar(&c.limit, "limit", 0, "stop after this `number` of events (default: no limit)")
	flags.StringVar(&export, "export", "", "write all records, and the log's, into files of this `folder`")
	flags.BoolVar(&c.follow, "follow", false, "then print new events as they arrive, until stopped")
	a.jsonFlag(cmd)
	return cmd
}

func causes() []string {
	return []string{evidence.System.String(), evidence.User.String(), evidence.Unverified.String()}
}

// consumer prints events.
type consumer struct {
	*app
	settings             *config.Settings
	cause, policy, table string
	since, until         time.Time
	key                  *keyFilter // nil for any
	limit                int        // 0 for none
	events               int        // printed so far
	follow               bool
	client               store.Client
	printed              replication.Position          // the last printed event's
	everywhere           map[replication.Position]bool // printed events that are in every partition
	order                *order
	known                known
}

// brokerPatience is how long the command waits for silent brokers.
const brokerPatience = 15 * time.Second

// newClient connects to the brokers of the settings.
func (a *app) newClient(s *config.Settings) (store.Client, error) {
	if s.Folder != "" {
		return folder.NewClient(s.Folder), nil
	}
	cfg, err := a.kafkaConfig(s)
	if err != nil {
		return nil, err
	}
	return kafka.NewClient(cfg)
}

func (c *consumer) run(ctx context.Context) (err error) {
	if c.client, err = c.newClient(c.settings); err != nil {
		return err
	}
	defer c.client.Close()
	var readers []*partitionReader
	for _, topic := range c.topics() {
		of, err := c.partitionsOf(ctx, topic)
		if err != nil {
			return err
		}
		readers = append(readers, of...)
	}
	c.askCatalog(ctx)
	if err := c.replay(ctx, readers); err != nil {
		return err
	}
	if err := c.checkNames(ctx); err != nil {
		return err
	}
	if !c.follow {
		return c.order.verdict()
	}
	return c.readOn(ctx, readers)
}

// topics returns the topics that can contain what was asked for.
func (c *consumer) topics() []string {
	system, user := c.settings.Topics.System, c.settings.Topics.User
	switch c.cause {
	case "":
		return []string{system, user}
	case evidence.System.String():
		return []string{system}
	default:
		return []string{user}
	}
}

// partitionReader reads one partition to its end.
type partitionReader struct {
	topic     string
	partition int32
	first     int64
	end       int64
	reader    store.Reader
	next      *schemas.Record // read but not printed
	at        replication.Position
}

func (c *consumer) partitionsOf(ctx context.Context, topic string) ([]*partitionReader, error) {
	ctx, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	offsets, err := c.client.Offsets(ctx, topic)
	var missing *store.MissingError
	switch {
	case errors.As(err, &missing):
		return nil, fmt.Errorf("%w: lapse audit makes the topics when it first runs", err)
	case err != nil:
		return nil, c.silence(err)
	}
	readers := make([]*partitionReader, len(offsets))
	for i, o := range offsets {
		readers[i] = &partitionReader{
			topic: topic, partition: int32(i), first: o.First, end: o.End,
			reader: c.client.Reader(topic, int32(i), o.First, o.End),
		}
	}
	return readers, nil
}

// read reads a partition's next record. It fails if the brokers take too long.
func (c *consumer) read(ctx context.Context, l *partitionReader) (schemas.Record, int64, error) {
	bounded, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	record, offset, err := l.reader.Next(bounded)
	return record, offset, c.silence(err)
}

// each passes every record of a partition, to its end.
func (c *consumer) each(ctx context.Context, l *partitionReader, take func(record *schemas.Record, offset int64) error) error {
	for {
		record, offset, err := c.read(ctx, l)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := take(&record, offset); err != nil {
			return err
		}
	}
}

// silence says what to check if no broker, or no disk, answered in time.
func (c *consumer) silence(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && c.settings.Folder != "" {
		return fmt.Errorf("%s has not been read for %v: see whether its disk answers: %w", c.settings.Folder, brokerPatience, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no broker has answered for %v: see whether Kafka runs at %s, and TLS and login: %w",
			brokerPatience, strings.Join(c.settings.Kafka.Brokers, ", "), err)
	}
	return err
}

// replay prints the existing events in the order of the database's history. Each partition is in that order, so the smallest of their first
// records is always the next event.
func (c *consumer) replay(ctx context.Context, readers []*partitionReader) error {
	open := slices.Clone(readers)
	for {
		for _, l := range open {
			if err := c.fill(ctx, l); err != nil {
				return err
			}
		}
		open = slices.DeleteFunc(open, func(l *partitionReader) bool { return l.next == nil })
		if len(open) == 0 {
			return nil
		}
		first := slices.MinFunc(open, func(a, b *partitionReader) int { return a.at.Compare(b.at) })
		if err := c.print(first.next, first.at); err != nil {
			return err
		}
		first.next = nil
	}
}

// fill reads a partition's next matching record, unless it has one or is at its end.
func (c *consumer) fill(ctx context.Context, l *partitionReader) error {
	for l.next == nil {
		record, offset, err := c.read(ctx, l)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		c.order.Next(l.topic, l.partition, &record, offset)
		c.met(&record)
		if c.wants(&record) {
			l.next, l.at = &record, positionOf(&record)
		}
	}
	return nil
}

// wants reports whether a record is an event that was asked for. It checks only headers.
func (c *consumer) wants(r *schemas.Record) bool {
	matches := func(filter, name string) bool { return filter == "" || filter == r.Header(name) }
	switch {
	case isMarker(r):
		return true
	case r.Header(schemas.HeaderOp) == schemas.OpFence:
		return false
	default:
		return matches(c.cause, evidence.HeaderCause) && matches(c.policy, evidence.HeaderPolicy) &&
			(matches(c.table, evidence.HeaderTable) || matches(c.table, evidence.HeaderRoot)) &&
			c.within(r.Time) && c.concerns(r)
	}
}

// positionOf returns a record's position. A record that Lapse did not write sorts first.
func positionOf(r *schemas.Record) replication.Position {
	position, err := evidence.EventPosition(r)
	if err != nil {
		return replication.Position{}
	}
	return position
}

const eventTime = "2006-01-02T15:04:05.000Z"

// rememberedEverywhere is how many printed events of all partitions a follower remembers. Partitions are never further apart than that.
const rememberedEverywhere = 10_000

// concernsAllRows reports whether an event names no row. Such an event is in every partition.
func concernsAllRows(r *schemas.Record) bool {
	op := r.Header(schemas.HeaderOp)
	return op == evidence.Truncate.String() || op == evidence.Drop.String()
}

// print writes one event. It prints an event that is in every partition, such as a truncate, only once.
func (c *consumer) print(r *schemas.Record, at replication.Position) error {
	if at == c.printed {
		c.order.Elsewhere(r)
		return nil
	}
	c.printed = at
	if isMarker(r) || concernsAllRows(r) {
		if c.everywhere[at] {
			return nil // a copy from a partition that was read later
		}
		if c.everywhere == nil || len(c.everywhere) >= rememberedEverywhere {
			c.everywhere = map[replication.Position]bool{}
		}
		c.everywhere[at] = true
	}
	if isMarker(r) {
		return c.printLine(r, at)
	}
	if err := c.printLine(r, at); err != nil {
		return err
	}
	if c.events++; c.events == c.limit {
		return errEnough
	}
	return nil
}

func (c *consumer) printLine(r *schemas.Record, at replication.Position) error {
	if c.asJSON {
		_, err := c.raw().Write(append(bytes.TrimRight(r.Value, "\n"), '\n'))
		return err
	}
	if isMarker(r) {
		_, err := fmt.Fprintf(c.out, "%s %s\n", r.Time.Format(eventTime), markerLine(r))
		return err
	}
	line := fmt.Sprintf("%s %-10s %-8s %s %s", r.Time.Format(eventTime), r.Header(evidence.HeaderCause),
		r.Header(schemas.HeaderOp), r.Header(evidence.HeaderTable), r.Key)
	if policy := r.Header(evidence.HeaderPolicy); policy != "" {
		line += " policy=" + policy
	}
	_, err := fmt.Fprintf(c.out, "%s lsn=%s seq=%08X\n", line, at.Commit, at.Ordinal)
	return err
}
