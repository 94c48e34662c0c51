// Answers asks a running broker, Kafka's or Highwater's, what it holds and writes it as JSON into a directory. It runs inside ToolHost.
//   argv: BOOTSTRAP DIRECTORY
// records.jsonl: every record of every topic that is not internal, in (topic, partition, offset) order:
//   t topic, p partition, o offset, ts timestamp, tt timestamp type (C create, L log append), e leader epoch, k key, v value, h headers
//   (list of [name, value]), c false when read_committed does not see it. Bytes are a JSON string when they are UTF-8, else {"b64": …}; a
//   text longer than 400 bytes is {"size": …, "sha256": …}; absent is null.
// offsets.jsonl: for every partition earliest, latest, lastStable, maxTimestamp, and the first offset at or after some times.
// admin.json: topics, configs, groups, transactions, producers, quotas, SCRAM, ACLs, tokens, features, log directories, quorum; a section
//   that the broker does not serve is "error: …".
// It is the program that wrote testdata/data/*.expect but for its errors, so that its answers can be compared with those line by line.
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.*;
import java.nio.charset.*;
import java.nio.file.*;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Answers {
    static final ObjectMapper JSON = new ObjectMapper();
    static String bootstrap;

    public static void main(String[] a) throws Exception {
        bootstrap = a[0];
        Path dir = Paths.get(a[1]);
        Files.createDirectories(dir);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 120000))) {
            Map<String, TopicDescription> topics = new TreeMap<>(admin.describeTopics(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get()).allTopicNames().get());
            records(topics, dir);
            offsets(admin, topics, dir);
            Files.writeString(dir.resolve("admin.json"), JSON.writerWithDefaultPrettyPrinter().writeValueAsString(admin(admin, topics)) + "\n");
        }
    }

    static Map<String, Object> map(Object... kv) {
        Map<String, Object> m = new LinkedHashMap<>();
        for (int i = 0; i < kv.length; i += 2) m.put((String) kv[i], kv[i + 1]);
        return m;
    }

    static Object show(byte[] b) throws Exception {
        if (b == null) return null;
        try {
            String s = StandardCharsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPORT).decode(ByteBuffer.wrap(b)).toString();
            if (b.length <= 400 && s.chars().noneMatch(c -> c < 9)) return s;
            if (b.length > 400) return map("size", b.length, "sha256", hex(MessageDigest.getInstance("SHA-256").digest(b)));
        } catch (CharacterCodingException e) { }
        return map("b64", Base64.getEncoder().encodeToString(b));
    }

    static String hex(byte[] b) {
        StringBuilder s = new StringBuilder();
        for (byte x : b) s.append(String.format("%02x", x));
        return s.toString();
    }

    static KafkaConsumer<byte[], byte[]> consumer(String isolation) {
        return new KafkaConsumer<>(Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation, "enable.auto.commit", false, "auto.offset.reset", "none", "fetch.max.wait.ms", 20,
            "fetch.max.bytes", 20000000, "max.partition.fetch.bytes", 20000000, "max.poll.records", 10000), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<TopicPartition> partitions(Map<String, TopicDescription> topics, boolean internal) {
        List<TopicPartition> l = new ArrayList<>();
        for (var t : topics.values()) if (internal || !t.isInternal() && !t.name().startsWith("__")) for (var p : t.partitions()) l.add(new TopicPartition(t.name(), p.partition()));
        return l;
    }

    static void records(Map<String, TopicDescription> topics, Path dir) throws Exception {
        List<TopicPartition> all = partitions(topics, false);
        Map<TopicPartition, Set<Long>> committed = new HashMap<>();
        try (var c = consumer("read_committed")) {
            read(c, all).forEach((tp, l) -> committed.put(tp, l.stream().map(ConsumerRecord::offset).collect(Collectors.toSet())));
        }
        try (var c = consumer("read_uncommitted"); Writer w = Files.newBufferedWriter(dir.resolve("records.jsonl"))) {
            var read = read(c, all);
            for (TopicPartition tp : all) for (var r : read.get(tp)) {
                Map<String, Object> m = map("t", tp.topic(), "p", tp.partition(), "o", r.offset(), "ts", r.timestamp(), "tt", r.timestampType().name.substring(0, 1).replace("N", "-"), "e", r.leaderEpoch().orElse(-1), "k", show(r.key()), "v", show(r.value()));
                if (r.headers().toArray().length > 0) {
                    List<Object> h = new ArrayList<>();
                    for (Header x : r.headers()) h.add(Arrays.asList(x.key(), show(x.value())));
                    m.put("h", h);
                }
                if (!committed.get(tp).contains(r.offset())) m.put("c", false);
                w.write(JSON.writeValueAsString(m) + "\n");
            }
        }
    }

    // Everything from the beginning to the end of now, by partition.
    static Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> read(KafkaConsumer<byte[], byte[]> c, List<TopicPartition> all) {
        Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> out = new HashMap<>();
        for (TopicPartition tp : all) out.put(tp, new ArrayList<>());
        c.assign(all);
        c.seekToBeginning(all);
        Map<TopicPartition, Long> ends = c.endOffsets(all);
        Set<TopicPartition> left = new HashSet<>(all);
        long stop = System.currentTimeMillis() + 60000;
        while (true) {
            left.removeIf(tp -> c.position(tp) >= ends.get(tp));
            if (left.isEmpty()) return out;
            if (System.currentTimeMillis() > stop) throw new IllegalStateException("stuck before the end of " + left.stream().map(tp -> tp + " at " + c.position(tp) + " of " + ends.get(tp)).collect(Collectors.toList()));
            for (var r : c.poll(Duration.ofMillis(100))) {
                var tp = new TopicPartition(r.topic(), r.partition());
                if (r.offset() < ends.get(tp)) out.get(tp).add(r);
            }
        }
    }

    static final long[] TIMES = {0, 1735689600000L, 1735689605123L, 1735689660000L, 1735776000000L, 1735776031415L, 1735862400001L, 1767225600000L};

    static void offsets(Admin admin, Map<String, TopicDescription> topics, Path dir) throws Exception {
        List<TopicPartition> all = partitions(topics, true), ours = partitions(topics, false);
        var earliest = list(admin, all, OffsetSpec.earliest(), false);
        var latest = list(admin, all, OffsetSpec.latest(), false);
        var lastStable = list(admin, all, OffsetSpec.latest(), true);
        var maxTimestamp = list(admin, all, OffsetSpec.maxTimestamp(), false);
        Map<Long, Map<TopicPartition, Object>> times = new LinkedHashMap<>();
        for (long t : TIMES) times.put(t, list(admin, ours, OffsetSpec.forTimestamp(t), false));
        try (Writer w = Files.newBufferedWriter(dir.resolve("offsets.jsonl"))) {
            for (TopicPartition tp : all) {
                Map<String, Object> m = map("t", tp.topic(), "p", tp.partition(), "earliest", earliest.get(tp), "latest", latest.get(tp), "lastStable", lastStable.get(tp), "maxTimestamp", maxTimestamp.get(tp));
                Map<String, Object> at = new LinkedHashMap<>();
                if (ours.contains(tp)) for (long t : TIMES) at.put("" + t, times.get(t).get(tp));
                if (!at.isEmpty()) m.put("atOrAfter", at);
                w.write(JSON.writeValueAsString(m) + "\n");
            }
        }
    }

    static Map<TopicPartition, Object> list(Admin admin, List<TopicPartition> tps, OffsetSpec spec, boolean committed) {
        Map<TopicPartition, OffsetSpec> q = new LinkedHashMap<>();
        for (TopicPartition tp : tps) q.put(tp, spec);
        var answer = admin.listOffsets(q, new ListOffsetsOptions(committed ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED));
        Map<TopicPartition, Object> out = new HashMap<>();
        for (TopicPartition tp : tps) out.put(tp, ask(() -> {
            var r = answer.partitionResult(tp).get();
            return Arrays.asList(r.offset(), r.timestamp(), r.leaderEpoch().orElse(-1));
        }));
        return out;
    }

    static String error(Throwable e) {
        while (e.getCause() != null) e = e.getCause();
        return "error: " + e.getClass().getSimpleName() + ": " + e.getMessage();
    }

    static Object ask(Callable<Object> f) {
        try { return f.call(); } catch (Exception e) { return error(e); }
    }

    static List<Integer> ids(Collection<Node> nodes) { return nodes == null ? null : nodes.stream().map(Node::id).collect(Collectors.toList()); }

    static List<String> tps(Collection<TopicPartition> l) { return l.stream().map(Object::toString).sorted().collect(Collectors.toList()); }

    static Map<String, Object> admin(Admin admin, Map<String, TopicDescription> topics) throws Exception {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("cluster", ask(() -> map("id", admin.describeCluster().clusterId().get(), "nodes", ids(admin.describeCluster().nodes().get()))));
        out.put("features", ask(() -> {
            var f = admin.describeFeatures().featureMetadata().get();
            return map("finalized", new TreeMap<>(f.finalizedFeatures().entrySet().stream().collect(Collectors.toMap(Map.Entry::getKey, e -> List.of(e.getValue().minVersionLevel(), e.getValue().maxVersionLevel())))),
                "supported", new TreeMap<>(f.supportedFeatures().entrySet().stream().collect(Collectors.toMap(Map.Entry::getKey, e -> List.of(e.getValue().minVersion(), e.getValue().maxVersion())))));
        }));
        out.put("quorum", ask(() -> {
            var q = admin.describeMetadataQuorum().quorumInfo().get();
            return map("voters", q.voters().stream().map(v -> map("id", v.replicaId(), "directory", v.replicaDirectoryId().toString())).collect(Collectors.toList()),
                "observers", q.observers().stream().map(v -> map("id", v.replicaId(), "directory", v.replicaDirectoryId().toString())).collect(Collectors.toList()));
        }));
        Map<String, Object> t = new LinkedHashMap<>();
        for (var d : topics.values()) {
            List<Object> ps = new ArrayList<>();
            for (var p : d.partitions()) ps.add(map("partition", p.partition(), "leader", p.leader() == null ? null : p.leader().id(), "replicas", ids(p.replicas()), "isr", ids(p.isr()), "elr", ids(p.elr()), "lastKnownElr", ids(p.lastKnownElr())));
            t.put(d.name(), map("id", d.topicId().toString(), "internal", d.isInternal(), "partitions", ps));
        }
        out.put("topics", t);
        List<ConfigResource> rs = new ArrayList<>();
        for (String n : topics.keySet()) rs.add(new ConfigResource(ConfigResource.Type.TOPIC, n));
        rs.add(new ConfigResource(ConfigResource.Type.BROKER, ""));
        for (Node n : admin.describeCluster().nodes().get()) rs.add(new ConfigResource(ConfigResource.Type.BROKER, "" + n.id()));
        try { // brokers of 4.1 and later
            for (var r : admin.listConfigResources(Set.of(ConfigResource.Type.CLIENT_METRICS, ConfigResource.Type.GROUP), new ListConfigResourcesOptions()).all().get()) rs.add(r);
        } catch (java.util.concurrent.ExecutionException e) { }
        Map<String, Object> configs = new TreeMap<>();
        for (ConfigResource r : rs) configs.put(r.type() + ":" + r.name(), ask(() -> {
            Map<String, Object> m = new TreeMap<>();
            for (ConfigEntry e : admin.describeConfigs(List.of(r), new DescribeConfigsOptions().includeSynonyms(true)).all().get().get(r).entries())
                if (e.source().name().startsWith("DYNAMIC")) m.put(e.name(), map("value", e.value(), "source", e.source().name(), "sensitive", e.isSensitive(), "readOnly", e.isReadOnly()));
            return m;
        }));
        out.put("dynamicConfigs", configs);
        out.put("groups", ask(() -> {
            Map<String, Object> groups = new TreeMap<>();
            for (GroupListing g : admin.listGroups().all().get()) groups.put(g.groupId(), group(admin, g));
            return groups;
        }));
        out.put("transactions", ask(() -> {
            Map<String, Object> txns = new TreeMap<>();
            for (TransactionListing x : admin.listTransactions().all().get()) txns.put(x.transactionalId(), ask(() -> {
                var d = admin.describeTransactions(List.of(x.transactionalId())).all().get().get(x.transactionalId());
                return map("state", d.state().toString(), "coordinator", d.coordinatorId(), "producerId", d.producerId(), "producerEpoch", d.producerEpoch(), "timeoutMs", d.transactionTimeoutMs(), "partitions", tps(d.topicPartitions()), "started", d.transactionStartTimeMs().isPresent());
            }));
            return txns;
        }));
        Map<String, Object> producers = new LinkedHashMap<>();
        var all = partitions(topics, true);
        var dp = admin.describeProducers(all);
        for (TopicPartition tp : all) {
            Object o = ask(() -> dp.partitionResult(tp).get().activeProducers().stream().sorted(Comparator.comparing(ProducerState::producerId)).map(p -> map("id", p.producerId(), "epoch", p.producerEpoch(), "lastSequence", p.lastSequence(), "lastTimestamp", p.lastTimestamp(), "coordinatorEpoch", p.coordinatorEpoch().orElse(-1), "transactionStart", p.currentTransactionStartOffset().orElse(-1))).collect(Collectors.toList()));
            if (!(o instanceof List) || !((List<?>) o).isEmpty()) producers.put(tp.toString(), o);
        }
        out.put("producers", producers);
        out.put("quotas", ask(() -> {
            Map<String, Object> m = new TreeMap<>();
            admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((e, q) -> m.put(new TreeMap<>(e.entries()).toString(), new TreeMap<>(q)));
            return m;
        }));
        out.put("scram", ask(() -> {
            Map<String, Object> m = new TreeMap<>();
            admin.describeUserScramCredentials().all().get().forEach((u, d) -> m.put(u, d.credentialInfos().stream().map(i -> i.mechanism().mechanismName() + " " + i.iterations()).sorted().collect(Collectors.toList())));
            return m;
        }));
        out.put("acls", ask(() -> admin.describeAcls(AclBindingFilter.ANY).values().get().stream().map(Object::toString).sorted().collect(Collectors.toList())));
        out.put("delegationTokens", ask(() -> admin.describeDelegationToken(new DescribeDelegationTokenOptions().owners(null)).delegationTokens().get().stream().map(d -> map("id", d.tokenInfo().tokenId(), "owner", d.tokenInfo().ownerAsString(), "renewers", d.tokenInfo().renewersAsString(), "issue", d.tokenInfo().issueTimestamp(), "expiry", d.tokenInfo().expiryTimestamp(), "max", d.tokenInfo().maxTimestamp(), "hmac", d.hmacAsBase64String())).collect(Collectors.toList())));
        out.put("logDirs", ask(() -> {
            Map<String, Object> dirs = new TreeMap<>();
            admin.describeLogDirs(ids(admin.describeCluster().nodes().get())).allDescriptions().get().forEach((id, m) -> m.forEach((path, d) -> {
                Map<String, Object> r = new TreeMap<>();
                d.replicaInfos().forEach((tp, i) -> r.put(tp.toString(), i.isFuture() ? List.of(i.size(), i.offsetLag(), "future") : List.of(i.size(), i.offsetLag())));
                dirs.put(id + ":" + path, r);
            }));
            return dirs;
        }));
        out.put("reassignments", ask(() -> tps(admin.listPartitionReassignments().reassignments().get().keySet())));
        return out;
    }

    static Object group(Admin admin, GroupListing g) {
        String id = g.groupId(), type = g.type().map(Object::toString).orElse("?");
        Map<String, Object> m = map("type", type, "protocol", g.protocol(), "state", g.groupState().map(Object::toString).orElse("?"), "simple", g.isSimpleConsumerGroup());
        if (type.equals("Classic") || type.equals("Consumer")) m.put("description", ask(() -> {
            var d = admin.describeConsumerGroups(List.of(id)).all().get().get(id);
            return map("assignor", d.partitionAssignor(), "epoch", d.groupEpoch().orElse(-1), "targetAssignmentEpoch", d.targetAssignmentEpoch().orElse(-1), "members", d.members().stream().sorted(Comparator.comparing(MemberDescription::consumerId)).map(x -> map("id", x.consumerId(), "instance", x.groupInstanceId().orElse(null), "client", x.clientId(), "host", x.host(), "assignment", tps(x.assignment().topicPartitions()), "target", x.targetAssignment().map(y -> tps(y.topicPartitions())).orElse(null), "epoch", x.memberEpoch().orElse(-1), "upgraded", x.upgraded().orElse(null))).collect(Collectors.toList()));
        }));
        if (type.equals("Share")) {
            m.put("description", ask(() -> {
                var d = admin.describeShareGroups(List.of(id)).all().get().get(id);
                return map("epoch", d.groupEpoch(), "targetAssignmentEpoch", d.targetAssignmentEpoch(), "members", d.members().stream().map(x -> map("id", x.consumerId(), "client", x.clientId(), "assignment", tps(x.assignment().topicPartitions()), "epoch", x.memberEpoch())).collect(Collectors.toList()));
            }));
            m.put("startOffsets", ask(() -> {
                Map<String, Object> o = new TreeMap<>();
                admin.listShareGroupOffsets(Map.of(id, new ListShareGroupOffsetsSpec())).all().get().get(id).forEach((tp, i) -> o.put(tp.toString(), i == null ? null : map("startOffset", i.startOffset(), "leaderEpoch", i.leaderEpoch().orElse(-1), "lag", i.lag().orElse(-1L))));
                return o;
            }));
        } else m.put("offsets", ask(() -> {
            Map<String, Object> o = new TreeMap<>();
            var r = type.equals("Streams") ? admin.listStreamsGroupOffsets(Map.of(id, new ListStreamsGroupOffsetsSpec())).all().get().get(id) : admin.listConsumerGroupOffsets(Map.of(id, new ListConsumerGroupOffsetsSpec())).all().get().get(id);
            r.forEach((tp, x) -> o.put(tp.toString(), x == null ? null : map("offset", x.offset(), "leaderEpoch", x.leaderEpoch().orElse(-1), "metadata", x.metadata())));
            return o;
        }));
        if (type.equals("Streams")) m.put("description", ask(() -> {
            var d = admin.describeStreamsGroups(List.of(id)).all().get().get(id);
            return map("epoch", d.groupEpoch(), "targetAssignmentEpoch", d.targetAssignmentEpoch(), "topologyEpoch", d.topologyEpoch(), "subtopologies", d.subtopologies().stream().map(s -> map("id", s.subtopologyId(), "sources", s.sourceTopics(), "changelogs", s.stateChangelogTopics().keySet())).collect(Collectors.toList()),
                "members", d.members().stream().map(x -> map("id", x.memberId(), "process", x.processId(), "epoch", x.memberEpoch(), "active", x.assignment().activeTasks().stream().map(y -> y.subtopologyId() + ":" + y.partitions()).collect(Collectors.toList()))).collect(Collectors.toList()));
        }));
        return m;
    }
}
