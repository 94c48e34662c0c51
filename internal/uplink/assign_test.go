package uplink

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// The directories of replicas come to the controller, each until it has taken it: after an error of the whole, of one replica, and
// after an answer that leaves one out; what it doesn't know any more is forgotten.
func TestAssign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		known := make(map[kafka.TopicIDPartition]kafka.DirectoryID)
		tries := make(map[int32]int)
		u := newUplink(func(req kmsg.Request) (kmsg.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			q := req.(*kmsg.AssignReplicasToDirsRequest)
			resp := kmsg.NewPtrAssignReplicasToDirsResponse()
			n := 0
			for _, d := range q.Directories {
				for _, topic := range d.Topics {
					for _, p := range topic.Partitions {
						n++
						tries[p.Partition]++
						out := kmsg.NewAssignReplicasToDirsResponseDirectoryTopicPartition()
						out.Partition = p.Partition
						switch {
						case p.Partition == 1 && tries[1] < 3:
							out.ErrorCode = kerr.UnknownServerError.Code
						case p.Partition == 2:
							out.ErrorCode = kerr.UnknownTopicOrPartition.Code
						case p.Partition == 3 && tries[3] < 2:
							continue
						default:
							known[kafka.TopicIDPartition{TopicID: topic.TopicID, Partition: p.Partition}] = d.ID
						}
						rt := kmsg.NewAssignReplicasToDirsResponseDirectoryTopic()
						rt.TopicID = topic.TopicID
						rt.Partitions = append(rt.Partitions, out)
						rd := kmsg.NewAssignReplicasToDirsResponseDirectory()
						rd.ID, rd.Topics = d.ID, append(rd.Topics, rt)
						resp.Directories = append(resp.Directories, rd)
					}
				}
			}
			sizes = append(sizes, n)
			if q.BrokerID != 1 || n > maxAssignments {
				t.Errorf("broker %d, %d replicas", q.BrokerID, n)
			}
			if len(sizes) == 1 {
				return nil, errors.New("no connection")
			}
			if len(sizes) == 2 {
				return &kmsg.AssignReplicasToDirsResponse{ErrorCode: kerr.StaleBrokerEpoch.Code}, nil
			}
			return resp, nil
		})
		accepted := make(map[int32]int)
		assign := func(p int32, dir byte) {
			u.Assign(kafka.TopicIDPartition{TopicID: kafka.TopicID{1}, Partition: p}, kafka.DirectoryID{dir}, func() {
				mu.Lock()
				defer mu.Unlock()
				accepted[p]++
			})
		}
		for p := range int32(5) {
			assign(p, 7)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		for p := range int32(5) {
			if got := known[kafka.TopicIDPartition{TopicID: kafka.TopicID{1}, Partition: p}]; (got == kafka.DirectoryID{7}) != (p != 2) || accepted[p] != map[bool]int{true: 1}[p != 2] {
				t.Errorf("partition %d: directory %v, accepted %d times after %d tries", p, got, accepted[p], tries[p])
			}
		}
		if tries[2] != 1 {
			t.Errorf("what the controller doesn't know was sent %d times", tries[2])
		}
		sizes = sizes[:2]
		mu.Unlock()
		// Another directory while the first waits for its turn: the last one counts. Many go in more than one request.
		for p := range int32(3 * maxAssignments) {
			assign(100+p, 8)
		}
		assign(100, 9)
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if got := known[kafka.TopicIDPartition{TopicID: kafka.TopicID{1}, Partition: 100}]; got != (kafka.DirectoryID{9}) {
			t.Errorf("directory %v", got)
		}
		if len(known) != 4+3*maxAssignments {
			t.Errorf("%d replicas are known", len(known))
		}
	})
}
