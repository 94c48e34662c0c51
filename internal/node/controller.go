package node

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/api"
	"github.com/highwater/highwater/internal/controller"
	"github.com/highwater/highwater/internal/controllerloop"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/schema"
)

// controllerSide is what a node with the controller role has more.
type controllerSide struct {
	n           *Node
	loop        *controllerloop.Loop
	incarnation kafka.UUID
	bootstrap   []controller.Record

	mu      sync.Mutex // guards the registration's state
	asking  bool
	askedAt time.Time
}

// registerAgain is how long a controller waits before it registers again.
const registerAgain = time.Second

func (n *Node) startController(context.Context) error {
	records, source, ok, err := raftloop.ReadBootstrap(n.opts.FS, n.static.MetadataLogDir)
	if err != nil {
		return err
	}
	c := &controllerSide{n: n, incarnation: randomUUID()}
	for _, value := range records {
		r, version, err := schema.ReadFramed(schema.LogMetadata, value)
		if err != nil {
			return err
		}
		c.bootstrap = append(c.bootstrap, controller.Record{Message: r, Version: version})
	}
	if ok {
		n.log.Debug("read the first checkpoint", "file", source, "records", len(records))
	}
	o := controller.OptionsOf(n.static)
	o.ClusterID, o.Rand = n.identity.clusterID, newRand()
	o.KRaftVersion = func() int16 { return n.quorum.Status().KRaftVersion }
	o.CheckKRaftVersion = n.quorum.CheckKRaftVersion
	for _, v := range n.static.Voters {
		o.QuorumNodes = append(o.QuorumNodes, kafka.BrokerID(v.ID))
	}
	c.loop = controllerloop.New(controllerloop.Options{Controller: o, Log: n.quorum, Logger: n.log, Fatal: n.fail})
	c.loop.Start()
	n.control = c
	return n.server.Serve(n.static.ControllerListenerNames...)
}

func (n *Node) stopController(context.Context) error {
	n.control.loop.Close()
	return nil
}

// follow lets the controller hear of leadership and commits, after the loader has.
func (c *controllerSide) follow(cb *raftloop.Callbacks) {
	commit := cb.Commit
	cb.Commit = func(b raftloop.Batch) {
		commit(b)
		c.loop.Committed(b.LastOffset)
	}
	cb.Leader = func(l raftloop.LeaderChange) {
		to := controllerloop.Leadership{Epoch: l.Epoch, Local: l.Local}
		if l.Local {
			to.Image, to.Empty = c.n.loader.committed()
			to.Bootstrap, to.NextOffset = c.bootstrap, c.n.quorum.Status().LogEnd
		}
		c.loop.Lead(to)
	}
}

// applied registers this controller with the active one, once the cluster's metadata.version has a record for that (KIP-919).
func (c *controllerSide) applied(image *metadata.Image) {
	if image.MetadataVersion().Facts().RegisterControllerRecordVersion < 0 {
		return
	}
	now := time.Now()
	c.mu.Lock()
	r := image.Controller(c.n.id)
	if r != nil && r.Incarnation == c.incarnation || c.asking || now.Sub(c.askedAt) < registerAgain {
		c.mu.Unlock()
		return
	}
	c.asking, c.askedAt = true, now
	c.mu.Unlock()

	req := kmsg.NewPtrControllerRegistrationRequest()
	req.ControllerID, req.IncarnationID = int32(c.n.id), c.incarnation
	for _, e := range c.n.static.AdvertisedController {
		l := kmsg.NewControllerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Listener, c.n.advertisedHost(e), c.n.boundPort(e), protocolNumbers[e.Protocol]
		req.Listeners = append(req.Listeners, l)
	}
	for _, f := range supportedFeatures(c.n.static.Bool("unstable.feature.versions.enable")) {
		rf := kmsg.NewControllerRegistrationRequestFeature()
		rf.Name, rf.MinSupportedVersion, rf.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, rf)
	}
	c.n.askController(req, c.n.static.Millis("controller.quorum.request.timeout.ms"), func(m kmsg.Response, err error) {
		if resp, ok := m.(*kmsg.ControllerRegistrationResponse); ok && err == nil {
			err = kerr.ForCode(resp.ErrorCode)
		}
		if err != nil {
			c.n.log.Debug("controller is not registered yet", "error", err)
		}
		c.mu.Lock()
		c.asking = false
		c.mu.Unlock()
	})
}

// controllerAPI is what the handlers of a controller's listeners work with.
func (n *Node) controllerAPI() *api.Controller {
	return &api.Controller{
		ID: n.id, ClusterID: n.identity.clusterID, Image: n.Image, Config: n.Config,
		Decide: func(req kmsg.Request, direct bool, deadline time.Time, done func(kmsg.Response, error)) {
			n.control.loop.Decide(req, direct, deadline, done)
		},
		Raft: func(listener string, req kmsg.Request, answer func(kmsg.Response)) {
			n.quorum.Handle(listener, req, answer)
		},
		Leader:         func() kafka.BrokerID { return n.quorum.Status().Leader },
		Loggers:        n.opts.Loggers,
		RequestTimeout: n.static.Millis("request.timeout.ms"),
	}
}
