package storage

import (
	"encoding/json"
	"fmt"

	"github.com/highwater/highwater/internal/kafka"
)

// .kafka_cleanshutdown marks a log directory that was closed cleanly. It is JSON with the epoch of the broker that did, which
// proves to the controller that this broker lost nothing (KIP-966). Older versions of Kafka leave it empty or write something
// else: that it is there counts.

const maxCleanShutdownSize = 1 << 16

func encodeCleanShutdown(epoch kafka.BrokerEpoch) []byte {
	return fmt.Appendf(nil, `{"version":0,"brokerEpoch":%d}`, epoch)
}

// decodeCleanShutdown gives the epoch, or -1 if the content is not what we know.
func decodeCleanShutdown(b []byte) kafka.BrokerEpoch {
	var v struct {
		Version     int
		BrokerEpoch int64
	}
	v.BrokerEpoch = -1
	if json.Unmarshal(b, &v) != nil || v.Version != 0 {
		return -1
	}
	return kafka.BrokerEpoch(v.BrokerEpoch)
}
