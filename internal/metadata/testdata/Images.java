import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.image.*;
import org.apache.kafka.image.writer.*;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.*;

/**
 * Replays the histories on standard input and adds to each what Kafka's image writes: see kafka_test.go. Each record has a delta of its own:
 * in one delta, Kafka's image keeps the configs of a topic that is created and deleted.
 */
public class Images {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode history = (ObjectNode) json.readTree(line);
            MetadataImage image = MetadataImage.EMPTY;
            for (JsonNode record : history.get("records")) {
                ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(record.asText()));
                MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
                delta.replay(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(bytes), bytes.remaining()).message());
                image = delta.apply(MetadataProvenance.EMPTY);
            }
            ArrayNode images = history.putArray("images");
            for (JsonNode level : history.get("levels")) {
                MetadataVersion version = MetadataVersion.fromFeatureLevel((short) level.asInt());
                Set<String> lost = new TreeSet<>();
                ImageWriterOptions.Builder builder = new ImageWriterOptions.Builder(image).setMetadataVersion(version)
                    .setLossHandler(e -> lost.add(e.loss()));
                if (version.partitionRecordVersion() < 2) // else Kafka's own encoder refuses what its image gives it
                    builder.setEligibleLeaderReplicasEnabled(false);
                ImageWriterOptions options = builder.build();
                ObjectNode out = images.addObject().put("level", level.asInt());
                ArrayNode records = out.putArray("records");
                image.write(new ImageWriter() {
                    public void write(ApiMessageAndVersion r) {
                        ObjectSerializationCache cache = new ObjectSerializationCache();
                        ByteBuffer b = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(r, cache));
                        MetadataRecordSerde.INSTANCE.write(r, cache, new ByteBufferAccessor(b));
                        records.add(HexFormat.of().formatHex(b.array()));
                    }
                    public void close(boolean complete) { }
                }, options);
                ArrayNode losses = out.putArray("lost");
                lost.forEach(losses::add);
            }
            System.out.println(history);
        }
    }
}
