package cli

// tools is every tool there is. A new one is one line here.
func tools() []Tool {
	return []Tool{
		{Name: "dev", Summary: "run a single node for development", Run: runDev, Own: true},
		{Name: "help", Summary: "this list, or the options of one tool", Run: runHelp, Own: true},
		{Name: "version", Summary: "the version", Run: runVersion, Own: true},
		{Name: "config", Summary: "explain and check a properties file: config check FILE…", Run: runConfig, Own: true},
		{Name: "links", Summary: "make Kafka's tool names as links to this binary", Run: runLinks, Own: true},
		{Name: "fsck", Summary: "check log directories: every file, and what Kafka would do with it", Run: runFsck, Own: true},

		{Name: "topics", Summary: "create, delete, describe, list and change topics", Run: runTopics},
		{Name: "configs", Summary: "show and change configurations, quotas and SCRAM credentials", Run: runConfigs},
		{Name: "console-producer", Summary: "send lines of standard input as records", Run: runConsoleProducer},
		{Name: "console-consumer", Summary: "print records", Run: runConsoleConsumer},
		{Name: "producer-perf-test", Summary: "measure a producer", Run: runProducerPerf},
		{Name: "consumer-perf-test", Summary: "measure a consumer", Run: runConsumerPerf},
		{Name: "cluster", Summary: "print a cluster's id, nodes and APIs; forget brokers and controllers", Run: runCluster},
		{Name: "features", Summary: "show and change the features of a cluster", Run: runFeatures},
		{Name: "verifiable-producer", Summary: "send numbers and print what became of each as JSON", Run: runVerifiableProducer},
		{Name: "get-offsets", Summary: "print offsets of partitions", Run: runGetOffsets},
		{Name: "delete-records", Summary: "delete records below an offset of partitions", Run: runDeleteRecords},
		{Name: "log-dirs", Summary: "print what lies in the log directories of brokers", Run: runLogDirs},
		{Name: "broker-api-versions", Summary: "print the APIs and versions of each broker", Run: runBrokerAPIVersions},
		{Name: "dump-log", Summary: "print and check the files of a partition: segments, indexes, snapshots", Run: runDumpLog},
		{Name: "run-class", Summary: "run the tool that a class of Kafka's is", Run: runClass},
		{Name: "storage", Summary: "format and show log directories, print random ids", Run: runStorage},
		{Name: "server-start", Summary: "run a node", Run: runServerStart},
		{Name: "server-stop", Summary: "stop the nodes that run on this machine", Run: runServerStop},
	}
}
