package node

import (
	"time"

	"github.com/highwater/highwater/internal/config"
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
		n.uplink.MetadataApplied(image.Provenance().Offset)
	}
}

// applyConfigs makes the configuration in force if this broker's or the cluster's changed.
func (n *Node) applyConfigs(image *metadata.Image, changes *metadata.Changes) (changed bool) {
	for r := range changes.Configs() {
		if r.Type == metadata.ResourceBroker && (r.Name == "" || r.Name == n.idText()) {
			changed = true
		}
	}
	if !changed {
		return false
	}
	c, rejected := n.static.WithDynamic(
		overrides(image, metadata.ResourceBroker, ""), overrides(image, metadata.ResourceBroker, n.idText()))
	for _, r := range rejected {
		n.log.Warn("dynamic config cannot be used and is left out", "key", r.Key, "error", r.Err)
	}
	n.config.Store(c)
	n.configure(c)
	return true
}

// configure gives running parts what may change while they run.
func (n *Node) configure(c *config.Broker) {
	if n.server != nil {
		n.server.SetLimits(connectionLimits(c))
	}
}

// configureTopics tells logs and leaders of changed configs: of their topics, or of the broker, which are the defaults of all.
func (n *Node) configureTopics(now time.Time, image *metadata.Image, changes *metadata.Changes, all bool) {
	if all {
		for _, name := range n.replicas.Names() {
			n.replicas.Configure(now, image, name)
		}
		return
	}
	for r := range changes.Configs() {
		if r.Type == metadata.ResourceTopic {
			n.replicas.Configure(now, image, r.Name)
		}
	}
}
