package controller

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// A new cluster's log begins with the records with which Kafka 4.4's begins.
func TestFirstRecordsAreKafkas(t *testing.T) {
	k := newCluster(t, bootstrap(metadata.LatestProductionVersion))
	dump := string(fixture.Read(t, "data/cluster-4.4.expect/dump/1/__cluster_metadata-0/00000000000000000000.log.txt"))
	var want []string
	for _, m := range regexp.MustCompile(`(?m)payload: (\{.*\})$`).FindAllStringSubmatch(dump, -1) {
		want = append(want, m[1])
		if strings.Contains(m[1], "END_TRANSACTION_RECORD") {
			break
		}
	}
	var got []string
	for _, r := range k.log {
		got = append(got, string(schema.AppendTypedJSON(nil, r.Message, r.Version)))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// A log without a first checkpoint is brought to the newest version; an older one gets no transaction.
	if k := newCluster(t, nil); k.c.Image().MetadataVersion() != metadata.LatestProductionVersion {
		t.Errorf("metadata.version %s", k.c.Image().MetadataVersion())
	}
	k = newCluster(t, bootstrap(11))
	if got := k.kinds(0); !slices.Equal(got, []string{"FeatureLevelRecord"}) {
		t.Errorf("3.5-IV2: %v", got)
	}
}

// A transaction that the controller before left open is aborted.
func TestActivateAbortsTransaction(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	base := metadata.NewDelta(k.c.Image())
	if err := base.Replay(metadata.Provenance{Offset: 100}, schema.NewBeginTransactionRecord()); err != nil {
		t.Fatal(err)
	}
	c := k.c
	c.delta = base
	res, err := c.Activate(false, nil)
	if err != nil || len(res.Records) != 1 || res.Records[0].Message.Info().Name != "AbortTransactionRecord" {
		t.Errorf("%v %v", res.Records, err)
	}
}

// A broker registers, is unfenced when it has caught up, and gets what Kafka's log shows for that.
func TestBrokerComesInService(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	from := len(k.log)
	r := k.register(1, 1)
	if r.ErrorCode != 0 || r.BrokerEpoch != int64(from) {
		t.Fatalf("%+v", r)
	}
	late := func(q *kmsg.BrokerHeartbeatRequest) { q.CurrentMetadataOffset = int64(from) - 1 }
	if h := k.heartbeat(1, late); !h.IsFenced || h.IsCaughtUp {
		t.Errorf("unfenced before it caught up: %+v", h)
	}
	if h := k.heartbeat(1, func(q *kmsg.BrokerHeartbeatRequest) { q.WantFence = true }); !h.IsFenced || !h.IsCaughtUp {
		t.Errorf("unfenced against its will: %+v", h)
	}
	k.heartbeat(1, late, func(q *kmsg.BrokerHeartbeatRequest) { q.CordonedLogDirs = [][16]byte{} })
	if h := k.heartbeat(1); h.IsFenced {
		t.Errorf("still fenced: %+v", h)
	}
	var got []string
	for _, r := range k.log[from:] {
		s := string(schema.AppendTypedJSON(nil, r.Message, r.Version))
		if !strings.Contains(s, "REGISTER_BROKER") {
			got = append(got, s)
		}
	}
	want := []string{`{"type":"BROKER_REGISTRATION_CHANGE_RECORD","version":3,"data":{"brokerId":1,"brokerEpoch":9,"cordonedLogDirs":[]}}`,
		`{"type":"BROKER_REGISTRATION_CHANGE_RECORD","version":0,"data":{"brokerId":1,"brokerEpoch":9,"fenced":-1}}`}
	if !slices.Equal(got, want) {
		t.Errorf("records %s", got)
	}
	if h := k.heartbeat(1, func(q *kmsg.BrokerHeartbeatRequest) { q.BrokerEpoch = 3 }); h.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("stale epoch: %+v", h)
	}
	if h := k.heartbeat(7); h.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("unknown broker: %+v", h)
	}
	k.checkReplay()
}

// A second process with a broker's id: Kafka's rule with other directories, at once with the same.
func TestRegistrationOfASecondProcess(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1)
	first := k.epoch(1)
	otherDirs := func(q *kmsg.BrokerRegistrationRequest) { q.LogDirs = [][16]byte{dir(1, 9)} }
	if r := k.register(1, 2, otherDirs); r.ErrorCode != kerr.DuplicateBrokerRegistration.Code {
		t.Errorf("another directory within the session: %v", kerr.ForCode(r.ErrorCode))
	}
	if r := k.register(1, 1); r.ErrorCode != 0 || r.BrokerEpoch != first {
		t.Errorf("the same process again: %+v, epoch was %d", r, first)
	}
	if k.c.registration(1).Fenced {
		t.Error("the same process was fenced by registering again")
	}
	r := k.register(1, 2)
	if r.ErrorCode != 0 || r.BrokerEpoch <= first || !k.c.registration(1).Fenced {
		t.Errorf("the same directories: %+v", r)
	}
	k.heartbeat(1)
	k.now = k.now.Add(10 * time.Second)
	if r := k.register(1, 3, otherDirs); r.ErrorCode != 0 {
		t.Errorf("another directory after the session: %v", kerr.ForCode(r.ErrorCode))
	}
}

// After a restart of a node that is broker and controller its broker is in service at once, also where directories are
// not known (metadata.version 3.5).
func TestRegistrationAfterRestartOfTheProcess(t *testing.T) {
	k := newCluster(t, bootstrap(11))
	k.run(1, 2)
	c := New(k.c.opt, k.c.Image(), 2, k.c.NextOffset(), k.now)
	k.c = c
	if r := k.register(2, 2); r.ErrorCode != kerr.DuplicateBrokerRegistration.Code {
		t.Errorf("another node's broker: %v", kerr.ForCode(r.ErrorCode))
	}
	if r := k.register(1, 2); r.ErrorCode != 0 {
		t.Errorf("own broker: %v", kerr.ForCode(r.ErrorCode))
	}
	k.heartbeat(1)
	if r := k.register(1, 3); r.ErrorCode != kerr.DuplicateBrokerRegistration.Code {
		t.Errorf("own broker's id, a second time: %v", kerr.ForCode(r.ErrorCode))
	}
}

func TestRegistrationRefused(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1)
	f := func(want *kerr.Error, edit func(*kmsg.BrokerRegistrationRequest)) {
		t.Helper()
		if r := k.register(2, 1, edit); r.ErrorCode != want.Code {
			t.Errorf("%v, want %v", kerr.ForCode(r.ErrorCode), want.Name)
		}
	}
	f(kerr.InconsistentClusterID, func(q *kmsg.BrokerRegistrationRequest) { q.ClusterID = "x" })
	f(kerr.InvalidRegistration, func(q *kmsg.BrokerRegistrationRequest) { q.LogDirs = nil })
	f(kerr.InvalidRegistration, func(q *kmsg.BrokerRegistrationRequest) { q.LogDirs = [][16]byte{{15: 1}} })
	f(kerr.InvalidRegistration, func(q *kmsg.BrokerRegistrationRequest) { q.LogDirs = [][16]byte{dir(2, 1), dir(2, 1)} })
	f(kerr.InvalidRegistration, func(q *kmsg.BrokerRegistrationRequest) { q.LogDirs = [][16]byte{dir(1, 0)} })
	f(kerr.InvalidRegistration, func(q *kmsg.BrokerRegistrationRequest) { q.Features = q.Features[1:] })
	f(kerr.UnsupportedVersion, func(q *kmsg.BrokerRegistrationRequest) { q.Features[0].MaxSupportedVersion = 30 })
	f(kerr.UnsupportedVersion, func(q *kmsg.BrokerRegistrationRequest) { q.Features = q.Features[:1] })
	f(kerr.BrokerIDNotRegistered, func(q *kmsg.BrokerRegistrationRequest) { q.IsMigratingZkBroker = true })
}

// An unclean restart takes a broker out of the ELR; the last known leader leads again when it is back (KIP-966).
func TestUncleanRestartOfTheOnlyReplica(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1)
	k.create("a", 1, 1)
	k.expect("a", 0, "leader=1 epoch=0 replicas=[1] isr=[1]")
	if r := k.register(1, 2); r.ErrorCode != 0 {
		t.Fatal(kerr.ForCode(r.ErrorCode))
	}
	k.expect("a", 0, "leader=-1 epoch=1 replicas=[1] isr=[] last=[1]")
	k.heartbeat(1)
	k.expect("a", 0, "leader=1 epoch=2 replicas=[1] isr=[1] recovering")
	k.checkInvariants(t)
	// A clean one keeps it eligible.
	before := k.epoch(1)
	k.register(1, 3, func(q *kmsg.BrokerRegistrationRequest) { q.PreviousBrokerEpoch = before })
	k.expect("a", 0, "leader=-1 epoch=3 replicas=[1] isr=[] elr=[1] last=[1] recovering")
	k.heartbeat(1)
	if p := k.partition("a", 0); p.Leader != 1 || len(p.ELR) != 0 {
		t.Errorf("%s", k.state("a", 0))
	}
	k.checkReplay()
}

// Silent brokers are fenced one at a time, the longest silent first.
func TestFencing(t *testing.T) {
	k := newCluster(t, bootstrap(33), "metadata.max.idle.interval.ms", "0", "auto.leader.rebalance.enable", "false")
	k.run(1, 2, 3)
	k.create("a", -1, -1, []int32{1, 2, 3})
	k.now = k.now.Add(5 * time.Second)
	k.heartbeat(3)
	k.now = k.now.Add(5 * time.Second)
	for _, want := range []kafka.BrokerID{1, 2} {
		if k.c.Deadline().After(k.now) {
			t.Fatal("nothing is due")
		}
		k.apply(k.c.Tick(k.now))
		if !k.c.registration(want).Fenced {
			t.Errorf("broker %d is not fenced", want)
		}
	}
	k.expect("a", 0, "leader=3 epoch=2 replicas=[1 2 3] isr=[3]")
	if res := k.apply(k.c.Tick(k.now)); len(res.Records) != 0 || !k.c.Deadline().After(k.now) {
		t.Errorf("a broker with a session was fenced: %v", k.kinds(0))
	}
	k.now = k.now.Add(10 * time.Second)
	k.apply(k.c.Tick(k.now))
	k.expect("a", 0, "leader=-1 epoch=3 replicas=[1 2 3] isr=[] elr=[3] last=[3]")
	k.heartbeat(1)
	k.expect("a", 0, "leader=-1 epoch=3 replicas=[1 2 3] isr=[] elr=[3] last=[3]")
	k.heartbeat(3)
	k.expect("a", 0, "leader=3 epoch=4 replicas=[1 2 3] isr=[3]")
	k.checkInvariants(t)
	k.checkReplay()
}

// Without ELR the last member stays in the ISR, and only it can lead again, as the guides say.
func TestFencingWithoutELR(t *testing.T) {
	k := newCluster(t, bootstrap(33, metadata.FeatureSetting{Name: metadata.EligibleLeaderReplicasVersionFeature, Level: 0}), "metadata.max.idle.interval.ms", "0")
	k.run(0, 1, 2)
	k.create("a", -1, -1, []int32{0, 1, 2})
	k.expect("a", 0, "leader=0 epoch=0 replicas=[0 1 2] isr=[0 1 2]")
	shutdown := func(q *kmsg.BrokerHeartbeatRequest) { q.WantFence, q.WantShutdown = true, true }
	if h := k.heartbeat(0, shutdown); !h.ShouldShutdown || !h.IsFenced {
		t.Errorf("%+v", h)
	}
	k.expect("a", 0, "leader=1 epoch=1 replicas=[0 1 2] isr=[1 2]")
	k.heartbeat(2, shutdown)
	k.heartbeat(1, shutdown)
	k.expect("a", 0, "leader=-1 epoch=2 replicas=[0 1 2] isr=[1]")
	k.heartbeat(0)
	k.expect("a", 0, "leader=-1 epoch=2 replicas=[0 1 2] isr=[1]")
	if code, msg := setTopicConfig(k, "a", "unclean.leader.election.enable", "true"); code != 0 {
		t.Fatal(msg)
	}
	k.now = k.now.Add(5 * time.Minute)
	for !k.c.Deadline().After(k.now) {
		k.heartbeat(0)
		k.apply(k.c.Tick(k.now))
	}
	k.expect("a", 0, "leader=0 epoch=3 replicas=[0 1 2] isr=[0] recovering")
	k.heartbeat(1)
	k.expect("a", 0, "leader=0 epoch=3 replicas=[0 1 2] isr=[0] recovering")
	k.checkInvariants(t)
	k.checkReplay()
}

// A broker that wants to stop gives its leaderships away, and may stop when every other broker knows.
func TestControlledShutdown(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1, 2)
	k.create("a", -1, -1, []int32{1, 2})
	stop := func(q *kmsg.BrokerHeartbeatRequest) { q.WantShutdown = true }
	if h := k.heartbeat(1, stop); h.ShouldShutdown || h.IsFenced {
		t.Errorf("%+v", h)
	}
	k.expect("a", 0, "leader=2 epoch=1 replicas=[1 2] isr=[2]")
	if b := k.c.registration(1); !b.ShuttingDown || b.Fenced {
		t.Errorf("%+v", b)
	}
	if r := k.create("b", 1, 2); r.ErrorCode != kerr.InvalidReplicationFactor.Code {
		t.Errorf("a broker that stops gets replicas: %v", kerr.ForCode(r.ErrorCode))
	}
	if h := k.heartbeat(1, stop); h.ShouldShutdown {
		t.Error("stops before the other knows")
	}
	k.heartbeat(2)
	if h := k.heartbeat(1, stop); !h.ShouldShutdown || !h.IsFenced {
		t.Errorf("does not stop: %+v", h)
	}
	if b := k.c.registration(1); !b.Fenced {
		t.Errorf("%+v", b)
	}
	k.checkInvariants(t)
	k.checkReplay()
}

func TestAlterPartition(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1, 2, 3)
	k.create("a", -1, -1, []int32{1, 2, 3})
	f := func(want *kerr.Error, leader int32, isr ...int32) {
		t.Helper()
		code := int16(0)
		if want != nil {
			code = want.Code
		}
		if got := k.alterISR(leader, "a", 0, isr...); got != code {
			t.Errorf("%v: %v", isr, kerr.ForCode(got))
		}
	}
	f(nil, 1, 1, 3)
	k.expect("a", 0, "leader=1 epoch=0 replicas=[1 2 3] isr=[1 3]")
	f(nil, 1, 1, 2, 3)
	f(kerr.InvalidRequest, 2, 2)
	f(kerr.InvalidRequest, 1, 2, 3)
	f(kerr.InvalidRequest, 1, 1, 1)
	f(kerr.InvalidRequest, 1, 1, 4)
	k.heartbeat(3, func(q *kmsg.BrokerHeartbeatRequest) { q.WantFence = true })
	f(kerr.IneligibleReplica, 1, 1, 2, 3)
	k.expect("a", 0, "leader=1 epoch=0 replicas=[1 2 3] isr=[1 2]")
	// Stale and future epochs.
	ask := func(edit func(*kmsg.AlterPartitionRequestTopicPartition)) int16 {
		p := k.partition("a", 0)
		req := kmsg.NewPtrAlterPartitionRequest()
		req.BrokerID, req.BrokerEpoch = 1, k.epoch(1)
		q := kmsg.NewAlterPartitionRequestTopicPartition()
		q.LeaderEpoch, q.PartitionEpoch = int32(p.LeaderEpoch), int32(p.PartitionEpoch)
		q.NewEpochISR = []kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{{BrokerID: 1, BrokerEpoch: k.epoch(1)}}
		edit(&q)
		req.Topics = []kmsg.AlterPartitionRequestTopic{{TopicID: k.c.Image().Topic("a").ID, Partitions: []kmsg.AlterPartitionRequestTopicPartition{q}}}
		return k.do(req).(*kmsg.AlterPartitionResponse).Topics[0].Partitions[0].ErrorCode
	}
	for _, c := range []struct {
		want *kerr.Error
		edit func(*kmsg.AlterPartitionRequestTopicPartition)
	}{
		{kerr.NotController, func(q *kmsg.AlterPartitionRequestTopicPartition) { q.LeaderEpoch++ }},
		{kerr.NotController, func(q *kmsg.AlterPartitionRequestTopicPartition) { q.PartitionEpoch++ }},
		{kerr.FencedLeaderEpoch, func(q *kmsg.AlterPartitionRequestTopicPartition) { q.LeaderEpoch-- }},
		{kerr.InvalidUpdateVersion, func(q *kmsg.AlterPartitionRequestTopicPartition) { q.PartitionEpoch-- }},
		{kerr.InvalidRequest, func(q *kmsg.AlterPartitionRequestTopicPartition) { q.LeaderRecoveryState = 1 }},
		{kerr.InvalidRequest, func(q *kmsg.AlterPartitionRequestTopicPartition) { q.LeaderRecoveryState = 9 }},
		{kerr.UnknownTopicOrPartition, func(q *kmsg.AlterPartitionRequestTopicPartition) { q.Partition = 5 }},
		{kerr.IneligibleReplica, func(q *kmsg.AlterPartitionRequestTopicPartition) { q.NewEpochISR[0].BrokerEpoch++ }},
	} {
		if got := ask(c.edit); got != c.want.Code {
			t.Errorf("%v, want %s", kerr.ForCode(got), c.want.Name)
		}
	}
	k.checkReplay()
}

func TestReassignment(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1, 2, 3, 4)
	k.create("a", -1, -1, []int32{1, 2})
	move := func(replicas []int32) (int16, string) {
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.AllowReplicationFactorChange = true
		req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "a", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 0, Replicas: replicas}}}}
		r := k.do(req).(*kmsg.AlterPartitionAssignmentsResponse).Topics[0].Partitions[0]
		if r.ErrorMessage == nil {
			return r.ErrorCode, ""
		}
		return r.ErrorCode, *r.ErrorMessage
	}
	if code, _ := move(nil); code != kerr.NoReassignmentInProgress.Code {
		t.Errorf("nothing to cancel: %v", kerr.ForCode(code))
	}
	if code, msg := move([]int32{1, 9}); code != kerr.InvalidReplicaAssignment.Code || msg != "The manual partition assignment includes broker 9, but no such broker is registered." {
		t.Errorf("%d %s", code, msg)
	}
	move([]int32{3, 4})
	k.expect("a", 0, "leader=1 epoch=0 replicas=[3 4 1 2] isr=[1 2] adding=[3 4] removing=[1 2]")
	list := k.at(kmsg.NewPtrListPartitionReassignmentsRequest()).(*kmsg.ListPartitionReassignmentsResponse)
	if len(list.Topics) != 1 || !slices.Equal(list.Topics[0].Partitions[0].AddingReplicas, []int32{3, 4}) {
		t.Errorf("%+v", list)
	}
	move(nil)
	k.expect("a", 0, "leader=1 epoch=1 replicas=[1 2] isr=[1 2]")
	move([]int32{3, 4})
	if code := k.alterISR(1, "a", 0, 1, 2, 3); code != 0 {
		t.Error(kerr.ForCode(code))
	}
	if code := k.alterISR(1, "a", 0, 1, 2, 3, 4); code != kerr.NewLeaderElected.Code {
		t.Errorf("completion: %v", kerr.ForCode(code))
	}
	k.expect("a", 0, "leader=3 epoch=2 replicas=[3 4] isr=[3 4]")
	k.checkInvariants(t)
	k.checkReplay()
}

func TestElectLeaders(t *testing.T) {
	k := newCluster(t, bootstrap(33), "metadata.max.idle.interval.ms", "0", "unclean.leader.election.interval.ms", "600000")
	k.run(1, 2)
	k.create("a", -1, -1, []int32{1, 2})
	elect := func(kind int8, topic string, id int32) (int16, string) {
		req := kmsg.NewPtrElectLeadersRequest()
		req.ElectionType = kind
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: topic, Partitions: []int32{id}}}
		r := k.do(req).(*kmsg.ElectLeadersResponse).Topics[0].Partitions[0]
		if r.ErrorMessage == nil {
			return r.ErrorCode, ""
		}
		return r.ErrorCode, *r.ErrorMessage
	}
	if code, _ := elect(0, "a", 0); code != kerr.ElectionNotNeeded.Code {
		t.Error(kerr.ForCode(code))
	}
	if code, msg := elect(0, "b", 0); code != kerr.UnknownTopicOrPartition.Code || msg != "No such topic as b" {
		t.Error(code, msg)
	}
	if code, msg := elect(0, "a", 4); code != kerr.UnknownTopicOrPartition.Code || msg != "No such partition as a-4" {
		t.Error(code, msg)
	}
	k.heartbeat(1, func(q *kmsg.BrokerHeartbeatRequest) { q.WantFence = true })
	if code, _ := elect(0, "a", 0); code != kerr.PreferredLeaderNotAvailable.Code {
		t.Error(kerr.ForCode(code))
	}
	k.heartbeat(1)
	k.alterISR(2, "a", 0, 2, 1)
	k.expect("a", 0, "leader=2 epoch=1 replicas=[1 2] isr=[2 1]")
	// The balancer does by itself what ElectLeaders does when asked.
	k.now = k.now.Add(300 * time.Second)
	for !k.c.Deadline().After(k.now) {
		k.heartbeat(1)
		k.heartbeat(2)
		k.apply(k.c.Tick(k.now))
	}
	k.expect("a", 0, "leader=1 epoch=2 replicas=[1 2] isr=[2 1]")
	k.checkReplay()
}

func TestDirectories(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1)
	two := func(q *kmsg.BrokerRegistrationRequest) { q.LogDirs = [][16]byte{dir(2, 0), dir(2, 1)} }
	k.register(2, 1, two)
	k.heartbeat(2)
	k.create("a", -1, -1, []int32{1, 2}, []int32{2, 1})
	if p := k.partition("a", 0); p.Directory(1) != kafka.DirectoryID(dir(1, 0)) || p.Directory(2) != kafka.DirUnassigned {
		t.Errorf("directories %v", p.Directories)
	}
	req := kmsg.NewPtrAssignReplicasToDirsRequest()
	req.BrokerID, req.BrokerEpoch = 2, k.epoch(2)
	id := k.c.Image().Topic("a").ID
	req.Directories = []kmsg.AssignReplicasToDirsRequestDirectory{{ID: dir(2, 1), Topics: []kmsg.AssignReplicasToDirsRequestDirectoryTopic{
		{TopicID: id, Partitions: []kmsg.AssignReplicasToDirsRequestDirectoryTopicPartition{{Partition: 0}, {Partition: 1}, {Partition: 7}}},
		{TopicID: [16]byte{9}, Partitions: []kmsg.AssignReplicasToDirsRequestDirectoryTopicPartition{{Partition: 0}}}}}}
	resp := k.at(req).(*kmsg.AssignReplicasToDirsResponse)
	if p := resp.Directories[0].Topics; p[0].Partitions[0].ErrorCode != 0 || p[0].Partitions[2].ErrorCode != kerr.UnknownTopicOrPartition.Code || p[1].Partitions[0].ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("%+v", resp)
	}
	if p := k.partition("a", 1); p.Directory(2) != kafka.DirectoryID(dir(2, 1)) {
		t.Errorf("directories %v", p.Directories)
	}
	k.create("c", -1, -1, []int32{1, 2})
	k.heartbeat(2, func(q *kmsg.BrokerHeartbeatRequest) { q.OfflineLogDirs = [][16]byte{dir(2, 1)} })
	k.expect("a", 1, "leader=1 epoch=1 replicas=[2 1] isr=[1]")
	if b := k.c.registration(2); !slices.Equal(b.LogDirs, []kafka.DirectoryID{dir(2, 0)}) {
		t.Errorf("%v", b.LogDirs)
	}
	// A replica that turns out to lie in the directory that failed leaves the ISR; told twice, nothing more happens.
	k.expect("c", 0, "leader=1 epoch=0 replicas=[1 2] isr=[1 2]")
	req.Directories[0].Topics = []kmsg.AssignReplicasToDirsRequestDirectoryTopic{{TopicID: k.c.Image().Topic("c").ID, Partitions: []kmsg.AssignReplicasToDirsRequestDirectoryTopicPartition{{Partition: 0}}}}
	for range 2 {
		from := len(k.log)
		if resp = k.at(req).(*kmsg.AssignReplicasToDirsResponse); resp.ErrorCode != 0 || resp.Directories[0].Topics[0].Partitions[0].ErrorCode != 0 {
			t.Errorf("%+v", resp)
		}
		k.expect("c", 0, "leader=1 epoch=0 replicas=[1 2] isr=[1]")
		if n := len(k.log) - from; n > 2 {
			t.Errorf("%d records", n)
		}
	}
	req.BrokerEpoch--
	if resp = k.at(req).(*kmsg.AssignReplicasToDirsResponse); resp.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("another epoch: %+v", resp)
	}
	k.heartbeat(2, func(q *kmsg.BrokerHeartbeatRequest) { q.CordonedLogDirs = [][16]byte{dir(2, 0)} })
	if r := k.create("b", 1, 2); !strings.Contains(*r.ErrorMessage, "only 1 broker(s) are registered or some brokers have all their log directories cordoned.") {
		t.Errorf("%v", *r.ErrorMessage)
	}
	if r := k.create("b", -1, -1, []int32{2}); *r.ErrorMessage != "The manual partition assignment includes broker 2, but all its log directories are cordoned." {
		t.Errorf("%v", *r.ErrorMessage)
	}
	k.checkReplay()
}

func TestProducerIDs(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1)
	for _, want := range []int64{0, 1000, 2000} {
		req := kmsg.NewPtrAllocateProducerIDsRequest()
		req.BrokerID, req.BrokerEpoch = 1, k.epoch(1)
		r := k.at(req).(*kmsg.AllocateProducerIDsResponse)
		if r.ErrorCode != 0 || r.ProducerIDStart != want || r.ProducerIDLen != 1000 {
			t.Errorf("%+v, want %d", r, want)
		}
	}
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = 1, k.epoch(1)-1
	if r := k.at(req).(*kmsg.AllocateProducerIDsResponse); r.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("%+v", r)
	}
}

func TestFeatures(t *testing.T) {
	k := newCluster(t, bootstrap(25))
	k.run(1)
	update := func(feature string, level int16, kind int8) (int16, string) {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: feature, MaxVersionLevel: level, UpgradeType: kind}}
		r := k.do(req).(*kmsg.UpdateFeaturesResponse)
		if r.ErrorMessage == nil {
			return r.ErrorCode, ""
		}
		return r.ErrorCode, strings.TrimPrefix(*r.ErrorMessage, "The update failed for all features since the following feature had an error: ")
	}
	f := func(feature string, level int16, kind int8, want string) {
		t.Helper()
		if _, msg := update(feature, level, kind); msg != want {
			t.Errorf("%s=%d: %s", feature, level, msg)
		}
	}
	f("metadata.version", 33, 1, "")
	f("metadata.version", 99, 1, "Invalid update version 99 for feature metadata.version. Local controller 1 only supports versions 7-33")
	f("metadata.version", 25, 1, "Invalid update version 25 for feature metadata.version. Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	f("metadata.version", 31, 2, "Unsupported metadata.version downgrade from 33 to 31. Refusing to perform the requested downgrade because it might delete metadata information.")
	f("no.such.feature", 1, 1, "Invalid update version 1 for feature no.such.feature. Local controller 1 does not support this feature.")
	f("group.version", 0, 2, "")
	f("group.version", 1, 3, "Invalid update version 1 for feature group.version. Can't downgrade to a newer version.")
	f("group.version", -1, 1, "Invalid update version -1 for feature group.version. A feature version cannot be less than 0.")
	f("group.version", 1, 0, "Invalid update version 1 for feature group.version. The controller does not support the given upgrade type.")
	f("kraft.version", 0, 1, "")
	f("kraft.version", 1, 1, "Invalid update version 1 for feature kraft.version. The quorum cannot change it.")
	from := len(k.log)
	f("eligible.leader.replicas.version", 1, 1, "")
	if got := k.kinds(from); !slices.Equal(got, []string{"ConfigRecord", "FeatureLevelRecord"}) {
		t.Errorf("%v", got)
	}
	k.checkReplay()
}

func TestControllerRegistration(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	req := kmsg.NewPtrControllerRegistrationRequest()
	req.ControllerID, req.IncarnationID = 3, [16]byte{5}
	req.Listeners = []kmsg.ControllerRegistrationRequestListener{{Name: "CONTROLLER", Host: "h", Port: 1}}
	if r := k.at(req).(*kmsg.ControllerRegistrationResponse); r.ErrorCode != 0 || k.c.Image().Controller(3) == nil {
		t.Errorf("%+v", r)
	}
	un := kmsg.NewPtrUnregisterControllerRequest()
	for _, c := range []struct {
		id   int32
		want *kerr.Error
	}{{1, kerr.InvalidRequest}, {3, nil}, {3, kerr.ControllerIDNotRegistered}} {
		un.ControllerID = c.id
		code := k.at(un).(*kmsg.UnregisterControllerResponse).ErrorCode
		if want := int16(0); c.want != nil && code != c.want.Code || c.want == nil && code != want {
			t.Errorf("%d: %v", c.id, kerr.ForCode(code))
		}
	}
	k = newCluster(t, bootstrap(11))
	if r := k.at(req).(*kmsg.ControllerRegistrationResponse); r.ErrorCode != kerr.UnsupportedVersion.Code {
		t.Errorf("%+v", r)
	}
}

func TestUnregisterBroker(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1, 2)
	k.create("a", -1, -1, []int32{1, 2})
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = 1
	if r := k.at(req).(*kmsg.UnregisterBrokerResponse); r.ErrorCode != 0 || k.c.registration(1) != nil {
		t.Errorf("%+v", r)
	}
	k.expect("a", 0, "leader=2 epoch=1 replicas=[1 2] isr=[2]")
	if r := k.at(req).(*kmsg.UnregisterBrokerResponse); r.ErrorCode != kerr.BrokerIDNotRegistered.Code || *r.ErrorMessage != "Broker ID 1 is not currently registered" {
		t.Errorf("%+v", r)
	}
	k.checkInvariants(t)
	k.checkReplay()
}

// Every answer of an error carries its code for each of the things that were asked, and can be encoded at every version.
func TestErrorResponses(t *testing.T) {
	k := newCluster(t, nil)
	for key := int16(0); key <= 94; key++ {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		if _, ours := k.c.Handle(Context{Now: k.now}, req); !ours {
			continue
		}
		for v := int16(0); v <= req.MaxVersion(); v++ {
			req.SetVersion(v)
			resp := ErrorResponse(req, kerr.NotController)
			if resp.GetVersion() != v || resp.Key() != key {
				t.Errorf("API %d version %d: %d", key, v, resp.GetVersion())
			}
			resp.AppendTo(nil)
		}
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "a"}, {Topic: "b"}}
	b, _ := json.Marshal(ErrorResponse(req, kerr.NotController).(*kmsg.CreateTopicsResponse).Topics)
	if strings.Count(string(b), `"ErrorCode":41`) != 2 {
		t.Errorf("%s", b)
	}
}

func newRand(seed uint64) Rand { return rand.New(rand.NewPCG(seed, 0)) }
