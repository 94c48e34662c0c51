package config

// removed are keys that older versions of Kafka had, or that guides name by mistake, with the way out. They are passed
// over.
var removed = map[string]string{
	"inter.broker.protocol.version":                  "removed in Kafka 4.0: the feature metadata.version decides, see kafka-features",
	"log.message.format.version":                     "removed in Kafka 4.0: records are always written in format 2",
	"log.message.timestamp.difference.max.ms":        "removed in Kafka 4.0: write log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
	"log.message.downconversion.enable":              "removed in Kafka 4.0: fetches of clients older than 2.1 are refused",
	"leader.imbalance.per.broker.percentage":         "removed in Kafka 4.0: every imbalance is put right, see leader.imbalance.check.interval.seconds",
	"broker.id.generation.enable":                    "removed in Kafka 4.0: write node.id",
	"reserved.broker.max.id":                         "removed in Kafka 4.0: write node.id",
	"control.plane.listener.name":                    "removed in Kafka 4.0: write controller.listener.names",
	"controlled.shutdown.max.retries":                "removed in Kafka 4.0: a stopping broker waits for the controller",
	"controlled.shutdown.retry.backoff.ms":           "removed in Kafka 4.0: a stopping broker waits for the controller",
	"delegation.token.master.key":                    "removed in Kafka 4.0: write delegation.token.secret.key",
	"offsets.commit.required.acks":                   "removed in Kafka 4.0: offsets are always committed with acks=all",
	"auto.include.jmx.reporter":                      "removed in Kafka 4.0",
	"eligible.leader.replicas.enable":                "never released: the feature eligible.leader.replicas.version decides, see kafka-features",
	"group.coordinator.new.enable":                   "removed in Kafka 4.0: there is one group coordinator",
	"metadata.log.segment.min.bytes":                 "removed in Kafka 4.1: write metadata.log.segment.bytes",
	"group.share.enable":                             "removed: the feature share.version decides, see kafka-features",
	"group.share.max.groups":                         "removed in Kafka 4.1",
	"alter.config.policy.kraft.compatibility.enable": "removed",
	"request.required.acks":                          "a producer's old key: producers write acks",
	"replication.factor":                             "no such key: write default.replication.factor",
	"offsets.replication.factor":                     "no such key: write offsets.topic.replication.factor",
	"transaction.replication.factor":                 "no such key: write transaction.state.log.replication.factor",
	"snapshot.interval.ms":                           "no such key: write metadata.log.max.snapshot.interval.ms",
	"host.name":                                      "removed in Kafka 3.0: write listeners",
	"port":                                           "removed in Kafka 3.0: write listeners",
	"advertised.host.name":                           "removed in Kafka 3.0: write advertised.listeners",
	"advertised.port":                                "removed in Kafka 3.0: write advertised.listeners",
	"quota.producer.default":                         "removed in Kafka 3.0: set producer_byte_rate with kafka-configs",
	"quota.consumer.default":                         "removed in Kafka 3.0: set consumer_byte_rate with kafka-configs",
}

// removedTopicKeys are those that topics may still have in the metadata of a cluster that an older version wrote.
var removedTopicKeys = map[string]string{
	"message.format.version":              "removed in Kafka 4.0: records are always written in format 2",
	"message.downconversion.enable":       "removed in Kafka 4.0: fetches of clients older than 2.1 are refused",
	"message.timestamp.difference.max.ms": "removed in Kafka 4.0: message.timestamp.before.max.ms and message.timestamp.after.max.ms took its place",
}

// clientKeys are keys of producers and consumers that are found in brokers' files by mistake.
var clientKeys = map[string]bool{"acks": true, "batch.size": true, "linger.ms": true, "retries": true, "buffer.memory": true, "enable.idempotence": true,
	"bootstrap.servers": true, "group.id": true, "client.id": true, "auto.offset.reset": true, "enable.auto.commit": true, "max.poll.records": true,
	"session.timeout.ms": true, "heartbeat.interval.ms": true, "fetch.min.bytes": true, "fetch.max.wait.ms": true, "max.request.size": true,
	"delivery.timeout.ms": true, "isolation.level": true, "key.serializer": true, "value.serializer": true, "security.protocol": true, "sasl.mechanism": true}

var removedPrefixes = []struct{ prefix, hint string }{
	{"zookeeper.", "removed in Kafka 4.0: the metadata is in the controllers, see controller.quorum.bootstrap.servers"},
	{"password.encoder.", "removed in Kafka 4.0: dynamic passwords are kept in the metadata log"},
}
