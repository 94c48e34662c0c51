package uplink

import (
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

const (
	// maxAssignments is how many replicas one request names; Kafka's.
	maxAssignments = 2250

	assignTimeout      = 30 * time.Second
	assignBackoffFirst = 100 * time.Millisecond // Kafka's
	assignBackoffMax   = 10 * time.Second
)

// assignments are the log directories of replicas that the controller is to be told (KIP-858): one request at a time, with
// everything that has come meanwhile, until it has taken all.
type assignments struct {
	uplink *Uplink

	mu      sync.Mutex // guards what follows
	ready   map[kafka.TopicIDPartition]assignment
	busy    bool          // a request is out, or the wait after one that failed
	backoff time.Duration // of the next failure
}

type assignment struct {
	dir      kafka.DirectoryID
	accepted func()
}

// Assign tells the controller that a replica of this broker lies in a log directory, or will. accepted, if not nil, is called once
// when it has committed that, from any goroutine; never, if a later call for the same replica came before this was sent, or the
// controller doesn't know the replica any more. It doesn't wait.
func (u *Uplink) Assign(p kafka.TopicIDPartition, dir kafka.DirectoryID, accepted func()) {
	a := &u.assignments
	a.mu.Lock()
	if a.ready == nil {
		a.ready = make(map[kafka.TopicIDPartition]assignment)
	}
	a.ready[p] = assignment{dir, accepted}
	a.mu.Unlock()
	a.send()
}

func (a *assignments) send() {
	a.mu.Lock()
	if a.busy || len(a.ready) == 0 {
		a.mu.Unlock()
		return
	}
	sent := make(map[kafka.TopicIDPartition]assignment, min(len(a.ready), maxAssignments))
	for p, as := range a.ready {
		if len(sent) == maxAssignments {
			break
		}
		sent[p] = as
		delete(a.ready, p)
	}
	a.busy = true
	a.mu.Unlock()
	a.uplink.assignDirectories(sent, func(resp *kmsg.AssignReplicasToDirsResponse, err error) { a.answered(sent, resp, err) })
}

// answered takes in the controller's answer: what it accepted is done, what it doesn't know is forgotten, the rest is sent again.
func (a *assignments) answered(sent map[kafka.TopicIDPartition]assignment, resp *kmsg.AssignReplicasToDirsResponse, err error) {
	var accepted []func()
	if err == nil {
		for _, d := range resp.Directories {
			for _, t := range d.Topics {
				for _, q := range t.Partitions {
					p := kafka.TopicIDPartition{TopicID: t.TopicID, Partition: q.Partition}
					as, ok := sent[p]
					if !ok {
						continue
					}
					switch q.ErrorCode {
					case 0:
						if as.accepted != nil {
							accepted = append(accepted, as.accepted)
						}
						delete(sent, p)
					case kerr.UnknownTopicID.Code, kerr.UnknownTopicOrPartition.Code, kerr.NotLeaderOrFollower.Code:
						delete(sent, p) // this broker will hear of it
					default:
						err = kerr.ForCode(q.ErrorCode)
					}
				}
			}
		}
		if err == nil && len(sent) > 0 {
			err = errors.New("the answer doesn't name all replicas")
		}
	}
	a.mu.Lock()
	for p, as := range sent {
		if _, newer := a.ready[p]; !newer {
			a.ready[p] = as
		}
	}
	if err == nil {
		a.busy, a.backoff = false, 0
		a.mu.Unlock()
		for _, f := range accepted {
			f()
		}
		a.send()
		return
	}
	a.backoff = min(max(2*a.backoff, assignBackoffFirst), assignBackoffMax)
	wait := a.backoff
	a.mu.Unlock()
	for _, f := range accepted {
		f()
	}
	select {
	case <-a.uplink.stop:
		return
	default:
	}
	a.uplink.log.Warn("the controller did not take the directories of replicas, trying again", "replicas", len(sent), "error", err)
	time.AfterFunc(wait, func() {
		select {
		case <-a.uplink.stop:
			return
		default:
		}
		a.mu.Lock()
		a.busy = false
		a.mu.Unlock()
		a.send()
	})
}

// assignDirectories sends one request.
func (u *Uplink) assignDirectories(where map[kafka.TopicIDPartition]assignment, done func(*kmsg.AssignReplicasToDirsResponse, error)) {
	req := kmsg.NewPtrAssignReplicasToDirsRequest()
	_, epoch := u.State()
	req.BrokerID, req.BrokerEpoch = u.opts.Registration.BrokerID, int64(epoch)
	type place struct {
		dir   kafka.DirectoryID
		topic kafka.TopicID
	}
	dirs := make(map[kafka.DirectoryID]int)
	topics := make(map[place]int)
	for p, as := range where {
		i, ok := dirs[as.dir]
		if !ok {
			i = len(req.Directories)
			dirs[as.dir] = i
			d := kmsg.NewAssignReplicasToDirsRequestDirectory()
			d.ID = as.dir
			req.Directories = append(req.Directories, d)
		}
		d := &req.Directories[i]
		j, ok := topics[place{as.dir, p.TopicID}]
		if !ok {
			j = len(d.Topics)
			topics[place{as.dir, p.TopicID}] = j
			t := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
			t.TopicID = p.TopicID
			d.Topics = append(d.Topics, t)
		}
		q := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
		q.Partition = p.Partition
		d.Topics[j].Partitions = append(d.Topics[j].Partitions, q)
	}
	u.Ask(req, time.Now().Add(assignTimeout), func(m kmsg.Response, err error) {
		resp, ok := m.(*kmsg.AssignReplicasToDirsResponse)
		switch {
		case err != nil:
		case !ok:
			err = errors.New("the answer to AssignReplicasToDirs is of another kind")
		default:
			err = kerr.ForCode(resp.ErrorCode)
		}
		done(resp, err)
	})
}
