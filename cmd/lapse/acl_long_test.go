//go:build long

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// An auditor that logs in as somebody who may do what docs/security.md lists, and nothing else, publishes; a consumer reads, and writes nothing.
func TestTheDocumentedRightsAreEnoughForKafka(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Solo(t, kafkaserver.Options{Login: true, Settings: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
	}})
	ctx, cancel := patience(t)
	defer cancel()
	for _, user := range []string{"auditor", "consumer"} {
		if err := broker.AddUser(ctx, user, "of "+user); err != nil {
			t.Fatal(err)
		}
	}
	allow(t, broker)
	db := pgtest.New(t, pgtest.Newest(t))
	s := newShop(t, db, broker, 300, 0, 100)
	login := func(m machine, user string) *machine {
		password := filepath.Join(m.dir, user+".password")
		if err := os.WriteFile(password, []byte("of "+user), 0o600); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(m.dir, "lapse.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		m.env = append([]string{"LAPSE_CONFIG=" + m.write(user+".yaml", strings.Replace(string(text), fmt.Sprintf("kafka: { brokers: %q }", broker.Addr()),
			fmt.Sprintf("kafka: { brokers: %q, sasl: { mechanism: scram-sha-256, username: %s, password_file: %q } }", broker.LoginAddr(), user, password), 1))}, m.env[1:]...)
		return &m
	}
	s.m = login(*s.m, "auditor")
	served := s.serves(ctx)
	served.ready(http.StatusOK)
	served.stop()
	consumer := login(*s.m, "consumer")
	if events := consumer.lapse("events"); strings.Count(events, "\n") < 300 {
		t.Errorf("the consumer reads %d lines", strings.Count(events, "\n"))
	}
	if code, out := consumer.answers("audit", "--once"); code == exitDone {
		t.Errorf("the consumer may publish:\n%s", out)
	}
}

// allow gives the rights of docs/security.md.
func allow(t *testing.T, broker *kafkaserver.Server) {
	t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(broker.Addr())}
	rights := []struct {
		user string
		on   kafka.ResourceType
		may  []kafka.ACLOperationType
	}{
		{"auditor", kafka.ResourceTypeTopic, []kafka.ACLOperationType{
			kafka.ACLOperationTypeRead, kafka.ACLOperationTypeWrite, kafka.ACLOperationTypeDescribe, kafka.ACLOperationTypeDescribeConfigs, kafka.ACLOperationTypeCreate,
		}},
		{"auditor", kafka.ResourceTypeTransactionalID, []kafka.ACLOperationType{kafka.ACLOperationTypeWrite, kafka.ACLOperationTypeDescribe}},
		{"consumer", kafka.ResourceTypeTopic, []kafka.ACLOperationType{kafka.ACLOperationTypeRead, kafka.ACLOperationTypeDescribe}},
	}
	var request kafka.CreateACLsRequest
	for _, r := range rights {
		name := "test-"
		if r.on == kafka.ResourceTypeTransactionalID {
			name = "lapse-"
		}
		for _, operation := range r.may {
			request.ACLs = append(request.ACLs, kafka.ACLEntry{
				ResourceType: r.on, ResourceName: name, ResourcePatternType: kafka.PatternTypePrefixed, Principal: "User:" + r.user, Host: "*",
				Operation: operation, PermissionType: kafka.ACLPermissionTypeAllow,
			})
		}
	}
	answer, err := client.CreateACLs(t.Context(), &request)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range answer.Errors {
		if err != nil {
			t.Fatal(err)
		}
	}
}
