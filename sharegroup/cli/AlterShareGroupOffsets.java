import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterShareGroupOffsetsResult;
import org.apache.kafka.common.TopicPartition;

/**
 * Sets the start offsets of a share group without members: Kafka's own tool has no option for an offset.
 *
 * Arguments: bootstrap servers, group, a file with lines of topic,partition,offset, and perhaps a properties file of
 * the client. It needs a JDK, 17 or later, and the libraries of Kafka 4.1 or later:
 *
 *     java -cp "$KAFKA_HOME/libs/*" AlterShareGroupOffsets.java localhost:9092 orders offsets.csv
 */
public final class AlterShareGroupOffsets {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        if (arguments.length > 3) {
            try (Reader reader = Files.newBufferedReader(Path.of(arguments[3]))) {
                properties.load(reader);
            }
        }
        properties.put("bootstrap.servers", arguments[0]);
        Map<TopicPartition, Long> offsets = new LinkedHashMap<>();
        for (String line : Files.readAllLines(Path.of(arguments[2]))) {
            String[] fields = line.split(",");
            offsets.put(new TopicPartition(fields[0], Integer.parseInt(fields[1])), Long.parseLong(fields[2]));
        }
        try (Admin admin = Admin.create(properties)) {
            AlterShareGroupOffsetsResult result = admin.alterShareGroupOffsets(arguments[1], offsets);
            for (Map.Entry<TopicPartition, Long> offset : offsets.entrySet()) {
                result.partitionResult(offset.getKey()).get();
                System.out.println(offset.getKey() + " starts at " + offset.getValue());
            }
        }
    }
}
