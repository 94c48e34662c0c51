package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// errDuplicate is Kafka's answer to a second process with a broker's id.
var errDuplicate = kerr.DuplicateBrokerRegistration.With("Another broker is registered with that broker id. If the broker was recently " +
	"restarted this should self-resolve once the heartbeat manager expires the broker's session.")

// BrokerRegistration is API 62, versions 0 to 4: a broker's process makes itself known and gets its epoch.
//
// Kafka refuses a new process while the session of the old one lasts. Here one that names exactly the same log directories
// takes over at once: it holds their locks, so the old process is dead. So does the broker of this very process, which
// nobody has heard of since the process started. In all other cases (before metadata.version 3.7 directories aren't
// known) Kafka's rule stands.
func (c *Controller) BrokerRegistration(x Context, req *kmsg.BrokerRegistrationRequest) Result {
	resp := req.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	records, epoch, err := c.registerBroker(&x, req)
	if err != nil {
		return Result{Response: ErrorResponse(req, err)}
	}
	resp.BrokerEpoch = epoch
	return Result{Records: records, Response: resp}
}

func (c *Controller) registerBroker(x *Context, req *kmsg.BrokerRegistrationRequest) ([]Record, int64, error) {
	if req.ClusterID != c.opt.ClusterID {
		return nil, 0, kerr.InconsistentClusterID.With("Expected cluster ID %s, but got cluster ID %s", c.opt.ClusterID, req.ClusterID)
	}
	img := c.Image()
	facts := img.MetadataVersion().Facts()
	id := kafka.BrokerID(req.BrokerID)
	old := img.Broker(id)
	same := old != nil && old.Incarnation == kafka.UUID(req.IncarnationID)
	restarted := old != nil && (sameDirs(old.LogDirs, req.LogDirs) || id == c.opt.NodeID && !c.heart.get(id).heard)
	if old != nil && !same && c.hasSession(old, x) && !restarted {
		return nil, 0, errDuplicate
	}
	if req.IsMigratingZkBroker {
		return nil, 0, kerr.BrokerIDNotRegistered.With("Controller does not support registering ZK brokers.")
	}
	var dirs []kafka.DirectoryID
	if facts.DirectoryAssignmentSupported {
		var err error
		if dirs, err = c.checkLogDirs(id, req.LogDirs); err != nil {
			return nil, 0, err
		}
	}
	r := schema.NewRegisterBrokerRecord()
	r.BrokerID, r.IncarnationID, r.Rack, r.LogDirs = req.BrokerID, req.IncarnationID, req.Rack, dirs
	for _, l := range req.Listeners {
		r.EndPoints = append(r.EndPoints, schema.RegisterBrokerRecordBrokerEndpoint{Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol})
	}
	sawVersion := false
	for _, f := range req.Features {
		sawVersion = sawVersion || f.Name == metadata.MetadataVersionFeature
		if err := c.checkFeature(f.Name, f.MinSupportedVersion, f.MaxSupportedVersion); err != nil {
			return nil, 0, err
		}
		r.Features = append(r.Features, schema.RegisterBrokerRecordBrokerFeature{Name: f.Name, MinSupportedVersion: f.MinSupportedVersion, MaxSupportedVersion: f.MaxSupportedVersion})
	}
	if !sawVersion {
		return nil, 0, kerr.InvalidRegistration.With("Request features do not contain 'metadata.version'")
	}
	for name, level := range img.Features() {
		if level != 0 && !slices.ContainsFunc(req.Features, func(f kmsg.BrokerRegistrationRequestFeature) bool { return f.Name == name }) {
			if err := c.checkFeature(name, 0, 0); err != nil {
				return nil, 0, err
			}
		}
	}
	var records []Record
	if same {
		r.Fenced, r.InControlledShutdown, r.BrokerEpoch = old.Fenced, old.ShuttingDown, int64(old.Epoch)
	} else {
		stored := int64(-2)
		if old != nil {
			stored = int64(old.Epoch)
		}
		records = c.brokerShutdown(records, id, req.PreviousBrokerEpoch == stored)
		r.BrokerEpoch = c.next
	}
	return append(records, c.version(r)), r.BrokerEpoch, nil
}

// hasSession tells whether an unfenced broker was heard within its session.
func (c *Controller) hasSession(b *metadata.Broker, x *Context) bool {
	p := c.heart.get(b.ID)
	return !b.Fenced && p != nil && !x.Now.After(p.last.Add(c.opt.SessionTimeout))
}

func sameDirs(a []kafka.DirectoryID, b [][16]byte) bool {
	if len(a) == 0 || len(a) != len(b) {
		return false
	}
	for _, id := range b {
		if !slices.Contains(a, kafka.DirectoryID(id)) {
			return false
		}
	}
	return true
}

func (c *Controller) checkLogDirs(id kafka.BrokerID, given [][16]byte) ([]kafka.DirectoryID, error) {
	if len(given) == 0 {
		return nil, kerr.InvalidRegistration.With("No directories specified in request")
	}
	dirs := make([]kafka.DirectoryID, len(given))
	for i, d := range given {
		dirs[i] = d
		if dirs[i].IsReserved() {
			return nil, kerr.InvalidRegistration.With("Reserved directory ID in request")
		}
	}
	for i, d := range dirs {
		if slices.Contains(dirs[:i], d) {
			return nil, kerr.InvalidRegistration.With("Duplicate directory ID in request")
		}
	}
	for b := range c.Image().Brokers() {
		if b.ID == id {
			continue
		}
		for _, d := range dirs {
			if slices.Contains(b.LogDirs, d) {
				return nil, kerr.InvalidRegistration.With("Broker %d is already registered with directory %s", b.ID, d)
			}
		}
	}
	return dirs, nil
}

// checkFeature refuses a broker that doesn't know the level at which the cluster is.
func (c *Controller) checkFeature(name string, lo, hi int16) error {
	level := c.Image().FeatureLevel(name)
	if level < lo || level > hi {
		return kerr.UnsupportedVersion.With("Unable to register because the broker does not support finalized version %d of %s. The broker wants a version between %d and %d, inclusive.", level, name, lo, hi)
	}
	return nil
}

// BrokerHeartbeat is API 63, versions 0 to 2: it keeps the session, unfences a broker that has caught up, and takes one
// out of service.
func (c *Controller) BrokerHeartbeat(x Context, req *kmsg.BrokerHeartbeatRequest) Result {
	resp := req.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	if err := c.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch); err != nil {
		return Result{Response: ErrorResponse(req, err)}
	}
	id := kafka.BrokerID(req.BrokerID)
	b, p := c.registration(id), c.heart.get(id)
	caughtUp := req.CurrentMetadataOffset >= p.recorded
	next := c.nextState(b, p, req, caughtUp)
	var records []Record
	switch next {
	case stateFenced, stateShutdownNow:
		if !b.Fenced {
			records = c.fenceBroker(records, b)
		}
	case stateUnfenced:
		if b.Fenced {
			records = c.unfenceBroker(records, b)
		}
	case stateControlledShutdown:
		if p.shutdown < 0 {
			records = c.controlledShutdown(records, b)
		}
	}
	p.last, p.offset, p.heard = x.Now, req.CurrentMetadataOffset, true
	facts := c.Image().MetadataVersion().Facts()
	if facts.DirectoryAssignmentSupported {
		records = c.directoriesOffline(records, b, req.OfflineLogDirs)
	}
	if facts.CordonedLogDirsSupported && req.CordonedLogDirs != nil {
		records = c.directoriesCordoned(records, b, req.CordonedLogDirs)
	}
	resp.IsCaughtUp = caughtUp
	resp.IsFenced = next == stateFenced || next == stateShutdownNow
	resp.ShouldShutdown = next == stateShutdownNow
	res := Result{Records: records, Response: resp}
	if next == stateControlledShutdown {
		res.Appended = func(last kafka.Offset) {
			if q := c.heart.get(id); q == p && q.shutdown < 0 {
				q.shutdown = last
			}
		}
	}
	return res
}

type brokerState int8

const (
	stateFenced brokerState = iota
	stateUnfenced
	stateControlledShutdown
	stateShutdownNow
)

func (c *Controller) nextState(b *metadata.Broker, p *pulse, req *kmsg.BrokerHeartbeatRequest, caughtUp bool) brokerState {
	switch {
	case p.shutdown >= 0:
		// It may stop when it leads nothing, and every other broker knows that.
		if c.leadsAny(b.ID) || p.shutdown > c.heart.lowestActive(c.Image()) {
			return stateControlledShutdown
		}
		return stateShutdownNow
	case b.Fenced:
		switch {
		case req.WantShutdown:
			return stateShutdownNow
		case !req.WantFence && caughtUp:
			return stateUnfenced
		}
		return stateFenced
	case req.WantFence && req.WantShutdown:
		return stateShutdownNow
	case req.WantFence:
		return stateFenced
	case req.WantShutdown && c.leadsAny(b.ID):
		return stateControlledShutdown
	case req.WantShutdown:
		return stateShutdownNow
	}
	return stateUnfenced
}

func (c *Controller) leadsAny(id kafka.BrokerID) bool {
	for t := range c.Image().Topics() {
		for _, p := range t.Partitions() {
			if p.Leader == id {
				return true
			}
		}
	}
	return false
}

// fenceBroker takes a broker out of every ISR and out of service.
func (c *Controller) fenceBroker(records []Record, b *metadata.Broker) []Record {
	records = c.updateLeaders(records, leaderUpdate{remove: b.ID, add: kafka.NoBroker, unclean: kafka.NoBroker}, inISR(b.ID))
	r := schema.NewBrokerRegistrationChangeRecord()
	r.BrokerID, r.BrokerEpoch, r.Fenced = int32(b.ID), int64(b.Epoch), 1
	return append(records, c.version(r))
}

// unfenceBroker puts a broker in service and lets it lead what has no leader.
func (c *Controller) unfenceBroker(records []Record, b *metadata.Broker) []Record {
	r := schema.NewBrokerRegistrationChangeRecord()
	r.BrokerID, r.BrokerEpoch, r.Fenced = int32(b.ID), int64(b.Epoch), -1
	records = append(records, c.version(r))
	return c.updateLeaders(records, leaderUpdate{remove: kafka.NoBroker, add: b.ID, unclean: kafka.NoBroker}, leaderless)
}

func (c *Controller) controlledShutdown(records []Record, b *metadata.Broker) []Record {
	if !b.ShuttingDown {
		r := schema.NewBrokerRegistrationChangeRecord()
		r.BrokerID, r.BrokerEpoch, r.InControlledShutdown = int32(b.ID), int64(b.Epoch), 1
		records = append(records, c.version(r))
	}
	return c.updateLeaders(records, leaderUpdate{remove: b.ID, add: kafka.NoBroker, unclean: kafka.NoBroker}, inISR(b.ID))
}

// brokerShutdown is what must be done when a broker comes back as a new process. If it went down uncleanly its log may
// lack what was acknowledged, so that it is no eligible leader any more (KIP-966).
func (c *Controller) brokerShutdown(records []Record, id kafka.BrokerID, clean bool) []Record {
	if !c.Image().ELREnabled() || clean {
		return c.updateLeaders(records, leaderUpdate{remove: id, add: kafka.NoBroker, unclean: kafka.NoBroker}, inISR(id))
	}
	u := leaderUpdate{remove: kafka.NoBroker, add: kafka.NoBroker, unclean: id}
	records = c.updateLeaders(records, u, inISR(id))
	return c.updateLeaders(records, u, inELR(id))
}

// UnregisterBroker is API 64, version 0.
func (c *Controller) UnregisterBroker(x Context, req *kmsg.UnregisterBrokerRequest) Result {
	b := c.registration(kafka.BrokerID(req.BrokerID))
	if b == nil {
		return Result{Response: ErrorResponse(req, kerr.BrokerIDNotRegistered.With("Broker ID %d is not currently registered", req.BrokerID))}
	}
	u := leaderUpdate{remove: b.ID, add: kafka.NoBroker, unclean: kafka.NoBroker}
	records := c.updateLeaders(nil, u, inISR(b.ID))
	records = c.updateLeaders(records, u, inELR(b.ID))
	r := &schema.UnregisterBrokerRecord{BrokerID: int32(b.ID), BrokerEpoch: int64(b.Epoch)}
	return Result{Records: append(records, c.version(r)), Response: req.ResponseKind()}
}
