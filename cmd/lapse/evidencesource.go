package main

import (
	"context"
	"errors"

	"lapse/audit/export"
	"lapse/audit/store"
	"lapse/schemas"
)

// evidenceSource is the place to read evidence from: topics, or an export of them.
type evidenceSource interface {
	// each passes every record of a topic, one partition after the other. A missing topic has no records.
	each(ctx context.Context, topic string, take func(rec *schemas.Record) error) error
	// topics are the names.
	topicNames() export.Topics
	// cut reports whether a topic has lost its beginning.
	cut(ctx context.Context, topic string) (bool, error)
}

// topicSource reads from Kafka.
type topicSource struct{ *consumer }

func (s topicSource) partitions(ctx context.Context, topic string) ([]*partitionReader, error) {
	readers, err := s.partitionsOf(ctx, topic)
	var missing *store.MissingError
	if errors.As(err, &missing) && topic == s.settings.Topics.Proofs {
		return nil, nil
	}
	return readers, err
}

func (s topicSource) cut(ctx context.Context, topic string) (bool, error) {
	readers, err := s.partitions(ctx, topic)
	for _, l := range readers {
		if l.first > 0 {
			return true, err
		}
	}
	return false, err
}

func (s topicSource) each(ctx context.Context, topic string, take func(rec *schemas.Record) error) error {
	readers, err := s.partitions(ctx, topic)
	if err != nil {
		return err
	}
	for _, l := range readers {
		err := s.consumer.each(ctx, l, func(record *schemas.Record, _ int64) error {
			record.Topic, record.Partition = l.topic, l.partition
			return take(record)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// folderSource reads an export.
type folderSource struct{ files *export.Reader }

func (s *folderSource) topicNames() export.Topics { return s.files.Manifest.Topics }

func (s *folderSource) cut(_ context.Context, topic string) (bool, error) {
	for _, f := range s.files.Manifest.Files {
		if f.Topic == topic && f.First > 0 {
			return true, nil
		}
	}
	return false, nil
}

func (s *folderSource) each(ctx context.Context, topic string, take func(rec *schemas.Record) error) error {
	for i := range s.files.Manifest.Files {
		if f := &s.files.Manifest.Files[i]; f.Topic == topic {
			if _, err := s.files.Each(ctx, f, func(rec *schemas.Record, _ int64) error { return take(rec) }); err != nil {
				return err
			}
		}
	}
	return nil
}
