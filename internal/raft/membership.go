package raft

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// voterChange is the one change of the voter set that may be under way (KIP-853): from the request until its Voters
// record is committed.
type voterChange struct {
	id      uint64 // of the request; 0 if it was answered already
	kind    changeKind
	key     ReplicaKey
	voter   Voter
	version int16
	ack     bool         // answer when committed, else when appended
	corr    uint64       // of the ApiVersions that asks the new voter what it knows; 0 if not asked
	last    kafka.Offset // of the Voters record; -1 before it is appended
	until   time.Time
}

type changeKind int8

const (
	addVoter changeKind = iota
	removeVoter
)

func (r *Raft) pendingChange() *voterChange {
	if r.lead == nil {
		return nil
	}
	return r.lead.change
}

func (r *Raft) answerChange(c *voterChange, err *kerr.Error, text *string) {
	if c.id == 0 {
		return
	}
	if err != nil && text == nil && err.Text != "" {
		text = &err.Text
	}
	switch c.kind {
	case addVoter:
		m := kmsg.NewPtrAddRaftVoterResponse()
		m.Version, m.ErrorCode, m.ErrorMessage = c.version, code(err), text
		r.reply(c.id, m)
	case removeVoter:
		m := kmsg.NewPtrRemoveRaftVoterResponse()
		m.Version, m.ErrorCode, m.ErrorMessage = c.version, code(err), text
		r.reply(c.id, m)
	}
	c.id = 0
}

func (r *Raft) endChange(err *kerr.Error) {
	c := r.lead.change
	r.lead.change = nil
	r.answerChange(c, err, nil)
}

func (r *Raft) expireChange(now time.Time) {
	c := r.lead.change
	if c == nil {
		return
	}
	if !now.Before(c.until) {
		r.endChange(kerr.RequestTimedOut)
		return
	}
	r.at(c.until)
}

func (r *Raft) changeCommitted(time.Time) {
	if c := r.lead.change; c != nil && c.last >= 0 && r.highWatermark > c.last {
		r.endChange(nil)
	}
}

// mayChangeVoters is what all changes need: one at a time, in a leader whose epoch began for good, at kraft.version 1.
func (r *Raft) mayChangeVoters(verb string) *kerr.Error {
	if r.lead.change != nil {
		return kerr.RequestTimedOut.With("Request timed out waiting for leader to handle previous voter change request")
	}
	if r.highWatermark <= r.lead.epochStart {
		return kerr.RequestTimedOut.With("Request timed out waiting for leader to establish HWM and fence previous voter changes")
	}
	if r.KRaftVersion() < 1 {
		return kerr.UnsupportedVersion.With("Cluster doesn't support %s voter because the kraft.version feature is %d", verb, r.KRaftVersion())
	}
	if at := r.log.votersOffset(); at >= r.highWatermark {
		return kerr.RequestTimedOut.With("Request timed out waiting for voters to commit the latest voter change at Optional[%d] with HWM %d", at, r.highWatermark)
	}
	return nil
}

// forChange is why a request that adds or removes a voter is not looked at: it is for another cluster or leader, or names no voter.
func (r *Raft) forChange(clusterID *string, voter ReplicaKey, request string) *kerr.Error {
	if !r.validClusterID(clusterID) {
		return kerr.InconsistentClusterID.With("The given id \"%s\" doesn't match the cluster id \"%s\"", *clusterID, r.cfg.ClusterID)
	}
	if err := r.forLeader(r.epoch); err != nil {
		return err
	}
	if voter.ID < 0 || voter.Directory.IsZero() {
		return kerr.InvalidRequest.With("%s voter request didn't include a valid voter", request)
	}
	return nil
}

func (r *Raft) handleAddVoter(now time.Time, id uint64, m *kmsg.AddRaftVoterRequest) {
	c := &voterChange{id: id, kind: addVoter, version: m.Version, ack: m.Version < 1 || m.AckWhenCommitted, last: -1}
	c.key = ReplicaKey{kafka.BrokerID(m.VoterID), m.VoterDirectoryID}
	if err := r.forChange(m.ClusterID, c.key, "Add"); err != nil {
		r.answerChange(c, err, nil)
		return
	}
	c.voter.Key = c.key
	for _, l := range m.Listeners {
		c.voter.Endpoints = append(c.voter.Endpoints, Endpoint{l.Name, l.Host, l.Port})
	}
	if len(c.voter.Endpoints) == 0 {
		r.answerChange(c, kerr.InvalidRequest.With("Add voter request didn't include the endpoints for the voter"), nil)
		return
	}
	at, ok := endpointOf(c.voter.Endpoints, r.cfg.Listener)
	if !ok {
		r.answerChange(c, kerr.InvalidRequest.With("Add voter request didn't include the default listener: %s", r.cfg.Listener), nil)
		return
	}
	if err := r.mayChangeVoters("adding"); err != nil {
		r.answerChange(c, err, nil)
		return
	}
	if _, ok := r.Voters().Get(c.key.ID); ok {
		r.answerChange(c, kerr.DuplicateVoter.With("The voter id for %v is already part of the set of voters %v.", c.key, r.Voters()), nil)
		return
	}
	// What levels of kraft.version it knows only itself can tell.
	n := Node{c.key.ID, at.Host, at.Port}
	if !r.send(now, n, func() kmsg.Request { return kmsg.NewPtrApiVersionsRequest() }) {
		r.answerChange(c, kerr.RequestTimedOut.With("New voter %v is not ready to receive requests", c.key), nil)
		return
	}
	c.corr = r.corr
	c.until = now.Add(r.cfg.RequestTimeout)
	r.lead.change = c
}

func (r *Raft) apiVersionsAnswered(now time.Time, m *kmsg.ApiVersionsResponse, err error) {
	c := r.lead.change
	c.corr = 0
	if err != nil || m.ErrorCode != 0 {
		var what any = err
		if err == nil {
			what = kerr.ForCode(m.ErrorCode)
		}
		r.endChange(kerr.RequestTimedOut.With("Aborted add voter operation for since API_VERSIONS returned an error %v", what))
		return
	}
	known := false
	for _, f := range m.SupportedFeatures {
		if f.Name == "kraft.version" {
			c.voter.MinKRaft, c.voter.MaxKRaft = f.MinVersion, f.MaxVersion
			known = true
		}
	}
	if level := r.KRaftVersion(); !known || level < c.voter.MinKRaft || level > c.voter.MaxKRaft {
		r.endChange(kerr.InvalidRequest.With("Aborted add voter operation for %v since the kraft.version range (min: %d, max: %d) doesn't support the finalized version %d",
			c.key, c.voter.MinKRaft, c.voter.MaxKRaft, level))
		return
	}
	p := r.lead.find(c.key)
	if p == nil || p.lastCaughtUp.IsZero() || now.Sub(p.lastFetch) >= caughtUpForAdd {
		r.endChange(kerr.RequestTimedOut.With("Aborted add voter operation for %v since it is lagging behind", c.key))
		return
	}
	c.last = r.lead.proposeControl(now, []ControlRecord{Voters{r.Voters().With(c.voter)}})
	c.until = now.Add(noDeadlineDuration)
	if !c.ack {
		r.answerChange(c, nil, nil)
	}
}

func (r *Raft) handleRemoveVoter(now time.Time, id uint64, m *kmsg.RemoveRaftVoterRequest) {
	c := &voterChange{id: id, kind: removeVoter, version: m.Version, last: -1, key: ReplicaKey{kafka.BrokerID(m.VoterID), m.VoterDirectoryID}}
	if err := r.forChange(m.ClusterID, c.key, "Remove"); err != nil {
		r.answerChange(c, err, nil)
		return
	}
	if err := r.mayChangeVoters("removing"); err != nil {
		r.answerChange(c, err, nil)
		return
	}
	v, ok := r.Voters().Get(c.key.ID)
	if !ok || v.Key != c.key || r.Voters().Len() == 1 {
		r.answerChange(c, kerr.VoterNotFound.With("Cannot remove voter %v from the set of voters %v", c.key, r.Voters()), nil)
		return
	}
	c.last = r.lead.proposeControl(now, []ControlRecord{Voters{r.Voters().Without(c.key.ID)}})
	c.until = now.Add(noDeadlineDuration)
	r.lead.change = c
}

func (r *Raft) handleUpdateVoter(now time.Time, ev *Request, m *kmsg.UpdateRaftVoterRequest) {
	resp := m.ResponseKind().(*kmsg.UpdateRaftVoterResponse)
	answer := func(err *kerr.Error) {
		resp.ErrorCode = code(err)
		resp.CurrentLeader.LeaderID, resp.CurrentLeader.LeaderEpoch = int32(r.leader), int32(r.epoch)
		if e, ok := r.leaderAddress(ev.Listener); ok {
			resp.CurrentLeader.Host, resp.CurrentLeader.Port = e.Host, int32(e.Port)
		}
		r.reply(ev.ID, resp)
	}
	if !r.validClusterID(m.ClusterID) {
		answer(kerr.InconsistentClusterID)
		return
	}
	if err := r.forLeader(kafka.LeaderEpoch(m.CurrentLeaderEpoch)); err != nil {
		answer(err)
		return
	}
	key := ReplicaKey{kafka.BrokerID(m.VoterID), m.VoterDirectoryID}
	v := Voter{Key: key, MinKRaft: m.KRaftVersionFeature.MinSupportedVersion, MaxKRaft: m.KRaftVersionFeature.MaxSupportedVersion}
	for _, l := range m.Listeners {
		v.Endpoints = append(v.Endpoints, Endpoint{l.Name, l.Host, l.Port})
	}
	if _, ok := endpointOf(v.Endpoints, r.cfg.Listener); !ok || m.VoterID < 0 || key.Directory.IsZero() {
		answer(kerr.InvalidRequest)
		return
	}
	if r.KRaftVersion() == 0 {
		if !r.Voters().Contains(key) {
			answer(kerr.VoterNotFound)
			return
		}
		r.lead.told = append(slices.DeleteFunc(r.lead.told, func(t Voter) bool { return t.Key.ID == key.ID }), v)
		answer(nil)
		return
	}
	if err := r.mayChangeVoters("updating"); err != nil {
		answer(err)
		return
	}
	old, ok := r.Voters().Get(key.ID)
	if !ok || old.Key != key {
		answer(kerr.VoterNotFound)
		return
	}
	if level := r.KRaftVersion(); level < v.MinKRaft || level > v.MaxKRaft {
		answer(kerr.InvalidRequest)
		return
	}
	if !old.equal(v) {
		r.lead.proposeControl(now, []ControlRecord{Voters{r.Voters().With(v)}})
	}
	// It is answered when appended: the voter sees in the log whether it came to be.
	answer(nil)
}

// CheckKRaftVersion tells whether UpgradeKRaftVersion would take a level: it is the present one, or the next, and every voter knows it.
func (r *Raft) CheckKRaftVersion(level int16) error {
	_, err := r.upgraded(level)
	return err
}

// UpgradeKRaftVersion raises kraft.version. From 0 to 1 the voters move from everybody's configuration into the log: the leader appends the
// level and what it knows of each voter as one batch, and returns the offset of its last record; -1 if the level is the present one.
func (r *Raft) UpgradeKRaftVersion(now time.Time, epoch kafka.LeaderEpoch, level int16) (kafka.Offset, error) {
	if r.lead != nil && epoch != r.epoch || !r.shutdownAt.IsZero() {
		return 0, errNotLeader(epoch)
	}
	voters, err := r.upgraded(level)
	if err != nil || voters.Len() == 0 {
		return -1, err
	}
	r.lead.upgrading = level
	return r.lead.proposeControl(now, []ControlRecord{KRaftVersion(level), Voters{voters}}), nil
}

// upgraded is the voter set of a level of kraft.version; empty if it is the present level.
func (r *Raft) upgraded(level int16) (VoterSet, error) {
	if r.lead == nil {
		return VoterSet{}, errNotLeader(r.epoch)
	}
	now := max(r.KRaftVersion(), r.lead.upgrading)
	switch {
	case level == now:
		return VoterSet{}, nil
	case level < now:
		return VoterSet{}, kerr.InvalidUpdateVersion.With("Invalid upgrade of kraft.version from version KRAFT_VERSION_%d to KRAFT_VERSION_%d because the new version is a downgrade", now, level)
	}
	var out VoterSet
	for _, v := range r.Voters().Voters() {
		full := Voter{MaxKRaft: -1}
		if v.Key.ID == r.cfg.ID {
			full = r.ownVoter(0, 0)
		} else if i := slices.IndexFunc(r.lead.told, func(t Voter) bool { return t.Key.ID == v.Key.ID }); i >= 0 {
			full = r.lead.told[i]
		}
		if level < full.MinKRaft || level > full.MaxKRaft || full.Key.Directory.IsZero() {
			return VoterSet{}, kerr.InvalidUpdateVersion.With("Invalid upgrade of kraft.version to KRAFT_VERSION_%d because not all of the voters support it: "+
				"voter %d did not say that it does", level, v.Key.ID)
		}
		out = out.With(full)
	}
	return out, nil
}

// membershipRequest is what a follower asks about its own membership, or nil: an update if the voter set has other
// endpoints of it than it has, and to be added if it is to join by itself.
func (r *Raft) membershipRequest(voter bool) kmsg.Request {
	if voter {
		own, _ := r.Voters().Get(r.cfg.ID)
		if own.equal(r.ownVoter(own.MinKRaft, own.MaxKRaft)) {
			return nil
		}
		v := r.ownVoter(0, 0)
		m := kmsg.NewPtrUpdateRaftVoterRequest()
		m.ClusterID, m.CurrentLeaderEpoch = &r.cfg.ClusterID, int32(r.epoch)
		m.VoterID, m.VoterDirectoryID = int32(r.cfg.ID), r.cfg.Directory
		m.KRaftVersionFeature.MinSupportedVersion, m.KRaftVersionFeature.MaxSupportedVersion = v.MinKRaft, v.MaxKRaft
		for _, e := range v.Endpoints {
			l := kmsg.NewUpdateRaftVoterRequestListener()
			l.Name, l.Host, l.Port = e.Listener, e.Host, e.Port
			m.Listeners = append(m.Listeners, l)
		}
		return m
	}
	if !r.cfg.AutoJoin {
		return nil
	}
	if old, ok := r.Voters().Get(r.cfg.ID); ok {
		// The same node with an older directory is removed first.
		m := kmsg.NewPtrRemoveRaftVoterRequest()
		m.ClusterID, m.VoterID, m.VoterDirectoryID = &r.cfg.ClusterID, int32(old.Key.ID), old.Key.Directory
		return m
	}
	m := kmsg.NewPtrAddRaftVoterRequest()
	m.ClusterID, m.TimeoutMillis = &r.cfg.ClusterID, int32(r.cfg.RequestTimeout/time.Millisecond)
	m.VoterID, m.VoterDirectoryID, m.AckWhenCommitted = int32(r.cfg.ID), r.cfg.Directory, false
	for _, e := range r.cfg.Endpoints {
		l := kmsg.NewAddRaftVoterRequestListener()
		l.Name, l.Host, l.Port = e.Listener, e.Host, e.Port
		m.Listeners = append(m.Listeners, l)
	}
	return m
}

func (r *Raft) updateVoterAnswered(now time.Time, m *kmsg.UpdateRaftVoterResponse) bool {
	l := &m.CurrentLeader
	if l.LeaderID < 0 {
		return m.ErrorCode == 0
	}
	var endpoints []Endpoint
	if l.Port > 0 && l.Port < 1<<16 {
		endpoints = r.named(l.Host, uint16(l.Port))
	}
	_, good := r.common(now, m.ErrorCode, l.LeaderID, l.LeaderEpoch, endpoints)
	return good || m.ErrorCode == 0
}
