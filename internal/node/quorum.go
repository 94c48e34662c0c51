package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/lifecycle"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/uplink"
)

func newRand() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }

// randomUUID draws an id that is neither reserved nor begins with a dash.
func randomUUID() kafka.UUID {
	for {
		if u, ok := kafka.RandomUUID(randomBytes()); ok {
			return u
		}
	}
}

func (n *Node) openQuorum(context.Context) error {
	if err := n.metadataLost(); err != nil {
		return err
	}
	if n.static.IsController {
		if err := checkBootstrap(n.opts.FS, n.static.MetadataLogDir); err != nil {
			return n.metadataError(err)
		}
	}
	if err := n.nameDirs(); err != nil {
		return err
	}
	o := quorumOptions(n.static, n.identity)
	for i := range o.Endpoints {
		if o.Endpoints[i].Host == "" {
			o.Endpoints[i].Host = n.hostName
		}
	}
	found := level{from: "the metadata log in " + n.static.MetadataLogDir}
	o.Survey, o.Admit = found.note, found.check
	o.FS, o.Rand, o.Log, o.Peer = n.opts.FS, newRand(), n.log, n.peers()
	o.OpenLog = func(_ string, recoveryPoint kafka.Offset) (raftloop.Log, error) {
		for _, d := range n.dirs {
			if d.Path() == n.static.MetadataLogDir {
				synced := d.RecoveryPoint(metadataPartition)
				l, notes, err := raftloop.OpenStorageLog(d.Dir, &o, recoveryPoint, time.Now())
				for _, note := range notes {
					n.log.Warn("metadata log", "note", note)
				}
				if err == nil {
					if err = n.shortened(l, synced); err != nil {
						return nil, errors.Join(err, l.Close())
					}
				}
				return l, err
			}
		}
		return nil, errors.New("the metadata log's directory is not open")
	}
	var err error
	n.quorum, err = raftloop.Open(o, time.Now())
	return n.metadataError(err)
}

func (n *Node) closeQuorum(ctx context.Context) error {
	if n.loader != nil { // else its loop never ran, and there is nobody to resign
		n.quorum.Shutdown(ctx)
	}
	err := n.quorum.Close()
	n.closePeers()
	return err
}

// startMetadata begins to follow the metadata log: from here on images come.
func (n *Node) startMetadata(context.Context) error {
	n.loader = newLoader(n.log)
	n.loader.apply = n.apply
	n.loader.snapshots = n.quorum.CreateSnapshot
	n.loader.start()
	cb := raftloop.Callbacks{Commit: n.loader.commit, Snapshot: n.loader.snapshot, SnapshotDue: n.loader.snapshotDue}
	if n.control != nil {
		n.control.follow(&cb)
	}
	n.quorum.Start(cb)
	go func() {
		select {
		case err := <-n.quorum.Failed():
			n.fail(err)
		case <-n.loader.done:
		}
	}()
	return nil
}

func (n *Node) stopMetadata(context.Context) error {
	n.loader.close()
	return nil
}

// askController sends a request to whoever leads the quorum now.
func (n *Node) askController(req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error)) {
	s := n.quorum.Status()
	if s.Leader == kafka.NoBroker || len(s.LeaderEndpoint) == 0 {
		done(nil, uplink.ErrNoController)
		return
	}
	e := s.LeaderEndpoint[0]
	for _, x := range s.LeaderEndpoint {
		if x.Listener == n.controllerListener() {
			e = x
		}
	}
	n.peers().Send(raft.Node{ID: s.Leader, Host: e.Host, Port: e.Port}, req, timeout, done)
}

func (n *Node) controllerListener() string {
	if len(n.static.ControllerListenerNames) == 0 {
		return ""
	}
	return n.static.ControllerListenerNames[0]
}

// register sends this broker's registration until the controller takes it, and waits until this node has read the metadata
// up to it.
func (n *Node) register(ctx context.Context) error {
	c := n.static
	previous := kafka.BrokerEpoch(-1)
	for i, d := range n.dirs {
		clean, epoch := d.Clean()
		if !clean || i > 0 && epoch != previous {
			previous = -1
			break
		}
		previous = epoch
	}
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID = int32(n.id), n.identity.clusterID, randomUUID()
	req.PreviousBrokerEpoch = int64(previous)
	if rack := c.Value("broker.rack"); !rack.Null && rack.Str != "" {
		req.Rack = &rack.Str
	}
	for _, e := range c.AdvertisedBroker {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Listener, n.advertisedHost(e), n.boundPort(e), protocolNumbers[e.Protocol]
		req.Listeners = append(req.Listeners, l)
	}
	for _, f := range supportedFeatures(c.Bool("unstable.feature.versions.enable")) {
		rf := kmsg.NewBrokerRegistrationRequestFeature()
		rf.Name, rf.MinSupportedVersion, rf.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, rf)
	}
	for _, path := range c.LogDirs {
		if id := n.identity.dirs[path]; !id.IsZero() {
			req.LogDirs = append(req.LogDirs, id)
		}
	}
	u := uplink.New(uplink.Options{
		Registration: req,
		Lifecycle: lifecycle.Options{
			HeartbeatInterval:   c.Millis("broker.heartbeat.interval.ms"),
			SessionTimeout:      c.Millis("broker.session.timeout.ms"),
			RegistrationTimeout: c.Millis("initial.broker.registration.timeout.ms"),
			DirFailureTimeout:   c.Millis("log.dir.failure.timeout.ms"),
			RetryBackoff:        20 * time.Millisecond,
		},
		RequestTimeout: c.Millis("controller.socket.timeout.ms"),
		Controller:     n.askController,
		Cordoned:       n.cordoned,
		Log:            n.log,
	})
	u.Start()
	n.applyMu.Lock() // images come in already
	n.uplink = u
	n.tellApplied(n.Image())
	n.applyMu.Unlock()
	go n.watchUplink()
	return n.uplink.Await(ctx, lifecycle.Recovery)
}

// cordoned are the ids of the directories in cordoned.log.dirs; nil while the cluster's metadata.version knows no such thing.
func (n *Node) cordoned() []kafka.DirectoryID {
	if !n.Image().MetadataVersion().Facts().CordonedLogDirsSupported {
		return nil
	}
	ids := []kafka.DirectoryID{}
	for _, path := range n.Config().CordonedLogDirs {
		if id := n.identity.dirs[path]; !id.IsZero() {
			ids = append(ids, id)
		}
	}
	return ids
}

// watchUplink tells when the broker can't go on.
func (n *Node) watchUplink() {
	for {
		changed, err := n.uplink.Err()
		if err != nil {
			n.fail(err)
			return
		}
		if s, _ := n.uplink.State(); s == lifecycle.ShuttingDown {
			return
		}
		select {
		case <-changed:
		case <-n.uplink.Done():
			return
		}
	}
}

func (n *Node) unregister(context.Context) error {
	n.uplink.Close()
	return nil
}

// supportedFeatures are the features that this program knows, by name.
func supportedFeatures(unstable bool) []metadata.SupportedFeature {
	var out []metadata.SupportedFeature
	for _, name := range append([]string{metadata.MetadataVersionFeature}, metadata.FeatureNames()...) {
		if lo, hi, ok := metadata.SupportedRange(name, unstable); ok {
			out = append(out, metadata.SupportedFeature{Name: name, Min: lo, Max: hi})
		}
	}
	return out
}
