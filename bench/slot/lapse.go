package main

import (
	"context"
	"fmt"
)

// setUp makes Lapse in the database.
func (p *place) setUp(ctx context.Context) error {
	if err := p.lapse.Install(ctx, p.audit(), p.of.Identity.policyFile()); err != nil {
		return err
	}
	if p.of.Identity == full { // apply refuses it
		if err := p.execute(ctx, "alter table shop.sessions replica identity full"); err != nil {
			return err
		}
	}
	_, err := p.lapse.Run(ctx, p.audit(), "audit", "--once")
	return err
}

// deleteDue deletes what is due. The audit is off meanwhile: the run would wait for an auditor.
func (p *place) deleteDue(ctx context.Context) error {
	const require = "update lapse.installation set audit_required = "
	if err := p.execute(ctx, require+"false"); err != nil {
		return err
	}
	if _, err := p.lapse.Run(ctx, p.database()+"audit: off\n", "run", "--now", "bench", "--json"); err != nil {
		return err
	}
	return p.execute(ctx, require+"true")
}

// audit are the settings of lapse.yaml with the audit.
func (p *place) audit() string {
	return p.database() + fmt.Sprintf("kafka: { brokers: [%q] }\ntopics: { system: %s, user: %s, log: %s, partitions: %d, replication: 1 }\n",
		p.broker.Addr(), systemTopic, userTopic, logTopic, partitions)
}

func (p *place) database() string { return "database: " + p.url() + "\n" }

// The topics, and how many partitions they have.
const (
	partitions  = 6
	systemTopic = "bench.system"
	userTopic   = "bench.user"
	logTopic    = "bench.log"
)
