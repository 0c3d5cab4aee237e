package main

import (
	"strings"
	"testing"

	"lapse/internal/config"
	"lapse/internal/kafkatest"
	"lapse/internal/setup/doctor"
)

// Events go by a setting of Kafka's that nobody of Lapse's users made.
func TestTheDoctorSaysHowLongEventsAreKept(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	s := &config.Settings{}
	s.Kafka.Brokers = []string{broker.Addr()}
	s.Topics.System, s.Topics.User = kafkatest.Name()+".system", kafkatest.Name()+".user"
	for topic, settings := range map[string]map[string]string{s.Topics.System: nil, s.Topics.User: {"retention.ms": "-1"}} {
		if err := broker.CreateTopic(t.Context(), topic, 1, settings); err != nil {
			t.Fatal(err)
		}
	}
	var said []string
	for _, f := range (&app{}).examineKafka(t.Context(), s) {
		said = append(said, f.Text)
	}
	want := "1 brokers answer\n" + s.Topics.System + " keeps events for 168 hours (retention.ms=604800000); the log stays\n" +
		s.Topics.User + " keeps events forever; the log stays"
	if got := strings.Join(said, "\n"); got != want {
		t.Errorf("the doctor says\n%s\nwant\n%s", got, want)
	}
}

// A log that deletes and events that are compacted are refused by an auditor, which looks once an hour.
func TestTheDoctorFailsForATopicThatLosesRecords(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	s := &config.Settings{}
	s.Kafka.Brokers = []string{broker.Addr()}
	s.Topics.System, s.Topics.User, s.Topics.Log = kafkatest.Name()+".system", kafkatest.Name()+".user", kafkatest.Name()+".log"
	for topic, settings := range map[string]map[string]string{
		s.Topics.System: nil, s.Topics.User: {"cleanup.policy": "compact"}, s.Topics.Log: {"retention.ms": "1000"},
	} {
		if err := broker.CreateTopic(t.Context(), topic, 1, settings); err != nil {
			t.Fatal(err)
		}
	}
	var failed []string
	for _, f := range (&app{}).examineKafka(t.Context(), s) {
		if f.Grade == doctor.Fail {
			failed = append(failed, f.Text)
		}
	}
	want := s.Topics.User + " loses records: cleanup.policy=compact\n" + s.Topics.Log + " loses records: retention.ms=1000"
	if got := strings.Join(failed, "\n"); got != want {
		t.Errorf("the doctor fails for\n%s\nwant\n%s", got, want)
	}
}
