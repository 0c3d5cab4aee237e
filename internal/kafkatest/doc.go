// Package kafkatest gives tests a real Kafka broker and topics of their own.
//
// A test binary that uses it says so once, together with pgtest if it needs both:
//
//	func TestMain(m *testing.M) { pgtest.Main(kafkatest.Wrap(m)) }
//
// and a test takes a topic:
//
//	topic := kafkatest.Topic(t, 6)
//	publish(t, kafkatest.Broker(t).Addr(), topic)
//	for _, record := range kafkatest.ReadAll(t, topic) { … }
//
// It promises one broker per test binary, started when the first test asks for it and gone when the binary ends; topics
// whose names no other test has; and a reader that returns every record up to the end that the partitions had when it was
// called, so that a test needs no sleep to say "nothing more".
//
// A test that stops, kills or configures its broker uses Solo; one in which another broker takes over uses Cluster. Faults
// on the way are Network's, and Fake has those that a real broker cannot be told to make. Where Kafka is missing the test is skipped with the reason, and with CI=true it fails.
package kafkatest
