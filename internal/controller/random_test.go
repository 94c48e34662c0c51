package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
)

// Brokers come, go, crash and stop; ISRs change, replicas move, topics come and go. After every step the invariants hold,
// no epoch went back, no leader epoch has two leaders, and no leader was elected from outside the eligible ones unless an
// unclean election was allowed; at the end the records replayed on an empty image give the working state.
func TestRandomOperations(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var features []metadata.FeatureSetting
		if !rapid.Bool().Draw(r, "elr") {
			features = append(features, metadata.FeatureSetting{Name: metadata.EligibleLeaderReplicasVersionFeature, Level: 0})
		}
		version := rapid.SampledFrom([]metadata.Version{33, 33, 25, 17, 12, 11}).Draw(r, "metadata.version")
		if version < 23 {
			features = nil
		}
		k := newCluster(t, bootstrap(version, features...), "min.insync.replicas", fmt.Sprint(rapid.IntRange(1, 3).Draw(r, "min.insync.replicas")))
		k.c.opt.Rand = newRand(rapid.Uint64().Draw(r, "seed"))
		type alive struct{ up, clean bool }
		brokers := make([]alive, 6)
		incarnation := byte(0)
		seen := map[string]metadata.Partition{}
		check := func(unclean func(topic string) bool) {
			k.checkInvariants(r)
			for topic := range k.c.Image().Topics() {
				for id, p := range topic.Partitions() {
					key := fmt.Sprint(topic.ID, id)
					old, ok := seen[key]
					if ok {
						if p.LeaderEpoch < old.LeaderEpoch || p.PartitionEpoch < old.PartitionEpoch {
							r.Fatalf("%s-%d: an epoch went back", topic.Name, id)
						}
						if p.Leader != old.Leader && p.LeaderEpoch == old.LeaderEpoch {
							r.Fatalf("%s-%d: two leaders %d and %d in epoch %d", topic.Name, id, old.Leader, p.Leader, p.LeaderEpoch)
						}
					}
					seen[key] = p
				}
			}
		}
		id := func() int32 { return rapid.Int32Range(0, 5).Draw(r, "broker") }
		topics := []string{"a", "b", "c"}
		anyPartition := func() (string, int32, metadata.Partition, bool) {
			t := k.c.Image().Topic(rapid.SampledFrom(topics).Draw(r, "topic"))
			if t == nil || t.Len() == 0 {
				return "", 0, metadata.Partition{}, false
			}
			n := rapid.Int32Range(0, int32(t.Len())-1).Draw(r, "partition")
			p, _ := t.Partition(n)
			return t.Name, n, p, true
		}
		for range 3 {
			k.run(int32(incarnation))
			brokers[incarnation].up = true
			incarnation++
		}
		r.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check(nil) },
			"start": func(*rapid.T) {
				n := id()
				if brokers[n].up {
					return
				}
				incarnation++
				q := k.register(n, incarnation, func(q *kmsg.BrokerRegistrationRequest) {
					if old := k.c.registration(kafka.BrokerID(n)); old != nil && brokers[n].clean {
						q.PreviousBrokerEpoch = int64(old.Epoch)
					}
				})
				if q.ErrorCode == kerr.DuplicateBrokerRegistration.Code && version < 17 {
					return // its directories are not known, and its session lasts
				}
				if q.ErrorCode != 0 {
					r.Fatalf("register %d: %v", n, kerr.ForCode(q.ErrorCode))
				}
				brokers[n].up = true
			},
			"heartbeat": func(*rapid.T) {
				if n := id(); brokers[n].up {
					k.heartbeat(n)
				}
			},
			"stop": func(*rapid.T) {
				n := id()
				if !brokers[n].up {
					return
				}
				h := k.heartbeat(n, func(q *kmsg.BrokerHeartbeatRequest) { q.WantShutdown = true })
				if h.ShouldShutdown {
					brokers[n] = alive{clean: true}
				}
			},
			"crash": func(*rapid.T) { brokers[id()] = alive{} },
			"time": func(*rapid.T) {
				k.now = k.now.Add(time.Duration(rapid.IntRange(1, 12).Draw(r, "seconds")) * time.Second)
				for i := range brokers {
					if b := k.c.registration(kafka.BrokerID(i)); b != nil && brokers[i].up && rapid.Bool().Draw(r, "beats") {
						k.heartbeat(int32(i))
					}
				}
				for !k.c.Deadline().After(k.now) {
					k.apply(k.c.Tick(k.now))
					k.checkInvariants(r)
				}
			},
			"create": func(*rapid.T) {
				k.create(rapid.SampledFrom(topics).Draw(r, "topic"), rapid.Int32Range(1, 4).Draw(r, "partitions"), rapid.Int16Range(1, 4).Draw(r, "factor"))
			},
			"delete": func(*rapid.T) {
				req := kmsg.NewPtrDeleteTopicsRequest()
				req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: new(rapid.SampledFrom(topics).Draw(r, "topic"))}}
				k.do(req)
			},
			"isr": func(*rapid.T) {
				topic, n, p, ok := anyPartition()
				if !ok || p.Leader == kafka.NoBroker {
					return
				}
				var isr []int32
				for _, b := range p.Replicas {
					if b == p.Leader || rapid.Bool().Draw(r, "in") {
						isr = append(isr, int32(b))
					}
				}
				k.alterISR(int32(p.Leader), topic, n, isr...)
			},
			"elect": func(*rapid.T) {
				req := kmsg.NewPtrElectLeadersRequest()
				req.ElectionType = rapid.Int8Range(0, 1).Draw(r, "unclean")
				k.do(req)
			},
			"unclean": func(*rapid.T) {
				setTopicConfig(k, rapid.SampledFrom(topics).Draw(r, "topic"), "unclean.leader.election.enable", rapid.SampledFrom([]string{"true", "false"}).Draw(r, "value"))
			},
			"minISR": func(*rapid.T) {
				setTopicConfig(k, rapid.SampledFrom(topics).Draw(r, "topic"), "min.insync.replicas", fmt.Sprint(rapid.IntRange(1, 4).Draw(r, "value")))
			},
			"move": func(*rapid.T) {
				topic, n, _, ok := anyPartition()
				if !ok {
					return
				}
				req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
				req.AllowReplicationFactorChange = true
				q := kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: n}
				if rapid.IntRange(0, 3).Draw(r, "cancel") > 0 {
					q.Replicas = rapid.SliceOfNDistinct(rapid.Int32Range(0, 5), 1, 4, rapid.ID).Draw(r, "replicas")
				}
				req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: topic, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{q}}}
				k.do(req)
			},
			"offline": func(*rapid.T) {
				if n := id(); brokers[n].up && rapid.IntRange(0, 4).Draw(r, "rarely") == 0 {
					k.heartbeat(n, func(q *kmsg.BrokerHeartbeatRequest) { q.OfflineLogDirs = [][16]byte{dir(n, 0)} })
				}
			},
			"unregister": func(*rapid.T) {
				n := id()
				if brokers[n].up || rapid.IntRange(0, 4).Draw(r, "rarely") > 0 {
					return
				}
				req := kmsg.NewPtrUnregisterBrokerRequest()
				req.BrokerID = n
				k.at(req)
			},
		})
		k.checkReplay()
	})
}
