package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// admin does to topics what somebody else does with Kafka's own tools.
func admin(t *testing.T, addr string) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// alter changes a setting of a topic.
func alter(t *testing.T, addr, topic, name, value string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = name, &value
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(t.Context(), admin(t, addr))
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// addPartitions makes them n.
func addPartitions(t *testing.T, addr, topic string, n int32) {
	t.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	more := kmsg.NewCreatePartitionsRequestTopic()
	more.Topic, more.Count = topic, n
	req.Topics = append(req.Topics, more)
	resp, err := req.RequestWith(t.Context(), admin(t, addr))
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// deleteTopic returns when the broker has said that it is gone, from its metadata too.
func deleteTopic(t *testing.T, addr, topic string) {
	t.Helper()
	client := admin(t, addr)
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames = []string{topic}
	doomed := kmsg.NewDeleteTopicsRequestTopic()
	doomed.Topic = &topic
	req.Topics = append(req.Topics, doomed)
	resp, err := req.RequestWith(t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// topicID asks a broker for the id of a topic; zero where it knows none.
func topicID(t *testing.T, addr, topic string) [16]byte {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = &topic
	req.Topics = append(req.Topics, wanted)
	resp, err := req.RequestWith(t.Context(), admin(t, addr))
	if err != nil {
		t.Fatal(err)
	}
	if kerr.ErrorForCode(resp.Topics[0].ErrorCode) != nil {
		return [16]byte{}
	}
	return resp.Topics[0].TopicID
}
