// Package config knows every property of Kafka 4.4: of brokers and controllers, topics, groups, client metrics and
// quotas. It parses and checks them as Kafka does, with Kafka's messages, reads .properties files, and tells where the
// value of a key comes from (topic, dynamic broker, dynamic cluster default, static file, default), which is what
// DescribeConfigs answers and what the docs are rendered from.
//
// The package is pure: values in, values out. Files, environment variables and directories that config providers name
// are read through functions that the caller gives.
//
// Where to start: Key and Table (key.go) describe properties; table_broker.go, table_topic.go and so on are the facts;
// properties.go reads a file; Broker (broker.go) is a node's whole configuration, checked (validate.go), with the typed
// getters that the node hands on as plain options; describe.go and topic.go resolve values with their sources; dynamic.go
// says what may be changed while running.
package config
