package folder

import (
	"context"
	"os"
	"time"
)

// sweep deletes records whose retention has ended.
func (p *Publisher) sweep(ctx context.Context) {
	tick := time.NewTicker(p.disk.sweep)
	defer tick.Stop()
	for {
		for _, t := range p.all {
			if t.topic.Retention <= 0 {
				continue
			}
			if err := t.expire(time.Now().Add(-t.topic.Retention)); err != nil {
				p.log.Warn("records that need not be kept any more could not be deleted; trying again", "topic", t.topic.Name, "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// isOld reports whether to begin another segment early, so that this one can be deleted in time.
func (t *partition) isOld() bool {
	keep := t.topic.Retention
	return keep > 0 && t.synced > t.base && time.Since(t.made) > keep/10
}

// expire deletes segments that were finished longer ago than the retention. The last one stays, because it has the partition's tail.
func (t *partition) expire(before time.Time) error {
	all, err := listSegments(t.dir)
	if err != nil {
		return err
	}
	deleted := 0
	for _, s := range all[:max(len(all)-1, 0)] {
		info, err := os.Lstat(s.path)
		if err != nil {
			return err
		}
		if !info.ModTime().Before(before) {
			break
		}
		if err := os.Remove(s.path); err != nil {
			return err
		}
		deleted++
	}
	if deleted == 0 {
		return nil
	}
	t.p.cfg.Logger.Info("records that need not be kept any more are deleted", "topic", t.topic.Name, "partition", t.number, "files", deleted)
	return t.p.disk.syncDir(t.dir)
}
