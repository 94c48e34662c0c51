package node

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/replication"
)

// alters sends changes of ISRs to the controller: one request at a time, with everything that has come meanwhile.
type alters struct {
	n    *Node
	mu   sync.Mutex
	isrs map[*replica.Replica]kmsg.AlterPartitionRequestTopicPartition
	busy bool // a request is out
	over bool
}

const alterTimeout = 30 * time.Second

func newAlters(n *Node) *alters {
	return &alters{n: n, isrs: make(map[*replica.Replica]kmsg.AlterPartitionRequestTopicPartition)}
}

func (a *alters) close() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
}

// add sends a leader's wish for another ISR.
func (a *alters) add(r *replica.Replica, c replication.ISRChange) {
	p := kmsg.NewAlterPartitionRequestTopicPartition()
	p.Partition, p.LeaderEpoch, p.PartitionEpoch = r.Partition().Partition, int32(c.LeaderEpoch), int32(c.PartitionEpoch)
	for _, m := range c.ISR {
		e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		e.BrokerID, e.BrokerEpoch = int32(m.ID), int64(m.Epoch)
		p.NewEpochISR = append(p.NewEpochISR, e)
		p.NewISR = append(p.NewISR, int32(m.ID))
	}
	if !c.Recovered {
		p.LeaderRecoveryState = 1
	}
	a.mu.Lock()
	a.isrs[r] = p
	a.mu.Unlock()
	a.sendISRs()
}

func (a *alters) sendISRs() {
	a.mu.Lock()
	if a.busy || a.over || len(a.isrs) == 0 {
		a.mu.Unlock()
		return
	}
	sent := a.isrs
	a.isrs, a.busy = make(map[*replica.Replica]kmsg.AlterPartitionRequestTopicPartition), true
	a.mu.Unlock()

	var topics []kmsg.AlterPartitionRequestTopic
	at := make(map[kafka.TopicID]int)
	of := make(map[kafka.TopicIDPartition]*replica.Replica)
	for r, p := range sent {
		i, ok := at[r.TopicID()]
		if !ok {
			i = len(topics)
			at[r.TopicID()] = i
			t := kmsg.NewAlterPartitionRequestTopic()
			t.TopicID, t.Topic = r.TopicID(), r.Partition().Topic
			topics = append(topics, t)
		}
		topics[i].Partitions = append(topics[i].Partitions, p)
		of[kafka.TopicIDPartition{TopicID: r.TopicID(), Partition: p.Partition}] = r
	}
	a.n.uplink.AlterPartition(topics, time.Now().Add(alterTimeout), func(resp *kmsg.AlterPartitionResponse, err error) {
		now := time.Now()
		if err == nil {
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					id := kafka.TopicIDPartition{TopicID: t.TopidID, Partition: p.Partition}
					r := of[id]
					if r == nil {
						continue
					}
					delete(of, id)
					isr := make([]kafka.BrokerID, len(p.ISR))
					for i, b := range p.ISR {
						isr[i] = kafka.BrokerID(b)
					}
					r.Altered(now, kafka.LeaderEpoch(p.LeaderEpoch), isr, kafka.PartitionEpoch(p.PartitionEpoch), p.LeaderRecoveryState == 1, kerr.ForCode(p.ErrorCode))
				}
			}
			err = kerr.UnknownServerError
		}
		for _, r := range of { // no answer for these: the next fetch or tick wishes anew
			_, epoch := r.Leads()
			r.Altered(now, epoch, nil, 0, false, err)
		}
		a.mu.Lock()
		a.busy = false
		a.mu.Unlock()
		a.sendISRs()
	})
}
