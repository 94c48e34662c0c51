package api

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/rpc"
)

// from is what is asked of one partition.
type from struct {
	topic     int
	name      string
	partition int32
	offset    int64
	maxBytes  int32 // 0: a megabyte
}

// fetchReq is a Fetch that answers at once and opens no session.
func fetchReq(version int16, parts ...from) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(version)
	req.MinBytes, req.MaxBytes, req.SessionEpoch, req.ReplicaID = 1, 50<<20, -1, -1
	for _, p := range parts {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.name {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = p.name, topicID(p.topic)
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		q := kmsg.NewFetchRequestTopicPartition()
		q.Partition, q.FetchOffset, q.PartitionMaxBytes = p.partition, p.offset, p.maxBytes
		if q.PartitionMaxBytes == 0 {
			q.PartitionMaxBytes = 1 << 20
		}
		t.Partitions = append(t.Partitions, q)
	}
	return req
}

func (w *world) fetch(req *kmsg.FetchRequest) *kmsg.FetchResponse {
	w.t.Helper()
	return call(w, w.Fetch, req, kmsg.NewPtrFetchResponse())
}

// summary is an answer as text: name-partition, values or error, high watermark, in its order.
func summary(t testing.TB, resp *kmsg.FetchResponse) string {
	t.Helper()
	var out []string
	if resp.ErrorCode != 0 {
		out = append(out, kerr.ForCode(resp.ErrorCode).(*kerr.Error).Name)
	}
	for _, topic := range resp.Topics {
		name := topic.Topic
		if name == "" {
			name = fmt.Sprint(int(topic.TopicID[0])<<8 | int(topic.TopicID[1]))
		}
		for _, p := range topic.Partitions {
			what := strings.Join(valuesOf(t, p.RecordBatches), ",")
			if p.ErrorCode != 0 {
				what = kerr.ForCode(p.ErrorCode).(*kerr.Error).Name
			}
			out = append(out, fmt.Sprintf("%s-%d[%s]%d", name, p.Partition, what, p.HighWatermark))
		}
	}
	return strings.Join(out, " ")
}

func (w *world) fill(part to, values ...string) {
	w.t.Helper()
	for _, v := range values {
		part.records = batchOf(w.t, v)
		if p := w.produce(produceOf(9, 1, part)).Topics[0].Partitions[0]; p.ErrorCode != 0 {
			w.t.Fatalf("%+v", p)
		}
	}
}

// Every version reads what is there, from where it was asked, and tells errors beside.
func TestFetchVersions(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 3, 1)
	w.topic(2, "b", 1, 2)
	w.fill(to{1, "a", 0, nil}, "x", "y", "z")
	w.fill(to{1, "a", 1, nil}, "v")
	for v := int16(4); v <= 18; v++ {
		a, b := "a", "b"
		if v >= 13 {
			a, b = "1", "2"
		}
		check := func(want string, parts ...from) {
			t.Helper()
			if got := summary(t, w.fetch(fetchReq(v, parts...))); got != strings.NewReplacer("a-", a+"-", "b-", b+"-").Replace(want) {
				t.Errorf("version %d: %s, want %s", v, got, want)
			}
		}
		check("a-0[y,z]3 a-1[v]1 a-2[]0", from{1, "a", 0, 1, 0}, from{1, "a", 1, 0, 0}, from{1, "a", 2, 0, 0})
		check("a-0[OFFSET_OUT_OF_RANGE]-1 a-1[v]1", from{1, "a", 0, 4, 0}, from{1, "a", 1, 0, 0})
		check("a-0[]3", from{1, "a", 0, 3, 0})
		check("b-0[NOT_LEADER_OR_FOLLOWER]-1", from{2, "b", 0, 0, 0})
		if v < 13 {
			check("a-1[v]1 a-9[UNKNOWN_TOPIC_OR_PARTITION]-1", from{1, "a", 9, 0, 0}, from{1, "a", 1, 0, 0})
			check("none-0[UNKNOWN_TOPIC_OR_PARTITION]-1", from{9, "none", 0, 0, 0})
		} else {
			check("9-0[UNKNOWN_TOPIC_ID]-1", from{9, "none", 0, 0, 0})
		}
		resp := w.fetch(fetchReq(v, from{2, "b", 0, 0, 0}))
		if p := resp.Topics[0].Partitions[0]; v >= 16 != (p.CurrentLeader.LeaderID == 2) || v >= 16 != (len(resp.Brokers) == 1) {
			t.Errorf("version %d: leader %+v, brokers %+v", v, p.CurrentLeader, resp.Brokers)
		}
	}
	r := w.request(fetchReq(11, from{1, "a", 0, 0, 0}))
	r.Body = r.Body[:len(r.Body)-1]
	if w.Fetch(r); r.Response.Fail == nil {
		t.Error("a truncated body was answered")
	}
}

// The answer's size is bounded by what partition, request and broker allow; the first batch is told whole in any case.
func TestFetchMaxBytes(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 3, 1)
	size := int32(len(batchOf(t, "x")))
	for i := range int32(3) {
		w.fill(to{1, "a", i, nil}, "1", "2", "3")
	}
	f := func(want string, max, limit int32, part ...int32) {
		t.Helper()
		var parts []from
		for i, m := range part {
			parts = append(parts, from{1, "a", int32(i), 0, m})
		}
		req := fetchReq(11, parts...)
		req.MaxBytes = max
		w.Limits.FetchMaxBytes = int(limit)
		if got := summary(t, w.fetch(req)); got != want {
			t.Errorf("%d, %d, %v: %s, want %s", max, limit, part, got, want)
		}
	}
	big := int32(1 << 20)
	f("a-0[1,2,3]3 a-1[1,2,3]3 a-2[1,2,3]3", big, big, big, big, big)
	f("a-0[1]3 a-1[]3 a-2[]3", 1, big, big, big, big)
	f("a-0[1]3 a-1[]3 a-2[]3", big, 1, big, big, big)
	f("a-0[1]3 a-1[]3 a-2[1,2,3]3", big, big, 1, 1, big)
	f("a-0[1,2]3 a-1[1]3 a-2[]3", 3*size, big, 2*size, big, big)
	f("a-0[1,2,3]3 a-1[1,2]3 a-2[]3", 5*size, big, big, big, big)
	f("a-0[1,2,3]3 a-1[]3 a-2[]3", 4*size-1, big, big, big, big)
}

// A consumer that wants more than there is waits until it is there, until there is an error, or until its time is over.
func TestFetchWaits(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 2, 1)
	size := int32(len(batchOf(t, "x")))
	version := int16(12)
	wait := func(minBytes int32, parts ...from) (*rpc.Request, *rpc.Pending) {
		t.Helper()
		req := fetchReq(version, parts...)
		req.MaxWaitMillis, req.MinBytes = 500, minBytes
		r, p := w.begin(w.Fetch, req)
		return r, p
	}
	end := func(r *rpc.Request, p *rpc.Pending, byDeadline bool, want string) {
		t.Helper()
		if p == nil {
			t.Fatalf("answered at once; want %s later", want)
		}
		if done, _ := p.Done(); done == byDeadline {
			t.Errorf("done %v before the deadline", done)
		}
		finish(r, p)
		if got := summary(t, answer(t, r, kmsg.NewPtrFetchResponse())); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	both := []from{{1, "a", 0, 0, 0}, {1, "a", 1, 0, 0}}

	r, p := wait(1, both...)
	if p == nil || p.Deadline.Sub(w.now).Milliseconds() != 500 {
		t.Fatalf("pending %+v", p)
	}
	w.fill(to{1, "a", 1, nil}, "x")
	end(r, p, false, "a-0[]0 a-1[x]1")

	r, p = wait(3*size, both...) // two more are needed
	w.fill(to{1, "a", 1, nil}, "y")
	if done, _ := p.Done(); done {
		t.Error("done with two of three batches")
	}
	w.fill(to{1, "a", 0, nil}, "z")
	end(r, p, false, "a-0[z]1 a-1[x,y]2")

	r, p = wait(1000, both...)
	end(r, p, true, "a-0[z]1 a-1[x,y]2")
	r, p = wait(1, from{1, "a", 0, 1, 0})
	end(r, p, true, "a-0[]1")

	if r, p = wait(1000, from{1, "a", 0, 7, 0}, both[1]); p != nil {
		t.Error("an error waits")
	} else if got := summary(t, answer(t, r, kmsg.NewPtrFetchResponse())); got != "a-0[OFFSET_OUT_OF_RANGE]-1 a-1[x,y]2" {
		t.Error(got)
	}
	if _, p = wait(1, from{1, "a", 7, 0, 0}); p != nil {
		t.Error("an error waits")
	}
	if _, p = wait(1); p != nil {
		t.Error("a fetch of nothing waits")
	}
	if _, p = wait(0, from{1, "a", 0, 1, 0}); p != nil {
		t.Error("a fetch of min.bytes=0 waits")
	}

	version = 10 // from 11 on a follower would do
	r, p = wait(1, from{1, "a", 0, 1, 0})
	w.lead(1, 0, 2)
	end(r, p, false, "a-0[NOT_LEADER_OR_FOLLOWER]-1")
	r, p = wait(1, from{1, "a", 1, 2, 0})
	w.remove(1)
	end(r, p, false, "a-1[UNKNOWN_TOPIC_OR_PARTITION]-1")

	// A connection that goes away while it waits leaves nothing behind.
	w.topic(2, "b", 1, 1)
	_, p = wait(1, from{2, "b", 0, 0, 0})
	p.Abandon()
	w.fill(to{2, "b", 0, nil}, "x")
	if done, _ := p.Done(); done {
		t.Error("woken after it was abandoned")
	}
}

// session steps an incremental session.
type session struct {
	w     *world
	id    int32
	epoch int32
	v     int16
}

func (s *session) begin(maxWait int32, parts ...from) (*rpc.Request, *rpc.Pending) {
	req := fetchReq(s.v, parts...)
	req.SessionID, req.SessionEpoch, req.MaxWaitMillis = s.id, s.epoch, maxWait
	return s.w.begin(s.w.Fetch, req)
}

func (s *session) end(r *rpc.Request, p *rpc.Pending) string {
	s.w.t.Helper()
	finish(r, p)
	resp := answer(s.w.t, r, kmsg.NewPtrFetchResponse())
	if resp.ErrorCode == 0 {
		if s.epoch > 0 && resp.SessionID != s.id {
			s.w.t.Errorf("session %d, was %d", resp.SessionID, s.id)
		}
		s.id = resp.SessionID
		s.epoch++
	}
	return summary(s.w.t, resp)
}

// A session tells what is new, whatever way it comes: records, errors, topics that go and come again.
func TestFetchSession(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 2, 1)
	w.topic(2, "b", 1, 1)
	for _, v := range []int16{12, 18} {
		w.topic(10, "c", 1, 1)
		s := &session{w: w, v: v}
		name := func(s string) string {
			if v >= 13 {
				return strings.NewReplacer("a-", "1-", "b-", "2-", "c-", "10-", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID").Replace(s)
			}
			return s
		}
		f := func(want string, parts ...from) {
			t.Helper()
			r, p := s.begin(0, parts...)
			if got := s.end(r, p); got != name(want) {
				t.Errorf("version %d: %q, want %q", v, got, name(want))
			}
		}
		endOf := func(topic string, partition int32) int64 {
			rep, err := w.set.Lookup(topic, partition)
			if err != nil {
				t.Fatal(err)
			}
			return rep.Log().EndOffset()
		}
		n := endOf("a", 0)
		f(fmt.Sprintf("a-0[]%d a-1[]%d b-0[]%d c-0[]0", n, n, n), from{1, "a", 0, n, 0}, from{1, "a", 1, n, 0}, from{2, "b", 0, n, 0}, from{10, "c", 0, 0, 0})
		if s.id == 0 {
			t.Fatal("no session")
		}
		f("")
		f("")
		w.fill(to{1, "a", 1, nil}, "x")
		f(fmt.Sprintf("a-1[x]%d", n+1))
		f(fmt.Sprintf("a-1[x]%d", n+1)) // the consumer has not gone on
		f("", from{1, "a", 1, n + 1, 0})
		f("")
		w.fill(to{1, "a", 0, nil}, "y")
		w.fill(to{2, "b", 0, nil}, "z")
		f(fmt.Sprintf("b-0[z]%d a-0[y]%d", n+1, n+1), from{2, "b", 0, n, 0}, from{1, "a", 0, n, 0})
		f("", from{1, "a", 0, n + 1, 0}, from{2, "b", 0, n + 1, 0})

		// A long poll in the session, told by an append to a partition that was quiet, or not told.
		r, p := s.begin(1000)
		if p == nil {
			t.Fatal("an incremental fetch of quiet partitions doesn't wait")
		}
		w.fill(to{1, "a", 1, nil}, "w")
		if done, _ := p.Done(); !done {
			t.Error("an append doesn't wake the session")
		}
		if got := s.end(r, p); got != name(fmt.Sprintf("a-1[w]%d", n+2)) {
			t.Errorf("version %d: %q", v, got)
		}
		f("", from{1, "a", 1, n + 2, 0})
		r, p = s.begin(1000)
		if done, _ := p.Done(); done {
			t.Error("woken by nothing")
		}
		if got := s.end(r, p); got != "" {
			t.Errorf("version %d: %q after a time-out", v, got)
		}
		w.fill(to{1, "a", 0, nil}, "q")
		w.fill(to{2, "b", 0, nil}, "q")
		f(fmt.Sprintf("a-0[q]%d b-0[q]%d", n+2, n+2))
		f("", from{1, "a", 0, n + 2, 0}, from{2, "b", 0, n + 2, 0})

		// A topic is deleted while a long poll of the session waits; then it is there again.
		r, p = s.begin(1000)
		w.remove(10)
		if done, _ := p.Done(); !done {
			t.Error("a deletion doesn't wake the session")
		}
		if got := s.end(r, p); got != name("c-0[UNKNOWN_TOPIC_OR_PARTITION]-1") {
			t.Errorf("version %d: %q", v, got)
		}
		f("c-0[UNKNOWN_TOPIC_OR_PARTITION]-1") // as long as the client asks
		if v < 13 {
			w.topic(11, "c", 1, 1)
			f("c-0[]0")
			w.fill(to{11, "c", 0, nil}, "new")
			f("c-0[new]1")
			w.remove(11)
		}

		// A wrong epoch, an unknown session.
		right := *s
		s.epoch += 5
		f("INVALID_FETCH_SESSION_EPOCH")
		s.epoch, s.id = 3, 12345
		f("FETCH_SESSION_ID_NOT_FOUND")
		*s = right
		// The end.
		r, p = s.begin(0, from{1, "a", 0, n + 2, 0})
		if p != nil {
			p.Expire()
		}
		_ = s.end(r, p)
		s.epoch = -1
		f(fmt.Sprintf("a-0[]%d", n+2), from{1, "a", 0, n + 2, 0})
		if got := w.Sessions.Stats(); got.Sessions != 0 {
			t.Errorf("%d sessions are left", got.Sessions)
		}
		for i := range int32(2) { // as many everywhere for the next version
			for endOf("a", i) < n+2 {
				w.fill(to{1, "a", i, nil}, "fill")
			}
		}
	}
}

// A random session beside a naive model: whatever comes, the client ends up with all records of all partitions in order.
func TestFetchSessionRandom(t *testing.T) {
	for seed := range uint64(30) {
		w := newWorld(t)
		rng := rand.New(rand.NewPCG(seed, 77))
		const partitions = 6
		w.topic(1, "a", partitions, 1)
		var written, got [partitions][]string
		s := &session{w: w, v: int16(12 + rng.IntN(7))}
		inSession := map[int32]int64{} // the offset that the session knows
		for step := range 200 {
			for range rng.IntN(4) {
				i := rng.IntN(partitions)
				v := fmt.Sprintf("%d/%d", i, len(written[i]))
				w.fill(to{1, "a", int32(i), nil}, v)
				written[i] = append(written[i], v)
			}
			if s.epoch != 0 && rng.IntN(15) == 0 { // begin anew
				s.epoch, inSession = 0, map[int32]int64{} // with the id: it closes the old one
			}
			var parts []from
			for i := range int32(partitions) {
				known, in := inSession[i]
				if offset := int64(len(got[i])); in && known != offset || !in && rng.IntN(3) == 0 {
					parts = append(parts, from{1, "a", i, offset, int32(50 + rng.IntN(300))})
					inSession[i] = offset
				}
			}
			if s.epoch == 0 && len(parts) == 0 {
				continue
			}
			req := fetchReq(s.v, parts...)
			req.SessionID, req.SessionEpoch, req.MaxWaitMillis, req.MaxBytes = s.id, s.epoch, int32(rng.IntN(2)*100), int32(70+rng.IntN(400))
			for i := range int32(partitions) {
				if _, in := inSession[i]; in && s.epoch != 0 && rng.IntN(12) == 0 && !slices.ContainsFunc(parts, func(f from) bool { return f.partition == i }) {
					req.ForgottenTopics = append(req.ForgottenTopics, kmsg.FetchRequestForgottenTopic{Topic: "a", TopicID: topicID(1), Partitions: []int32{i}})
					delete(inSession, i)
				}
			}
			if s.epoch != 0 && len(inSession) == 0 {
				s.epoch = 0
				continue
			}
			r, p := w.begin(w.Fetch, req)
			if p != nil && rng.IntN(2) == 0 {
				i := rng.IntN(partitions)
				v := fmt.Sprintf("%d/%d", i, len(written[i]))
				w.fill(to{1, "a", int32(i), nil}, v)
				written[i] = append(written[i], v)
				if _, in := inSession[int32(i)]; in {
					if done, _ := p.Done(); !done {
						t.Fatalf("seed %d, step %d: partition %d doesn't wake the session", seed, step, i)
					}
				}
			}
			finish(r, p)
			resp := answer(t, r, kmsg.NewPtrFetchResponse())
			if resp.ErrorCode != 0 || resp.SessionID == 0 {
				t.Fatalf("seed %d, step %d: %+v", seed, step, resp)
			}
			s.id = resp.SessionID
			s.epoch++
			news := false
			for _, topic := range resp.Topics {
				for _, q := range topic.Partitions {
					if _, in := inSession[q.Partition]; !in || q.ErrorCode != 0 || q.HighWatermark != int64(len(written[q.Partition])) {
						t.Fatalf("seed %d, step %d: %+v", seed, step, q)
					}
					values := valuesOf(t, q.RecordBatches)
					news = news || len(values) > 0
					got[q.Partition] = append(got[q.Partition], values...)
				}
			}
			for i := range inSession {
				if !news && len(got[i]) < len(written[i]) {
					t.Fatalf("seed %d, step %d: an answer without records, though partition %d has some", seed, step, i)
				}
			}
			for i := range partitions {
				if !slices.Equal(got[i], written[i][:len(got[i])]) {
					t.Fatalf("seed %d, step %d: partition %d: %q of %q", seed, step, i, got[i], written[i])
				}
			}
		}
		if w.Sessions.Stats().Sessions > 10 {
			t.Error("too many sessions")
		}
	}
}

// Consumers with long polls, with and without sessions, beside producers: everybody gets everything in order, nobody sleeps
// through news. For the race detector, too.
func TestFetchConcurrent(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 2, 1)
	const each = 150
	var wg sync.WaitGroup
	for i := range int32(2) {
		wg.Go(func() {
			for n := range each {
				w.fill(to{1, "a", i, nil}, fmt.Sprint(n))
			}
		})
	}
	for c := range 4 {
		wg.Go(func() {
			next := [2]int64{}
			s := &session{w: w, v: 12}
			for next[0] < each || next[1] < each {
				req := fetchReq(12, from{1, "a", 0, next[0], 0}, from{1, "a", 1, next[1], 0})
				req.MaxWaitMillis, req.MinBytes = 60000, int32(1+c/2*100)
				if c%2 == 0 {
					req.SessionID, req.SessionEpoch = s.id, s.epoch
				}
				r, p := w.begin(w.Fetch, req)
				if p != nil {
					done := make(chan struct{}, 2)
					wake := func() { done <- struct{}{} }
					p.OnDone(&wake)
					if req.MinBytes == 1 || next[0]+next[1] < 2*each-4 {
						<-done // the test hangs if news get lost
					} else {
						p.Expire() // less may be left than is asked for
					}
					r.Response = rpc.Response{}
					p.Finish(r, false)
				}
				resp := answer(t, r, kmsg.NewPtrFetchResponse())
				if resp.ErrorCode != 0 {
					t.Errorf("%+v", resp)
					return
				}
				s.id = resp.SessionID
				s.epoch++
				for _, topic := range resp.Topics {
					for _, q := range topic.Partitions {
						for _, v := range valuesOf(t, q.RecordBatches) {
							if v != fmt.Sprint(next[q.Partition]) {
								t.Errorf("consumer %d: %s at %d", c, v, next[q.Partition])
								return
							}
							next[q.Partition]++
						}
					}
				}
			}
		})
	}
	wg.Wait()
}

// A follower's fetch is answered at once when it doesn't know the high watermark yet, and its progress commits.
func TestFetchFollower(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 1, 1, 2)
	w.fill(to{1, "a", 0, nil}, "x")
	req := func(offset, hw int64) *kmsg.FetchRequest {
		r := fetchReq(18, from{1, "a", 0, offset, 0})
		r.ReplicaState.ID, r.ReplicaState.Epoch, r.MaxWaitMillis = 2, 102, 500
		r.Topics[0].Partitions[0].CurrentLeaderEpoch = 0
		r.Topics[0].Partitions[0].HighWatermark = hw
		return r
	}
	if got := summary(t, w.fetch(req(0, 0))); got != "1-0[x]0" {
		t.Errorf("first fetch: %s", got)
	}
	r, p := w.begin(w.Fetch, req(1, 0))
	if p != nil {
		t.Error("a follower that doesn't know the high watermark waits")
	}
	if got := summary(t, answer(t, r, kmsg.NewPtrFetchResponse())); got != "1-0[]1" {
		t.Errorf("second fetch: %s", got)
	}
	r, p = w.begin(w.Fetch, req(1, 1))
	if p == nil {
		t.Fatal("the third fetch doesn't wait")
	}
	w.fill(to{1, "a", 0, nil}, "y")
	if done, _ := p.Done(); !done {
		t.Error("an append that is not committed doesn't wake a follower")
	}
	finish(r, p)
	if got := summary(t, answer(t, r, kmsg.NewPtrFetchResponse())); got != "1-0[y]1" {
		t.Errorf("third fetch: %s", got)
	}
	stranger := req(0, 0)
	stranger.ReplicaState.ID = 3
	if got := summary(t, w.fetch(stranger)); got != "1-0[NOT_LEADER_OR_FOLLOWER]-1" {
		t.Errorf("a stranger's fetch: %s", got)
	}
}
