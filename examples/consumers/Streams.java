// Prints what users deleted, and not what retention did: Kafka Streams.
//
//   mvn dependency:copy-dependencies -DoutputDirectory=libs    # of a pom.xml with org.apache.kafka:kafka-streams
//   java -cp 'libs/*' Streams.java kafka:9092 lapse.deletes.user

import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;

class Streams {
    public static void main(String[] args) {
        var config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1] + "-streams");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        config.put("auto.offset.reset", "earliest");
        var builder = new StreamsBuilder();
        // A fence marks a place in the topic and is no event. It has no value: drop it before toTable, which would take it for a deletion.
        builder.stream(args[1], Consumed.with(Serdes.String(), Serdes.String()))
            .filter((key, value) -> value != null)
            .process(Printer::new);
        var streams = new KafkaStreams(builder.build(), config);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    // Headers say what an event is; its value need not be parsed. After a crash events come again, with the same event_id.
    static class Printer extends ContextualProcessor<String, String, Void, Void> {
        public void process(Record<String, String> event) {
            System.out.println(String.join("\t", header(event, "lapse-cause"), header(event, "lapse-op"), header(event, "lapse-table"), event.key()));
        }

        String header(Record<String, String> event, String name) {
            Header header = event.headers().lastHeader(name);
            return header == null ? "" : new String(header.value(), StandardCharsets.UTF_8);
        }
    }
}
