package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

const testCluster = "golden-cluster-44AAAAA"

// cluster is a Controller with a log that commits at once, as far as a test needs one.
type cluster struct {
	t   testing.TB
	c   *Controller
	now time.Time
	log []Record // all that was written, record i at offset i
}

func nodeConfig(t testing.TB, more ...string) *config.Broker {
	t.Helper()
	m := map[string]string{"process.roles": "broker,controller", "node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
		"controller.listener.names": "CONTROLLER", "controller.quorum.voters": "1@127.0.0.1:9093", "log.dirs": "/tmp/x"}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	b, err := config.NewBroker(config.NewProperties(m))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func bootstrap(version metadata.Version, features ...metadata.FeatureSetting) []Record {
	var out []Record
	for _, r := range metadata.Bootstrap(metadata.BootstrapOptions{Version: version, Features: features}) {
		out = append(out, Record{r, 0})
	}
	return out
}

func newCluster(t testing.TB, boot []Record, more ...string) *cluster {
	t.Helper()
	o := OptionsOf(nodeConfig(t, more...))
	o.ClusterID, o.Rand = testCluster, rand.New(rand.NewPCG(1, 2))
	k := &cluster{t: t, now: time.Unix(1_700_000_000, 0)}
	k.c = New(o, metadata.Empty(), 1, 0, k.now)
	res, err := k.c.Activate(true, boot)
	if err != nil {
		t.Fatal(err)
	}
	k.apply(res)
	return k
}

// apply writes what was decided. Every record must be encodable at its version.
func (k *cluster) apply(res Result) Result {
	k.t.Helper()
	for _, r := range res.Records {
		if _, err := schema.AppendFrame(nil, r.Message, r.Version); err != nil {
			k.t.Fatalf("%s version %d: %v", r.Message.Info().Name, r.Version, err)
		}
	}
	if err := k.c.Apply(kafka.Offset(len(k.log)), res.Records, k.now); err != nil {
		k.t.Fatal(err)
	}
	k.log = append(k.log, res.Records...)
	if res.Appended != nil {
		res.Appended(k.c.NextOffset() - 1)
	}
	return res
}

// do carries out a request at its highest version.
func (k *cluster) do(req kmsg.Request) kmsg.Response {
	k.t.Helper()
	if req.GetVersion() == 0 {
		req.SetVersion(req.MaxVersion())
	}
	return k.at(req)
}

func (k *cluster) at(req kmsg.Request) kmsg.Response {
	k.t.Helper()
	res, ok := k.c.Handle(Context{Now: k.now}, req)
	if !ok {
		k.t.Fatalf("API %d is not the controller's", req.Key())
	}
	k.apply(res)
	return res.Response
}

func dir(broker int32, n byte) (d [16]byte) { return [16]byte{0: 200, 1: byte(broker), 2: n, 15: 1} }

// register makes a broker known; run registers it and lets it heartbeat until it is in service.
func (k *cluster) register(id int32, incarnation byte, edit ...func(*kmsg.BrokerRegistrationRequest)) *kmsg.BrokerRegistrationResponse {
	k.t.Helper()
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID = id, testCluster, [16]byte{1, byte(id), incarnation}
	req.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "PLAINTEXT", Host: "h" + strconv.Itoa(int(id)), Port: 9092}}
	for _, f := range append([]string{metadata.MetadataVersionFeature}, metadata.FeatureNames()...) {
		lo, hi, _ := metadata.SupportedRange(f, false)
		req.Features = append(req.Features, kmsg.BrokerRegistrationRequestFeature{Name: f, MinSupportedVersion: lo, MaxSupportedVersion: hi})
	}
	req.LogDirs = [][16]byte{dir(id, 0)}
	req.PreviousBrokerEpoch = -1
	for _, e := range edit {
		e(req)
	}
	return k.do(req).(*kmsg.BrokerRegistrationResponse)
}

func (k *cluster) epoch(id int32) int64 { return int64(k.c.registration(kafka.BrokerID(id)).Epoch) }

func (k *cluster) heartbeat(id int32, edit ...func(*kmsg.BrokerHeartbeatRequest)) *kmsg.BrokerHeartbeatResponse {
	k.t.Helper()
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.CurrentMetadataOffset = id, k.c.NextOffset()-1
	if b := k.c.registration(kafka.BrokerID(id)); b != nil {
		req.BrokerEpoch = int64(b.Epoch)
	}
	for _, e := range edit {
		e(req)
	}
	return k.do(req).(*kmsg.BrokerHeartbeatResponse)
}

func (k *cluster) run(ids ...int32) {
	k.t.Helper()
	for _, id := range ids {
		if r := k.register(id, 1); r.ErrorCode != 0 {
			k.t.Fatalf("register %d: %v", id, kerr.ForCode(r.ErrorCode))
		}
		if r := k.heartbeat(id); r.IsFenced || !r.IsCaughtUp {
			k.t.Fatalf("broker %d is not in service: %+v", id, r)
		}
	}
}

func (k *cluster) create(name string, partitions int32, factor int16, assignment ...[]int32) kmsg.CreateTopicsResponseTopic {
	k.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, factor
	for i, a := range assignment {
		t.ReplicaAssignment = append(t.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: a})
	}
	req.Topics = append(req.Topics, t)
	return k.do(req).(*kmsg.CreateTopicsResponse).Topics[0]
}

func (k *cluster) partition(topic string, id int32) metadata.Partition {
	k.t.Helper()
	t := k.c.Image().Topic(topic)
	if t == nil {
		k.t.Fatalf("no topic %s", topic)
	}
	p, ok := t.Partition(id)
	if !ok {
		k.t.Fatalf("no partition %s-%d", topic, id)
	}
	return p
}

// state prints a partition: leader, epochs, replicas, ISR, ELR, last known leader.
func (k *cluster) state(topic string, id int32) string {
	p := k.partition(topic, id)
	s := fmt.Sprintf("leader=%d epoch=%d replicas=%v isr=%v", p.Leader, p.LeaderEpoch, p.Replicas, p.ISR)
	if len(p.ELR) > 0 {
		s += fmt.Sprintf(" elr=%v", p.ELR)
	}
	if len(p.LastKnownELR) > 0 {
		s += fmt.Sprintf(" last=%v", p.LastKnownELR)
	}
	if p.Reassigning() {
		s += fmt.Sprintf(" adding=%v removing=%v", p.Adding, p.Removing)
	}
	if p.Recovery == metadata.Recovering {
		s += " recovering"
	}
	return s
}

func (k *cluster) expect(topic string, id int32, want string) {
	k.t.Helper()
	if got := k.state(topic, id); got != want {
		k.t.Errorf("%s-%d:\n got %s\nwant %s", topic, id, got, want)
	}
}

func (k *cluster) alterISR(leader int32, topic string, id int32, isr ...int32) int16 {
	k.t.Helper()
	p := k.partition(topic, id)
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID, req.BrokerEpoch = leader, k.epoch(leader)
	q := kmsg.NewAlterPartitionRequestTopicPartition()
	q.Partition, q.LeaderEpoch, q.PartitionEpoch = id, int32(p.LeaderEpoch), int32(p.PartitionEpoch)
	for _, m := range isr {
		q.NewEpochISR = append(q.NewEpochISR, kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{BrokerID: m, BrokerEpoch: -1})
	}
	req.Topics = []kmsg.AlterPartitionRequestTopic{{TopicID: k.c.Image().Topic(topic).ID, Partitions: []kmsg.AlterPartitionRequestTopicPartition{q}}}
	resp := k.do(req).(*kmsg.AlterPartitionResponse)
	if resp.ErrorCode != 0 {
		return resp.ErrorCode
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

func setTopicConfig(k *cluster, topic, name, value string) (int16, string) {
	return alterOne(k, kmsg.ConfigResourceTypeTopic, topic, name, kmsg.IncrementalAlterConfigOpSet, &value)
}

func alterOne(k *cluster, kind kmsg.ConfigResourceType, resource, name string, op kmsg.IncrementalAlterConfigOp, value *string) (int16, string) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kind, ResourceName: resource,
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: name, Op: op, Value: value}}}}
	r := k.do(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	if r.ErrorMessage == nil {
		return r.ErrorCode, ""
	}
	return r.ErrorCode, *r.ErrorMessage
}

// kinds are the types of the records from offset on.
func (k *cluster) kinds(from int) []string {
	var out []string
	for _, r := range k.log[from:] {
		out = append(out, r.Message.Info().Name)
	}
	return out
}

// checkReplay: what was written gives, on an empty image, the working state.
func (k *cluster) checkReplay() {
	k.t.Helper()
	d := metadata.NewDelta(metadata.Empty())
	for i, r := range k.log {
		b, err := schema.AppendFrame(nil, r.Message, r.Version)
		if err != nil {
			k.t.Fatal(err)
		}
		if err := d.ReplayBytes(metadata.Provenance{Offset: kafka.Offset(i), Epoch: 1}, b); err != nil {
			k.t.Fatal(err)
		}
	}
	img, _ := d.Apply()
	if !metadata.Equal(img, k.c.Image()) {
		k.t.Fatal("the records replayed differ from the working state")
	}
}

// checkInvariants are those of one partition's state (reliability D6, D17) and of brokers.
func (k *cluster) checkInvariants(t interface{ Fatalf(string, ...any) }) {
	img := k.c.Image()
	for topic := range img.Topics() {
		for id, p := range topic.Partitions() {
			minISR := k.c.minISR(topic.Name, &p)
			at := fmt.Sprintf("%s-%d %s", topic.Name, id, k.state(topic.Name, id))
			for _, list := range [][]kafka.BrokerID{p.Replicas, p.ISR, p.ELR, p.Adding, p.Removing} {
				for i, b := range list {
					if slices.Contains(list[:i], b) {
						t.Fatalf("%s: %d twice", at, b)
					}
					if !p.HasReplica(b) && !slices.Contains(p.ELR, b) {
						t.Fatalf("%s: %d is no replica", at, b)
					}
				}
			}
			for _, b := range p.ISR {
				if slices.Contains(p.ELR, b) {
					t.Fatalf("%s: %d in ISR and ELR", at, b)
				}
			}
			if img.ELREnabled() {
				if len(p.ISR) >= minISR && len(p.ELR) > 0 {
					t.Fatalf("%s: ELR beside a whole ISR (min %d)", at, minISR)
				}
				for _, b := range p.ISR {
					if r := img.Broker(b); r == nil || r.Fenced {
						t.Fatalf("%s: fenced or unknown broker %d in the ISR", at, b)
					}
				}
			} else if len(p.ISR) == 0 {
				t.Fatalf("%s: empty ISR without ELR", at)
			}
			if p.Leader != kafka.NoBroker {
				if !p.InISR(p.Leader) {
					t.Fatalf("%s: the leader is not in the ISR", at)
				}
				if r := img.Broker(p.Leader); r == nil || r.Fenced {
					t.Fatalf("%s: the leader is fenced or unknown", at)
				}
			}
			if len(p.LastKnownELR) > 0 && p.Leader != kafka.NoBroker {
				t.Fatalf("%s: last known leader beside a leader", at)
			}
			for _, b := range p.Adding {
				if slices.Contains(p.Removing, b) {
					t.Fatalf("%s: %d is added and removed", at, b)
				}
			}
			if len(p.Directories) > 0 && len(p.Directories) != len(p.Replicas) {
				t.Fatalf("%s: %d directories", at, len(p.Directories))
			}
		}
	}
}
