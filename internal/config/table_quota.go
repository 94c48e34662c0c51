package config

// userQuotaKeys are the quotas of users and client ids.
var userQuotaKeys = []*Key{
	{Name: "consumer_byte_rate", Type: Long, Default: "9223372036854775807", Importance: Medium,
		Doc: "Bytes a second that consumers may fetch."},
	{Name: "controller_mutation_rate", Type: Double, Default: "2.147483647E9", Importance: Medium,
		Doc: "Partitions a second that may be created or deleted."},
	{Name: "producer_byte_rate", Type: Long, Default: "9223372036854775807", Importance: Medium,
		Doc: "Bytes a second that producers may send."},
	{Name: "request_percentage", Type: Double, Default: "2.147483647E9", Importance: Medium,
		Doc: "Share of a thread that requests may take, in percent."},
}

// ipQuotaKeys are the quotas of addresses.
var ipQuotaKeys = []*Key{
	{Name: "connection_creation_rate", Type: Int, Default: "2147483647", Check: atLeast(0), Importance: Medium,
		Doc: "New connections a second."},
}

// brokerQuotaKeys exist only as dynamic broker configs.
var brokerQuotaKeys = []*Key{
	{Name: "follower.replication.throttled.rate", Type: Long, Default: "9223372036854775807", Check: atLeast(0), Importance: Medium,
		Doc: "Bytes a second that throttled followers may fetch.", Update: ClusterWide},
	{Name: "leader.replication.throttled.rate", Type: Long, Default: "9223372036854775807", Check: atLeast(0), Importance: Medium,
		Doc: "Bytes a second that throttled leaders may send to followers.", Update: ClusterWide},
	{Name: "replica.alter.log.dirs.io.max.bytes.per.second", Type: Long, Default: "9223372036854775807", Check: atLeast(0), Importance: Medium,
		Doc: "Bytes a second for moving replicas between directories.", Update: ClusterWide},
}
