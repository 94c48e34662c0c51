package cli

import (
	"slices"
	"strings"
)

// toolClasses are the classes with a main method that scripts hand to kafka-run-class.sh, with the tool that each is here: the
// names of Kafka 4.4 and those that the same tools had before. What follows "-" is no tool of this binary (yet).
var toolClasses = map[string]string{
	"kafka.Kafka": "server-start", "kafka.tools.StorageTool": "storage",

	"org.apache.kafka.tools.TopicCommand": "topics", "kafka.admin.TopicCommand": "topics",
	"org.apache.kafka.tools.ConfigCommand": "configs", "kafka.admin.ConfigCommand": "configs",
	"org.apache.kafka.tools.ConsoleProducer": "console-producer", "kafka.tools.ConsoleProducer": "console-producer",
	"org.apache.kafka.tools.consumer.ConsoleConsumer": "console-consumer", "kafka.tools.ConsoleConsumer": "console-consumer",
	"org.apache.kafka.tools.ProducerPerformance": "producer-perf-test", "kafka.tools.ProducerPerformance": "producer-perf-test",
	"org.apache.kafka.tools.ConsumerPerformance": "consumer-perf-test", "kafka.tools.ConsumerPerformance": "consumer-perf-test",
	"org.apache.kafka.tools.GetOffsetShell": "get-offsets", "kafka.tools.GetOffsetShell": "get-offsets",
	"org.apache.kafka.tools.BrokerApiVersionsCommand": "broker-api-versions", "kafka.admin.BrokerApiVersionsCommand": "broker-api-versions",
	"org.apache.kafka.tools.DumpLogSegments": "dump-log", "kafka.tools.DumpLogSegments": "dump-log",
	"org.apache.kafka.tools.ClusterTool": "cluster", "kafka.tools.ClusterTool": "cluster",
	"org.apache.kafka.tools.FeatureCommand": "features", "kafka.admin.FeatureCommand": "features",
	"org.apache.kafka.tools.DeleteRecordsCommand": "delete-records", "kafka.admin.DeleteRecordsCommand": "delete-records",
	"org.apache.kafka.tools.LogDirsCommand": "log-dirs", "kafka.admin.LogDirsCommand": "log-dirs",
	"org.apache.kafka.tools.VerifiableProducer": "verifiable-producer",

	"org.apache.kafka.tools.AclCommand": "acls", "kafka.admin.AclCommand": "acls",
	"org.apache.kafka.tools.ClientMetricsCommand":                "client-metrics",
	"org.apache.kafka.tools.DelegationTokenCommand":              "delegation-tokens",
	"org.apache.kafka.tools.EndToEndLatency":                     "e2e-latency",
	"kafka.tools.EndToEndLatency":                                "e2e-latency",
	"kafka.admin.DelegationTokenCommand":                         "delegation-tokens",
	"org.apache.kafka.tools.GroupsCommand":                       "groups",
	"org.apache.kafka.tools.LeaderElectionCommand":               "leader-election",
	"kafka.admin.LeaderElectionCommand":                          "leader-election",
	"kafka.admin.PreferredReplicaLeaderElectionCommand":          "leader-election",
	"org.apache.kafka.tools.MetadataQuorumCommand":               "metadata-quorum",
	"kafka.admin.MetadataQuorumCommand":                          "metadata-quorum",
	"org.apache.kafka.shell.MetadataShell":                       "metadata-shell",
	"org.apache.kafka.tools.ReplicaVerificationTool":             "replica-verification",
	"kafka.tools.ReplicaVerificationTool":                        "replica-verification",
	"org.apache.kafka.tools.ShareConsumerPerformance":            "share-consumer-perf-test",
	"org.apache.kafka.tools.StreamsResetter":                     "streams-application-reset",
	"kafka.tools.StreamsResetter":                                "streams-application-reset",
	"org.apache.kafka.tools.TransactionsCommand":                 "transactions",
	"org.apache.kafka.tools.TransactionalMessageCopier":          "transactional-message-copier",
	"org.apache.kafka.tools.VerifiableConsumer":                  "verifiable-consumer",
	"org.apache.kafka.tools.VerifiableShareConsumer":             "verifiable-share-consumer",
	"org.apache.kafka.tools.consumer.ConsoleShareConsumer":       "console-share-consumer",
	"org.apache.kafka.tools.consumer.group.ConsumerGroupCommand": "consumer-groups",
	"kafka.admin.ConsumerGroupCommand":                           "consumer-groups",
	"org.apache.kafka.tools.consumer.group.ShareGroupCommand":    "share-groups",
	"org.apache.kafka.tools.streams.StreamsGroupCommand":         "streams-groups",
	"org.apache.kafka.tools.reassign.ReassignPartitionsCommand":  "reassign-partitions",
	"kafka.admin.ReassignPartitionsCommand":                      "reassign-partitions",
	"org.apache.kafka.connect.mirror.MirrorMaker":                "mirror-maker",
	"org.apache.kafka.tools.JmxTool":                             "jmx",
	"kafka.tools.JmxTool":                                        "jmx",
}

// onlyJava are packages whose classes need a Java virtual machine, because they run other people's Java code or measure one.
var onlyJava = []string{
	"org.apache.kafka.connect.", "org.apache.kafka.streams.", "org.apache.kafka.trogdor.", "org.apache.kafka.jmh.",
	"org.apache.zookeeper.", "kafka.tools.MirrorMaker", "kafka.examples.", "sun.", "java.", "javax.", "jdk.",
}

// runClass is kafka-run-class: it runs the tool that a class of Kafka's is. Options of the Java virtual machine before the
// class mean nothing here and are passed over.
func runClass(e *Env) int {
	args := e.Args
	daemon, name := false, "kafka"
options:
	for len(args) > 0 {
		switch a := args[0]; {
		case a == "-daemon":
			daemon = true
		case a == "-loggc":
		case a == "-name" && len(args) > 1:
			name, args = args[1], args[1:]
		case a == "-cp" || a == "-classpath" || a == "--class-path":
			args = args[min(1, len(args)-1):]
		case strings.HasPrefix(a, "-D") || strings.HasPrefix(a, "-X") || strings.HasPrefix(a, "-javaagent") || a == "-server" || a == "-ea":
		default:
			break options
		}
		args = args[1:]
	}
	if len(args) == 0 {
		e.Printf("USAGE: %s.sh [-daemon] [-name servicename] [-loggc] classname [opts]\n", e.Name)
		return 1
	}
	class, args := args[0], args[1:]
	tool, known := toolClasses[class]
	t := lookup(tool)
	switch {
	case t != nil && !t.Own:
	case slices.ContainsFunc(onlyJava, func(p string) bool { return strings.HasPrefix(class, p) }):
		e.Errorf("%s: %s needs a Java virtual machine; run it with the kafka-run-class.sh of a Kafka distribution.", e.Name, class)
		return 1
	case known:
		e.Errorf("%s: %s (kafka-%s) is not part of this version; the tool of a Kafka distribution works against this node too.", e.Name, class, tool)
		return 1
	default:
		e.Errorf("Error: Could not find or load main class %s", class)
		e.Errorf("Caused by: java.lang.ClassNotFoundException: %s", class)
		return 1
	}
	if daemon {
		return startDaemon(e, name+".out", append([]string{tool}, args...))
	}
	inner := *e
	inner.Name, inner.Args = "kafka-"+tool, args
	return t.Run(&inner)
}
