package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// watch checks the topics while the publisher runs, since others may change them. It ends the publisher if published
// records are gone, or will be:
//
//	each minute    the ends: an acknowledged record at or above the end is gone, and so is the beginning of a topic that is
//	               kept forever if it begins later than it did. If the record at the fence's offset is not
//	               this publisher's, everything is gone, and so it is if a topic is missing twice in a row
//	               (ErrTopicReplaced)
//	each hour      the settings: compaction, and finite retention of a topic that is kept forever (RetentionError)
func (p *Publisher) watch(ctx context.Context) {
	ends, settings := time.NewTicker(p.timing.endsEvery), time.NewTicker(p.timing.settingsEvery)
	defer ends.Stop()
	defer settings.Stop()
	missing := map[string]bool{}
	for {
		var err error
		select {
		case <-ends.C:
			err = p.checkEnds(ctx, missing)
		case <-settings.C:
			err = p.checkSettings(ctx)
		case <-ctx.Done():
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.fail(err)
			return
		}
	}
}

// checkEnds compares the acknowledged offsets with the ends of the partitions. It finds a replaced topic into which nothing
// is published at present. missing are the topics that were not there the time before.
func (p *Publisher) checkEnds(ctx context.Context, missing map[string]bool) error {
	for i := range p.cfg.Topics {
		topic := p.cfg.Topics[i].Name
		err := p.checkEndsOf(ctx, &p.cfg.Topics[i], p.byTopic[topic])
		var gone *MissingTopicError
		switch {
		case errors.As(err, &gone) && missing[topic]:
			return fmt.Errorf("check topic %q: %w: %w: somebody has deleted it, or this login may not see it any more; start again, "+
				"and what was lost is found out", topic, ErrTopicReplaced, err)
		case errors.As(err, &gone):
			missing[topic] = true
			p.log.Warn("the topic is missing", "topic", topic)
		case err != nil:
			return err
		default:
			delete(missing, topic)
		}
	}
	return nil
}

func (p *Publisher) checkEndsOf(ctx context.Context, t *Topic, senders []*sender) error {
	n, err := p.client.partitions(ctx, t.Name, len(senders), p.timing.missing)
	if err != nil {
		return err
	}
	if n < len(senders) {
		return topicReplaced(t.Name, int32(n), "the topic had %d partitions and has %d", len(senders), n)
	}
	for _, s := range senders {
		acked := s.acked.Load() // read before the end: both only grow
		bounds, err := p.client.offsets(ctx, s.topic, s.partition)
		if err != nil {
			return err
		}
		if bounds.End <= acked {
			return topicReplaced(s.topic, s.partition, "offset %d was acknowledged, and the end is %d", acked, bounds.End)
		}
		if t.Forever && bounds.First > s.first {
			return fmt.Errorf("check %s/%d: it must keep its records forever, and those below offset %d were deleted: %w", s.topic, s.partition,
				bounds.First, ErrTopicReplaced)
		}
		if err := s.checkRecord(ctx, s.fence, s.fenceProducer); err != nil {
			return err
		}
	}
	return nil
}

// checkSettings repeats the check of Open.
func (p *Publisher) checkSettings(ctx context.Context) error {
	for i := range p.cfg.Topics {
		t := &p.cfg.Topics[i]
		seen, err := p.client.inspect(ctx, t)
		var missing *MissingTopicError
		switch {
		case errors.As(err, &missing): // checkEnds decides
		case err != nil:
			return err
		default:
			p.warn(t, seen)
		}
	}
	return nil
}

// notes are the problems of each topic at the last check, in sentences: fewer replicas than configured, a smaller min.insync.replicas,
// added partitions, settings that may not be read.
type notes struct {
	mu      sync.Mutex
	byTopic map[string][]string
}

// replace sets the notes on a topic and returns the former ones.
func (n *notes) replace(topic string, found []string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byTopic == nil {
		n.byTopic = make(map[string][]string)
	}
	before := n.byTopic[topic]
	n.byTopic[topic] = found
	return before
}

// warn logs the problems of a topic, and notes them. Problems that endanger records are logged each time, the others once.
func (p *Publisher) warn(t *Topic, seen topicState) {
	var lasting []string
	if t.Partitions != 0 && seen.partitions > t.Partitions {
		lasting = append(lasting, fmt.Sprintf("topic %q has %d partitions and the configuration says %d: the others are left "+
			"alone, and events go where they have always gone, until topics.partitions says more",
			t.Name, seen.partitions, t.Partitions))
	}
	if seen.refused != nil && t.Forever {
		lasting = append(lasting, fmt.Sprintf("the settings of topic %q cannot be read, so nobody has checked that it keeps its "+
			"records forever: grant this login DESCRIBE_CONFIGS on it", t.Name))
	}
	if stamp := seen.settings[settingStamp]; stamp == "LogAppendTime" {
		lasting = append(lasting, fmt.Sprintf("topic %q has %s=%s: to ask for the events of a time, as lapse events --since does, returns those that "+
			"were published then, not those that were committed: run %s", t.Name, settingStamp, stamp,
			alter(p.client.kafka.Addr.String(), t.Name, settingStamp+"=CreateTime")))
	}
	if small := p.client.sizeWarning(t, seen.settings); small != "" {
		lasting = append(lasting, small)
	}
	unsafe := p.client.safetyWarnings(t, seen.layout, seen.settings)
	before := p.notes.replace(t.Name, slices.Concat(lasting, unsafe))
	lasting = slices.DeleteFunc(lasting, func(s string) bool { return slices.Contains(before, s) })
	for _, s := range slices.Concat(lasting, unsafe) {
		p.log.Warn("the topic is not as it should be", "topic", t.Name, "detail", s)
	}
	if seen.refused != nil && !t.Forever {
		p.log.Info("the topic's settings cannot be read", "topic", t.Name, "error", seen.refused)
	}
}
