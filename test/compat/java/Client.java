// Client runs one request of the tests with the Java client: a JSON object on standard input, the answer on standard output
// (driver_test.go says which). It runs inside ToolHost, which keeps the JVM warm.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.*;

public class Client {
    static final ObjectMapper json = new ObjectMapper();

    static byte[] unpack(JsonNode n) {
        return n == null || n.isNull() ? null : Base64.getDecoder().decode(n.asText());
    }

    static String pack(byte[] b) {
        return b == null ? null : Base64.getEncoder().encodeToString(b);
    }

    static Object produce(JsonNode q) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", q.get("addr").asText());
        p.put("compression.type", q.get("codec").asText());
        p.put("enable.idempotence", q.get("idempotent").asText());
        p.put("max.request.size", q.get("max").asText());
        p.put("linger.ms", "5");
        p.put("max.block.ms", "2500");
        p.put("delivery.timeout.ms", "20000");
        p.put("request.timeout.ms", "10000");
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode r : q.get("records")) {
                Long t = r.hasNonNull("t") && r.get("t").asLong() != 0 ? r.get("t").asLong() : null;
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(q.get("topic").asText(), q.get("partition").asInt(), t, unpack(r.get("k")), unpack(r.get("v")));
                if (r.hasNonNull("h")) for (JsonNode h : r.get("h")) record.headers().add(h.get(0).asText(), unpack(h.get(1)));
                sent.add(producer.send(record));
            }
            producer.flush();
            for (Future<RecordMetadata> f : sent) offsets.add(f.get().offset());
        }
        return offsets;
    }

    static Object consume(JsonNode q) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", q.get("addr").asText());
        p.put("auto.offset.reset", "none");
        p.put("enable.auto.commit", "false");
        p.put("allow.auto.create.topics", "false");
        p.put("default.api.timeout.ms", "20000");
        p.put("fetch.max.wait.ms", "100");
        int count = q.get("count").asInt();
        List<Object> out = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition tp = new TopicPartition(q.get("topic").asText(), q.get("partition").asInt());
            consumer.assign(List.of(tp));
            long offset = q.get("offset").asLong();
            if (q.hasNonNull("timestamp")) offset = consumer.offsetsForTimes(Map.of(tp, q.get("timestamp").asLong())).get(tp).offset();
            consumer.seek(tp, offset);
            long end = System.currentTimeMillis() + 30000;
            while (out.size() < count) {
                if (System.currentTimeMillis() > end) throw new TimeoutException(out.size() + " records of " + count);
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(100))) {
                    if (out.size() == count) break;
                    List<Object> headers = new ArrayList<>();
                    for (Header h : r.headers()) headers.add(Arrays.asList(h.key(), pack(h.value())));
                    Map<String, Object> m = new LinkedHashMap<>();
                    m.put("o", r.offset());
                    m.put("t", r.timestamp());
                    m.put("k", pack(r.key()));
                    m.put("v", pack(r.value()));
                    m.put("h", headers);
                    out.add(m);
                }
            }
        }
        return out;
    }

    public static void main(String[] args) throws Exception {
        JsonNode q = json.readTree(System.in);
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            if (q.get("op").asText().equals("produce")) answer.put("offsets", produce(q));
            else answer.put("records", consume(q));
        } catch (Throwable e) {
            Throwable c = e instanceof ExecutionException && e.getCause() != null ? e.getCause() : e;
            int code = Errors.forException(c).code();
            if (c instanceof OffsetOutOfRangeException) code = Errors.OFFSET_OUT_OF_RANGE.code();
            if (c instanceof TimeoutException && c.getMessage().contains("not present in metadata")) code = Errors.UNKNOWN_TOPIC_OR_PARTITION.code();
            answer.put("code", code);
            answer.put("error", c.toString());
        }
        System.out.println(json.writeValueAsString(answer));
    }
}
