package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/highwater/highwater/internal/api"
	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/server"
)

// bind makes the tables of handlers and binds every listener's port, so that a port in use ends the start at once. Nobody is
// served yet.
func (n *Node) bind(ctx context.Context) error {
	c := n.static
	cfg := server.Config{
		MaxRequestBytes: int32(c.Int("socket.request.max.bytes")),
		QueuedBytes:     c.Int("queued.max.request.bytes"),
		SendBuffer:      int(c.Int("socket.send.buffer.bytes")),
		ReceiveBuffer:   int(c.Int("socket.receive.buffer.bytes")),
		Backlog:         int(c.Int("socket.listen.backlog.size")),
		IdleTime:        c.Millis("connections.max.idle.ms"),
		Limits:          connectionLimits(c),
	}
	for _, e := range c.Listeners {
		cfg.Listeners = append(cfg.Listeners, n.listener(e))
	}
	for _, e := range append(slices.Clone(c.AdvertisedBroker), c.AdvertisedController...) {
		if e.Host == "" && n.hostName == "" {
			var err error
			if n.hostName, err = server.HostName(ctx); err != nil {
				return fmt.Errorf("find this machine's name, which listener %s advertises; set advertised.listeners: %w", e.Listener, err)
			}
		}
	}
	s, err := server.New(cfg, n.log)
	if err != nil {
		return err
	}
	n.server = s
	if err := s.Listen(ctx); err != nil {
		n.server = nil
		var taken *server.InUseError
		if errors.As(err, &taken) {
			return &StartError{
				Class: "org.apache.kafka.common.KafkaException", Fatal: "Unable to start acceptor for " + taken.Listener,
				Text: fmt.Sprintf("Socket server failed to bind to %s: Address already in use.", taken.Address),
				Hint: fmt.Sprintf("Stop the process that listens there, or give %s another port in listeners.", taken.Listener),
				Err:  err,
			}
		}
		return err
	}
	return nil
}

// listener is one entry of listeners with its table of handlers.
func (n *Node) listener(e config.Endpoint) server.Listener {
	unstable := n.static.Bool("unstable.api.versions.enable")
	versions := func(compare bool) *api.APIVersions {
		return &api.APIVersions{ClusterID: n.identity.clusterID, NodeID: n.id, Compare: compare, Features: n.features}
	}
	l := server.Listener{Name: e.Listener, Host: e.Host, Port: e.Port, Controller: n.isControllerListener(e.Listener), Protected: e.Listener == n.static.InterBrokerListener}
	if l.Controller {
		h := n.controllerAPI()
		v := versions(false)
		h.Table = api.NewTable(api.ControllerListener, unstable, h.Routes(v.Handle)...)
		v.Table, l.Table = h.Table, h.Table
		return l
	}
	v := versions(true)
	l.Table = api.NewTable(api.BrokerListener, unstable, n.brokerAPI().Routes(v.Handle)...)
	v.Table = l.Table
	return l
}

func (n *Node) unbind(ctx context.Context) error {
	drain, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	return n.server.Stop(drain)
}

// boundPort is an endpoint's port; where the configuration says 0, the one that the OS chose.
func (n *Node) boundPort(e config.Endpoint) uint16 {
	if e.Port == 0 {
		if a, ok := n.server.Addr(e.Listener); ok {
			return a.Port()
		}
	}
	return uint16(e.Port)
}

// advertisedHost is what others are told of an endpoint: its host or, if it listens everywhere and nothing else is
// advertised, this machine's name.
func (n *Node) advertisedHost(e config.Endpoint) string {
	if e.Host == "" {
		return n.hostName
	}
	return e.Host
}

func connectionLimits(c *config.Broker) server.Limits {
	l := server.Limits{
		Connections:   int(c.Int("max.connections")),
		PerIP:         int(c.Int("max.connections.per.ip")),
		PerIPOverride: make(map[string]int),
		CreationRate:  int(c.Int("max.connection.creation.rate")),
		Listeners:     make(map[string]server.ListenerLimits),
	}
	for _, e := range c.Listeners {
		l.Listeners[e.Listener] = server.ListenerLimits{
			Connections: listenerLimit(c, e.Listener, "max.connections"), CreationRate: listenerLimit(c, e.Listener, "max.connection.creation.rate"),
		}
	}
	if l.PerIP == 0 {
		l.PerIP = -1 // Kafka's 0: nobody but those with an override
	}
	for host, most := range c.MaxConnectionsPerIPOverrides() {
		l.PerIPOverride[host] = int(most)
	}
	return l
}

// listenerLimit is what listener.name.X.key says; 0 if it isn't set, for then the key's own value bounds all listeners
// together.
func listenerLimit(c *config.Broker, listener, key string) int {
	if _, ok := c.WithPrefix("listener.name." + strings.ToLower(listener) + ".")[key]; !ok {
		return 0
	}
	v, err := c.ForListener(listener, key)
	if err != nil { // of the file: the dynamic ones were checked
		return 0
	}
	return int(v.Int)
}

// features are what ApiVersions tells.
func (n *Node) features() api.Features {
	image := n.Image()
	f := api.Features{Epoch: image.Provenance().Offset}
	for _, s := range supportedFeatures(n.static.Bool("unstable.feature.versions.enable")) {
		lo := s.Min
		if s.Name != "metadata.version" && lo > 0 {
			lo = 0
		}
		f.Supported = append(f.Supported, api.SupportedFeature{Name: s.Name, Min: lo, Max: s.Max})
	}
	for name, level := range image.Features() {
		f.Finalized = append(f.Finalized, api.FinalizedFeature{Name: name, Level: level})
	}
	if level := n.quorum.Status().KRaftVersion; level > 0 { // stands in the quorum's own records
		f.Finalized = append(f.Finalized, api.FinalizedFeature{Name: metadata.KRaftVersionFeature, Level: level})
	}
	return f
}

// ticker calls something at an interval on one goroutine.
type ticker struct {
	quit chan struct{}
	done chan struct{}
}

func (t *ticker) start(every time.Duration, f func(now time.Time)) {
	t.quit, t.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(t.done)
		tick := time.NewTicker(max(every, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-t.quit:
				return
			case now := <-tick.C:
				f(now)
			}
		}
	}()
}

func (t *ticker) stop() {
	if t.quit == nil {
		return
	}
	close(t.quit)
	<-t.done
}
