package node

import (
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
)

// apply takes in an image, on the loader's goroutine. This is the one place that knows the order: configuration before
// replicas, so that new ones begin with it; replicas before the image that clients are answered from, so that whoever is told
// of a leader finds it leading; the controller's heartbeat last, because it may unfence this broker.
func (n *Node) apply(_, image *metadata.Image, changes *metadata.Changes) {
	n.applyMu.Lock()
	defer n.applyMu.Unlock()
	reconfigured := n.applyConfigs(image, changes)
	if n.started {
		now := time.Now()
		n.replicas.Apply(now, image, changes)
		n.configureTopics(now, image, changes, reconfigured)
	}
	n.image.Store(image)
	if n.control != nil {
		n.control.applied(image)
	}
	if n.uplink != nil {
		n.tellApplied(image)
	}
}

// tellApplied tells the lifecycle how far this broker is and whether clients would be told of it.
func (n *Node) tellApplied(image *metadata.Image) {
	b, epoch := image.Broker(n.id), kafka.BrokerEpoch(-1)
	if b != nil {
		epoch = b.Epoch
	}
	n.uplink.MetadataApplied(image.Provenance().Offset, b != nil && !b.Fenced, epoch)
}
