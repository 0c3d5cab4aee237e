package audit

import (
	"lapse/audit/evidence"
	"lapse/audit/kafka"
)

// EvidenceRecord is a record that was read from Kafka, as package evidence knows it. Both have their bytes in common.
func EvidenceRecord(rec *kafka.Record) evidence.Record {
	headers := make([]evidence.Header, len(rec.Headers))
	for i, h := range rec.Headers {
		headers[i] = evidence.Header{Key: h.Key, Value: h.Value}
	}
	return evidence.Record{
		Topic: rec.Topic, Partition: rec.Partition, Key: rec.Key, Value: rec.Value, Headers: headers, Time: rec.Time,
	}
}

// kafkaRecord is a record as Kafka gets it, with headers that kafkaHeaders made.
func kafkaRecord(rec *evidence.Record, headers []kafka.Header) kafka.Record {
	return kafka.Record{
		Topic: rec.Topic, Partition: rec.Partition, Key: rec.Key, Value: rec.Value, Headers: headers, Time: rec.Time,
	}
}

func kafkaHeaders(dst []kafka.Header, headers []evidence.Header) []kafka.Header {
	for _, h := range headers {
		dst = append(dst, kafka.Header{Key: h.Key, Value: h.Value})
	}
	return dst
}

// headerOf is the value of a header; empty if the record does not have it.
func headerOf(rec *kafka.Record, name string) string {
	for i := range rec.Headers {
		if rec.Headers[i].Key == name {
			return string(rec.Headers[i].Value)
		}
	}
	return ""
}
