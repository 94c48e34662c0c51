package api

import (
	"math"
	"time"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/replica"
)

// Broker is what the handlers of a broker's listeners work with. The functions return at once.
type Broker struct {
	ID        kafka.BrokerID
	ClusterID string
	Replicas  func() *replica.Set
	Image     func() *metadata.Image
	Config    func() *config.Broker

	// Ask sends a request to the active controller.
	Ask Ask
	// AutoCreate asks the controller to create topics that a Metadata request named; nobody waits for it.
	AutoCreate func(names []string)
	// ProducerID calls done with an id that no producer has had, at once or when a block of them has come from the controller.
	ProducerID func(done func(kafka.ProducerID, error))
	Loggers    Loggers

	// Random draws from [0, n), on any goroutine.
	Random func(n int) int

	Sessions *Sessions // of incremental fetches
	Limits   Limits
}

// Limits are the bounds of requests, named as in server.properties.
type Limits struct {
	FetchMaxBytes           int // fetch.max.bytes
	MaxRequestPartitionSize int // max.request.partition.size.limit
	AutoCreateTopicsEnable  bool
	RequestTimeout          time.Duration // request.timeout.ms: how long a controller is looked for
}

// noOperations is what an answer says of authorised operations that were not asked for.
const noOperations = math.MinInt32

// Operations that exist for a kind of resource, as bits by AclOperation's number. Without an authorizer everybody may do
// all of them.
const (
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

// alive goes through the brokers that clients of a listener can reach.
func alive(image *metadata.Image, listener string, each func(*metadata.Broker, metadata.Endpoint)) {
	for b := range image.Brokers() {
		if b.Fenced {
			continue
		}
		if e, ok := b.Endpoint(listener); ok {
			each(b, e)
		}
	}
}

// anyBroker is what clients are told as the controller: a broker, which forwards to the real one (KIP-590). Kafka draws one.
func (b *Broker) anyBroker(image *metadata.Image) int32 {
	var ids []kafka.BrokerID
	for n := range image.Brokers() {
		if !n.Fenced {
			ids = append(ids, n.ID)
		}
	}
	if len(ids) == 0 {
		return -1
	}
	return int32(ids[b.Random(len(ids))])
}

func int32s(ids []kafka.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// offline are the replicas that cannot serve clients of a listener: their broker is fenced, unknown or without that listener,
// or their directory failed.
func offline(image *metadata.Image, listener string, p *metadata.Partition) []int32 {
	out := []int32{}
	for _, id := range p.Replicas {
		b := image.Broker(id)
		if b != nil && !b.Fenced && b.HasDirectory(p.Directory(id)) {
			if _, ok := b.Endpoint(listener); ok {
				continue
			}
		}
		out = append(out, int32(id))
	}
	return out
}
