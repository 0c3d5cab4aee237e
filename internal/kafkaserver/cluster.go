package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"

	"lapse/internal/child"
)

// Cluster is some brokers that replicate to one another, each a controller too. Its methods are for one goroutine at a
// time, but for Addrs, Leader, MoveLeader and Addr of its brokers.
//
// Three brokers take 540 MB together when they have started (-Xmx256m each).
type Cluster struct {
	brokers []*Server // by node id, from 1
}

// member is what a broker of a cluster knows of the others.
type member struct {
	node    int
	cluster uuid.UUID
	all     []ports
}

func (m *member) ports() ports { return m.all[m.node-1] }

// settings are over those of a single broker. A record that is acknowledged is on two brokers of three.
func (m *member) settings() map[string]string {
	var voters []string
	for i, p := range m.all {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, p.controller))
	}
	replicas, insync := strconv.Itoa(min(len(m.all), 3)), strconv.Itoa(min(len(m.all), 2))
	return map[string]string{
		"node.id":                                  strconv.Itoa(m.node),
		"controller.quorum.voters":                 strings.Join(voters, ","),
		"default.replication.factor":               replicas,
		"min.insync.replicas":                      insync,
		"offsets.topic.replication.factor":         replicas,
		"transaction.state.log.replication.factor": replicas,
		"transaction.state.log.min.isr":            insync,
		// A frozen follower holds up acknowledgements until it is out of the in-sync set: 30 s by default.
		"replica.lag.time.max.ms": "5000",
	}
}

// StartCluster makes n brokers and starts them together, with three copies of each topic: two must have a record before it is
// acknowledged. Dir, Port and Login of the options have no effect. It returns when every broker knows all others.
func StartCluster(ctx context.Context, n int, options Options) (*Cluster, error) {
	install, err := Find()
	if err != nil {
		return nil, err
	}
	options.Dir, options.Port, options.Login = "", 0, false
	options.Java = append([]string{"-Xmx256m"}, options.Java...)
	for try := 1; ; try++ {
		c, err := startCluster(ctx, install, n, options)
		if err == nil || ctx.Err() != nil || try == 3 || !errors.Is(err, errPortTaken) {
			return c, err
		}
	}
}

var errPortTaken = errors.New("somebody else has taken a port")

func startCluster(ctx context.Context, install Install, n int, options Options) (*Cluster, error) {
	id, all := uuid.New(), make([]ports, n)
	taken := map[int]bool{}
	for i := range all {
		for all[i].broker == 0 || taken[all[i].broker] || taken[all[i].controller] {
			var err error
			if all[i], err = choosePorts(0); err != nil {
				return nil, err
			}
		}
		taken[all[i].broker], taken[all[i].controller] = true, true
	}
	c, errs := &Cluster{}, make([]error, n)
	var starting sync.WaitGroup
	for i := range n {
		s := &Server{install: install, options: options, member: &member{node: i + 1, cluster: id, all: all}}
		c.brokers = append(c.brokers, s)
		starting.Go(func() { errs[i] = s.startMember(ctx) })
	}
	starting.Wait()
	err := errors.Join(errs...)
	if err == nil {
		err = c.waitComplete(ctx)
	}
	if err == nil {
		return c, nil
	}
	err = errors.Join(err, c.Close())
	for _, p := range all {
		if !child.PortIsFree(p.broker) || !child.PortIsFree(p.controller) {
			return nil, errors.Join(errPortTaken, err)
		}
	}
	return nil, err
}

func (s *Server) startMember(ctx context.Context) (err error) {
	if s.folder, err = child.NewFolder("kafka"); err != nil {
		return err
	}
	s.dir = s.folder.Path
	if _, err := s.prepare(ctx); err != nil {
		return fmt.Errorf("prepare Kafka: %w", err)
	}
	return s.Start(ctx)
}

// waitComplete waits until every broker lists all of them: a topic that is made earlier may have too few to lie on.
func (c *Cluster) waitComplete(ctx context.Context) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for _, s := range c.brokers {
		for {
			client, done := s.client()
			answer, err := client.Metadata(ctx, &kafka.MetadataRequest{})
			done()
			if err == nil && len(answer.Brokers) == len(c.brokers) {
				break
			}
			select {
			case <-poll.C:
			case <-ctx.Done():
				return fmt.Errorf("start a cluster of Kafka: %w", context.Cause(ctx))
			}
		}
	}
	return nil
}

// Brokers are the brokers, in the order of Addrs. Each may be killed, started, frozen and thawed; the cluster goes on without it
// as long as most of them are there. Start waits until the broker is one of the cluster again, which needs most of them.
func (c *Cluster) Brokers() []*Server { return c.brokers }

// Addrs are the addresses of all brokers, for clients.
func (c *Cluster) Addrs() (addrs []string) {
	for _, s := range c.brokers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// CreateTopic is Server.CreateTopic, with three replicas.
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions int, settings map[string]string) error {
	return c.brokers[0].CreateTopic(ctx, name, partitions, settings)
}

// Leader is the broker that leads a partition now, by the word of the first broker that answers. While a leader is down,
// or being replaced, there may be none: then it is asked again, until the context ends.
func (c *Cluster) Leader(ctx context.Context, topic string, partition int) (*Server, error) {
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		for _, s := range c.brokers {
			if !s.Running() || s.Frozen() {
				continue
			}
			if leader := c.leader(ctx, s, topic, partition); leader != nil {
				return leader, nil
			}
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("ask who leads %s/%d: %w", topic, partition, context.Cause(ctx))
		}
	}
}

// leader asks one broker over a connection of its own: a kafka.Client answers from what it has seen within the last
// seconds.
func (c *Cluster) leader(ctx context.Context, asked *Server, topic string, partition int) *Server {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, done := asked.client()
	defer done()
	answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil || len(answer.Topics) != 1 {
		return nil
	}
	for _, p := range answer.Topics[0].Partitions {
		if p.ID != partition || p.Error != nil {
			continue
		}
		for _, s := range c.brokers {
			if s.Addr() == net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Leader.Port)) {
				return s
			}
		}
	}
	return nil
}

// MoveLeader has another broker lead a partition, while all go on, as an operator does who takes a broker out of use. It
// asks until the broker that is next to the present leader leads it, or the context ends: a broker that came back a moment
// ago is not in sync, and cannot lead.
func (c *Cluster) MoveLeader(ctx context.Context, topic string, partition int) error {
	former, err := c.Leader(ctx, topic, partition)
	if err != nil {
		return err
	}
	at := slices.Index(c.brokers, former)
	var order []int // of node ids, the next leader first
	for i := range c.brokers {
		order = append(order, (at+1+i)%len(c.brokers)+1)
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		refused := former.prefer(ctx, topic, partition, order)
		if leader := c.leader(ctx, former, topic, partition); leader != nil && leader != former {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("move the leader of %s/%d: %w", topic, partition, context.Cause(ctx)), refused)
		}
	}
}

// prefer makes an order of replicas the preferred one, and has the first of them elected.
func (s *Server) prefer(ctx context.Context, topic string, partition int, order []int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client, done := s.client()
	defer done()
	moved, err := client.AlterPartitionReassignments(ctx, &kafka.AlterPartitionReassignmentsRequest{
		Topic: topic, Timeout: 5 * time.Second,
		Assignments: []kafka.AlterPartitionReassignmentsRequestAssignment{{PartitionID: partition, BrokerIDs: order}},
	})
	if err != nil {
		return err
	}
	errs := []error{moved.Error}
	for _, p := range moved.PartitionResults {
		errs = append(errs, p.Error)
	}
	elected, err := client.ElectLeaders(ctx, &kafka.ElectLeadersRequest{
		Topic: topic, Partitions: []int{partition}, Timeout: 5 * time.Second,
	})
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	errs = append(errs, elected.Error)
	for _, p := range elected.PartitionResults {
		errs = append(errs, p.Error)
	}
	return errors.Join(errs...)
}

// Close kills all brokers and removes their folders.
func (c *Cluster) Close() error {
	var errs []error
	for _, s := range c.brokers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
