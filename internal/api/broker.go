package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/rpc"
)

// Routes are all that a broker's listeners serve. versions is the handler of ApiVersions.
func (b *Broker) Routes(versions rpc.Handler) []Route {
	routes := []Route{
		{kmsg.Produce.Int16(), b.Produce},
		{kmsg.Fetch.Int16(), b.Fetch},
		{kmsg.ListOffsets.Int16(), b.ListOffsets},
		{kmsg.Metadata.Int16(), b.Metadata},
		{kmsg.ApiVersions.Int16(), versions},
		{kmsg.DeleteRecords.Int16(), b.DeleteRecords},
		{kmsg.InitProducerID.Int16(), b.InitProducerID},
		{kmsg.OffsetForLeaderEpoch.Int16(), b.OffsetForLeaderEpoch},
		{kmsg.AlterReplicaLogDirs.Int16(), b.AlterReplicaLogDirs},
		{kmsg.DescribeLogDirs.Int16(), b.DescribeLogDirs},
		{kmsg.DescribeConfigs.Int16(), b.DescribeConfigs},
		{kmsg.AlterConfigs.Int16(), b.AlterConfigs},
		{kmsg.IncrementalAlterConfigs.Int16(), b.IncrementalAlterConfigs},
		{kmsg.DescribeClientQuotas.Int16(), b.DescribeClientQuotas},
		{kmsg.DescribeUserSCRAMCredentials.Int16(), b.DescribeUserScramCredentials},
		{kmsg.ListConfigResources.Int16(), b.ListConfigResources},
		{kmsg.DescribeCluster.Int16(), b.DescribeCluster},
		{kmsg.DescribeTopicPartitions.Int16(), b.DescribeTopicPartitions},
	}
	forward := Forward(b.Ask, b.Limits.RequestTimeout)
	for _, k := range Forwarded {
		routes = append(routes, Route{k.Int16(), forward})
	}
	return routes
}

// Forwarded are the APIs that a broker hands to the active controller.
var Forwarded = []kmsg.Key{
	kmsg.CreateTopics, kmsg.DeleteTopics, kmsg.CreatePartitions, kmsg.AlterClientQuotas, kmsg.AlterUserSCRAMCredentials,
	kmsg.AlterPartitionAssignments, kmsg.ListPartitionReassignments, kmsg.DescribeQuorum, kmsg.ElectLeaders, kmsg.UpdateFeatures, kmsg.UnregisterBroker, kmsg.UnregisterController,
}
