package node

import (
	"context"
	"time"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/metadata"
)

// This file makes configs that stand in the metadata take effect while the node runs. What a node was started with stays
// in n.static; n.config is that with the dynamic configs of the newest image over it. A stored value that cannot be used
// never stops a node: it is left out, with one line in the log.

// applyConfigs makes the configuration in force if this node's or the cluster's changed.
func (n *Node) applyConfigs(image *metadata.Image, changes *metadata.Changes) (changed bool) {
	for r := range changes.Configs() {
		switch {
		case r.Type == metadata.ResourceBroker && (r.Name == "" || r.Name == n.idText()):
			changed = true
		case r.Type == metadata.ResourceTopic:
			for _, note := range config.StoredTopic(overrides(image, metadata.ResourceTopic, r.Name)) {
				n.tell("config of a topic", note, "topic", r.Name)
			}
		}
	}
	if !changed {
		return false
	}
	old := n.config.Load()
	c, notes := n.static.WithDynamic(
		overrides(image, metadata.ResourceBroker, ""), overrides(image, metadata.ResourceBroker, n.idText()))
	for _, note := range notes {
		n.tell("dynamic config", note)
	}
	for _, note := range c.DynamicWithoutEffect() {
		n.tell("configuration has no effect here", note)
	}
	for _, ch := range old.Changed(c) {
		n.log.Info("dynamic configuration changed", "key", ch.Key, "value", ch.Value, "was", ch.Was, "source", ch.Source.String())
	}
	n.config.Store(c)
	n.configure(c)
	return true
}

// maxTold bounds the memory of what was said; after that it is said again.
const maxTold = 10_000

// tell logs a notice, once for the same key and value.
func (n *Node) tell(message string, note config.Notice, where ...any) {
	id := message + "\x00" + note.Key + "\x00" + note.Value + "\x00" + note.Text
	if len(where) > 1 {
		id += "\x00" + where[1].(string)
	}
	if n.told[id] {
		return
	}
	if n.told == nil || len(n.told) >= maxTold {
		n.told = make(map[string]bool)
	}
	n.told[id] = true
	n.log.Warn(message, append(where, "key", note.Key, "value", note.Value, "reason", note.Text)...)
}

// configure gives running parts what may change while they run. Topics' defaults are configureTopics' business; what
// reads n.Config() each time needs nothing.
func (n *Node) configure(c *config.Broker) {
	if n.server != nil {
		n.server.SetLimits(connectionLimits(c))
	}
	for _, d := range n.dirs {
		d.SetProducerExpiration(c.Millis("producer.id.expiration.ms"))
	}
	if n.disks != nil {
		n.disks.SetRecoveryThreads(int(c.Int("num.recovery.threads.per.data.dir")))
		n.disks.SetCleaner(cleanerOptions(c))
	}
	if n.serving {
		n.reconcileListeners(context.Background(), c)
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

// serveListeners lets clients in: on the listeners of the file, as the dynamic configs have it.
func (n *Node) serveListeners(ctx context.Context) error {
	n.applyMu.Lock()
	defer n.applyMu.Unlock()
	n.listening = make(map[string]config.Endpoint)
	for _, e := range n.static.Listeners {
		if !n.isControllerListener(e.Listener) {
			n.listening[e.Listener] = e
		}
	}
	n.serving = true
	n.reconcileListeners(ctx, n.config.Load())
	var names []string
	for name := range n.listening {
		names = append(names, name)
	}
	return n.server.Serve(names...)
}

// reconcileListeners opens and closes brokers' listeners until they are those of c. As in Kafka one that stays keeps its
// address until the next start. One that cannot be bound is named and the node serves on: its clients have the others.
func (n *Node) reconcileListeners(ctx context.Context, c *config.Broker) {
	wanted := make(map[string]bool)
	for _, e := range c.Listeners {
		if n.isControllerListener(e.Listener) {
			continue
		}
		wanted[e.Listener] = true
		if _, ok := n.listening[e.Listener]; ok {
			continue
		}
		if err := n.server.Add(ctx, n.listener(e)); err != nil {
			n.log.Error("listener of a dynamic config could not be opened", "listener", e.Listener, "error", err)
			continue
		}
		n.listening[e.Listener] = e
	}
	for name := range n.listening {
		if wanted[name] {
			continue
		}
		if err := n.server.Remove(name); err != nil {
			n.log.Error("listener could not be closed", "listener", name, "error", err)
		}
		delete(n.listening, name)
	}
}
