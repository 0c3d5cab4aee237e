package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// watch looks at the topics while the publisher runs, since others may change them. It ends the publisher where what was
// published is gone, or will be:
//
//	each minute    the ends: an acknowledged record that lies at or above the end is gone, and so is everything where this
//	               publisher's fence is not in its place; and a topic that is missing twice in a row (ErrTopicReplaced)
//	each hour      the settings: compaction, and finite retention of a topic that is kept for ever (RetentionError)
func (p *Publisher) watch(ctx context.Context) {
	ends, looks := time.NewTicker(p.timing.ends), time.NewTicker(p.timing.look)
	defer ends.Stop()
	defer looks.Stop()
	missing := map[string]bool{}
	for {
		var err error
		select {
		case <-ends.C:
			err = p.checkEnds(ctx, missing)
		case <-looks.C:
			err = p.lookAgain(ctx)
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

// checkEnds compares what was acknowledged with what is there: a partition into which nothing is published at present
// tells by nothing else that it is another one. missing are the topics that were not there the time before.
func (p *Publisher) checkEnds(ctx context.Context, missing map[string]bool) error {
	for i := range p.cfg.Topics {
		topic := p.cfg.Topics[i].Name
		err := p.checkEndsOf(ctx, topic, p.lanes[topic])
		var gone *MissingTopicError
		switch {
		case errors.As(err, &gone) && missing[topic]:
			return fmt.Errorf("kafka: %w: %w: somebody has deleted it, or this login may not see it any more; start again, "+
				"and what was lost is found out", ErrTopicReplaced, err)
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

func (p *Publisher) checkEndsOf(ctx context.Context, topic string, lanes []*lane) error {
	n, err := p.client.partitions(ctx, topic, len(lanes), p.timing.missing)
	if err != nil {
		return err
	}
	if n < len(lanes) {
		return replaced(topic, int32(n), "the topic had %d partitions and has %d", len(lanes), n)
	}
	for _, l := range lanes {
		acked := l.acked.Load() // before the end is asked for: both only grow
		bounds, err := p.client.offsets(ctx, l.topic, l.partition)
		if err != nil {
			return err
		}
		if bounds.End <= acked {
			return replaced(l.topic, l.partition, "offset %d was acknowledged, and the end is %d", acked, bounds.End)
		}
		if err := l.stillThere(ctx, l.fence, l.fenceBy); err != nil {
			return err
		}
	}
	return nil
}

// lookAgain does what Open has done.
func (p *Publisher) lookAgain(ctx context.Context) error {
	for i := range p.cfg.Topics {
		t := &p.cfg.Topics[i]
		seen, err := p.client.look(ctx, t)
		var missing *MissingTopicError
		switch {
		case errors.As(err, &missing): // checkEnds has the say
		case err != nil:
			return err
		default:
			p.note(t, seen)
		}
	}
	return nil
}

// notes are what was last found about each topic that a person should know, in sentences.
type notes struct {
	mu      sync.Mutex
	byTopic map[string][]string
}

// replace forgets what was found about a topic before, and returns it.
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

// Warnings are sentences about topics that are used although they are not as configured: fewer replicas, a smaller
// min.insync.replicas, partitions that somebody has added, settings that may not be read. They are as of the last look,
// by Open or within the hour. Empty if all is as it should be.
func (p *Publisher) Warnings() []string {
	p.notes.mu.Lock()
	defer p.notes.mu.Unlock()
	var all []string
	for i := range p.cfg.Topics {
		all = append(all, p.notes.byTopic[p.cfg.Topics[i].Name]...)
	}
	return all
}

// note keeps and logs what a look has found: what endangers records each time, the rest once.
func (p *Publisher) note(t *Topic, seen found) {
	var lasting []string
	if t.Partitions != 0 && seen.partitions > t.Partitions {
		lasting = append(lasting, fmt.Sprintf("topic %q has %d partitions and the configuration says %d: the others are left "+
			"alone, events go where they have always gone; leave topics.partitions as it is",
			t.Name, seen.partitions, t.Partitions))
	}
	if seen.refused != nil && t.Forever {
		lasting = append(lasting, fmt.Sprintf("the settings of topic %q cannot be read, so nobody has checked that it keeps its "+
			"records for ever: grant this login DESCRIBE_CONFIGS on it", t.Name))
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
