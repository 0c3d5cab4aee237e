package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/segmentio/kafka-go"

	"lapse/bench/internal/measure"
	"lapse/internal/kafkaserver"
	"lapse/internal/pgserver"
)

// auditing measures how fast each side brings deletes from its slot into Kafka.
func (b *bench) auditing(ctx context.Context, install pgserver.Install, of *scenario, r *report) (err error) {
	b.Say("PostgreSQL %s, %s", install.Version, of.title)
	broker, err := kafkaserver.Start(ctx, kafkaserver.Options{Java: []string{"-Xmx1g", "-XX:TieredStopAtLevel=4"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	for _, w := range of.workloads {
		samples, err := b.audited(ctx, install, broker, of, w)
		if err != nil {
			return err
		}
		r.add(install, of, w, samples)
	}
	return nil
}

// audited returns the samples of one workload, by side. Each side has a server of its own: no slot has to read past what the
// other side did.
func (b *bench) audited(
	ctx context.Context, install pgserver.Install, broker *kafkaserver.Server, of *scenario, w workload,
) (samples measure.Samples[sample], err error) {
	trails := map[string]*trail{}
	for _, side := range b.sides {
		server, err := measure.StartServer(ctx, install, nil)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		topics := fmt.Sprintf("%s-%d-%t", side.name, w.due, w.singly)
		t := &trail{side: side, server: server, broker: broker, log: topics + ".log", workload: w, of: of, topics: []string{topics + ".system", topics + ".user"}, place: place{
			dir: filepath.Join(b.Dir, side.name), url: server.URL("postgres", side.name),
			settings: fmt.Sprintf("kafka: { brokers: [%q] }\ntopics: { system: %s, user: %s, log: %s, partitions: 6, replication: 1 }\n",
				broker.Addr(), topics+".system", topics+".user", topics+".log"),
		}}
		if err := t.make(ctx); err != nil {
			return nil, err
		}
		trails[side.name] = t
	}
	return b.inTurns(w, func(side side) (sample, error) { return trails[side.name].sample(ctx) })
}

// trail is a side's database, slot and topics.
type trail struct {
	side     side
	server   *measure.Server
	place    place
	broker   *kafkaserver.Server
	topics   []string // of deletes
	log      string   // its topic
	workload workload
	of       *scenario
}

// make makes the tables and installs Lapse.
func (t *trail) make(ctx context.Context) error {
	if err := measure.Execute(ctx, t.server.Admin, "create role app", "create database "+t.side.name); err != nil {
		return err
	}
	if err := t.server.Execute(ctx, t.side.name, append(t.of.setup, "vacuum analyze")...); err != nil {
		return err
	}
	return t.side.install(ctx, t.place, t.workload.batch)
}

// deleteByPolicy lets the side delete what is due. The audit is off meanwhile: the run would wait for an auditor.
func (t *trail) deleteByPolicy(ctx context.Context) error {
	const require = "update lapse.installation set audit_required = "
	if err := t.server.Execute(ctx, t.side.name, require+"false"); err != nil {
		return err
	}
	off := t.place
	off.settings = "audit: off\n"
	p, err := t.side.run(ctx, off, t.of.limit)
	if err != nil {
		return err
	}
	if p.cutOff {
		return fmt.Errorf("lapse run was cut off after %v", p.took.Round(time.Second))
	}
	return t.server.Execute(ctx, t.side.name, require+"true")
}

// userDeletes is the number of rows in one transaction of the application's, where it is not one.
const userDeletes = 100

// sample makes the workload's deletes, a third of them by policy and the rest by the application, and lets the side audit
// them. What is audited before is the inserts, which are none of the audit's work.
func (t *trail) sample(ctx context.Context) (got sample, err error) {
	byPolicy, each := t.workload.due/3, userDeletes
	if t.workload.singly {
		byPolicy, each = 0, 1
	}
	byUser := t.workload.due - byPolicy
	fill := fmt.Sprintf("insert into shop.sessions select 20000000 + g, now(), repeat('x', 100) from generate_series(1, %d) g", byUser)
	if err := t.server.Execute(ctx, t.side.name, t.of.due(byPolicy), fill, "vacuum analyze shop.sessions"); err != nil {
		return got, err
	}
	if _, err := t.side.audit(ctx, t.place); err != nil {
		return got, err
	}
	before, err := t.records(ctx)
	if err != nil {
		return got, err
	}
	users := fmt.Sprintf(`
		do $$ begin
			for low in 20000001..20000000 + %d by %d loop
				delete from shop.sessions where id >= low and id < low + %[2]d;
				commit;
			end loop;
		end $$`, byUser, each)
	if err := t.server.Execute(ctx, t.side.name, "set synchronous_commit = off", users, "checkpoint"); err != nil {
		return got, err
	}
	if err := t.deleteByPolicy(ctx); err != nil {
		return got, err
	}
	logged, err := t.broker.Bytes(t.log, 0)
	if err != nil {
		return got, err
	}
	limited, cancel := context.WithTimeout(ctx, t.of.limit)
	defer cancel()
	spent, err := t.side.audit(limited, t.place)
	if err != nil {
		return got, err
	}
	after, err := t.records(ctx)
	if err != nil {
		return got, err
	}
	// The publisher's own records, such as fences, are a few for each partition.
	if sent, few := after-before, int64(1000); sent < int64(t.workload.due) || sent > int64(t.workload.due)+few {
		return got, fmt.Errorf("it sent %d records for %d deletes", sent, t.workload.due)
	}
	end, err := t.broker.Bytes(t.log, 0)
	if err != nil {
		return got, err
	}
	return sample{
		Rows: int64(t.workload.due), Seconds: spent.Seconds, Command: spent.Seconds, CPU: spent.CPU.Seconds(), Logged: end - logged,
	}, nil
}

// records is the number of records in the topics of deletes, none while there are no topics.
func (t *trail) records(ctx context.Context) (n int64, err error) {
	client := &kafka.Client{Addr: kafka.TCP(t.broker.Addr()), Transport: &kafka.Transport{}}
	topics, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: t.topics})
	if err != nil {
		return 0, err
	}
	ends := map[string][]kafka.OffsetRequest{}
	for _, topic := range topics.Topics {
		if topic.Error != nil {
			return 0, fmt.Errorf("topic %s: %w", topic.Name, topic.Error)
		}
		for _, partition := range topic.Partitions {
			ends[topic.Name] = append(ends[topic.Name], kafka.LastOffsetOf(partition.ID))
		}
	}
	offsets, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: ends})
	if err != nil {
		return 0, err
	}
	for _, topic := range offsets.Topics {
		for _, partition := range topic {
			if partition.Error != nil {
				return 0, partition.Error
			}
			n += partition.LastOffset
		}
	}
	return n, nil
}
