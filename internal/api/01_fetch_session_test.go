package api

// Fetch sessions: the rules of KIP-227 as scripts, eviction as Kafka's cache does it, and a long random history in which a
// session with quiet partitions must answer exactly what one that looks at everything answers.

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

var epoch0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newSessions(slots int) *Sessions { return NewSessions(slots, rand.New(rand.NewPCG(1, 2))) }

// fetchOf is a request; parts are "topic-0", forgotten ones "!topic-0".
func fetchOf(id, epoch int32, parts ...string) *FetchRequest {
	f := &FetchRequest{SessionID: id, SessionEpoch: epoch}
	for _, s := range parts {
		name, forget := strings.CutPrefix(s, "!")
		tp, ok := kafka.ParseTopicPartition(name)
		if !ok {
			panic(s)
		}
		if forget {
			f.Forgotten = append(f.Forgotten, ForgottenTopic{Name: tp.Topic, Partitions: []int32{tp.Partition}})
			continue
		}
		f.Topics = append(f.Topics, FetchTopic{Name: tp.Topic, Partitions: []FetchPartition{{Partition: tp.Partition, MaxBytes: 100}}})
	}
	return f
}

// answerer answers what it is told of partitions.
type answerer map[string]FetchPartitionResponse

func (a answerer) run(c *FetchContext, now time.Time) (string, *FetchResponse) {
	resp := GetFetchResponse()
	c.Each(func(p *SessionPartition) {
		q := resp.Add(p.Topic, p.TopicID, p.Partition)
		if x, ok := a[fmt.Sprintf("%s-%d", p.Topic, p.Partition)]; ok {
			q.ErrorCode, q.HighWatermark, q.LogStartOffset, q.Records = x.ErrorCode, x.HighWatermark, x.LogStartOffset, x.Records
			if x.PreferredReadReplica != 0 {
				q.PreferredReadReplica = x.PreferredReadReplica
			}
		}
		if !c.Keep(p, q) {
			resp.Drop()
		}
	})
	c.Finish(now, resp)
	var out []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%s-%d", t.Name, p.Partition))
		}
	}
	s := strings.Join(out, " ")
	if resp.ErrorCode != 0 {
		s = strings.TrimSpace(kerr.ForCode(resp.ErrorCode).(*kerr.Error).Name + " " + s)
	}
	return s, resp
}

func TestSessionRules(t *testing.T) {
	s := newSessions(10)
	a := answerer{"a-0": {HighWatermark: 5}, "a-1": {HighWatermark: 6}, "b-0": {HighWatermark: 7}}
	var id int32
	f := func(version int16, req *FetchRequest, want string) int32 {
		t.Helper()
		c := s.Begin(epoch0, version, req, false)
		got, resp := a.run(c, epoch0)
		if got != want {
			t.Errorf("answer %q, want %q", got, want)
		}
		c.Put()
		return resp.SessionID
	}
	// Without a session.
	if id = f(4, fetchOf(0, -1, "a-0", "a-1"), "a-0 a-1"); id != 0 {
		t.Errorf("session %d of a fetch that wants none", id)
	}
	f(7, fetchOf(0, 5, "a-0"), "FETCH_SESSION_ID_NOT_FOUND")
	f(7, fetchOf(77, 1), "FETCH_SESSION_ID_NOT_FOUND")

	id = f(7, fetchOf(0, 0, "a-0", "a-1", "b-0"), "a-0 a-1 b-0")
	if id <= 0 {
		t.Fatalf("session %d", id)
	}
	if s.Stats() != (SessionStats{1, 3, 0}) {
		t.Errorf("%+v", s.Stats())
	}
	f(7, fetchOf(id, 1), "")
	f(7, fetchOf(id, 1), "INVALID_FETCH_SESSION_EPOCH")
	f(7, fetchOf(id, 3), "INVALID_FETCH_SESSION_EPOCH")
	f(13, fetchOf(id, 2), "FETCH_SESSION_TOPIC_ID_ERROR")
	a["a-1"] = FetchPartitionResponse{HighWatermark: 8}
	f(12, fetchOf(id, 2), "a-1")
	f(12, fetchOf(id, 3), "")
	a["b-0"] = FetchPartitionResponse{HighWatermark: 7, LogStartOffset: 2}
	f(12, fetchOf(id, 4), "b-0")
	// Errors are told each time, and the partition once more when they are over.
	a["a-0"] = FetchPartitionResponse{ErrorCode: 6, HighWatermark: -1}
	f(12, fetchOf(id, 5), "a-0")
	f(12, fetchOf(id, 6), "a-0")
	a["a-0"] = FetchPartitionResponse{HighWatermark: 5}
	f(12, fetchOf(id, 7), "a-0")
	f(12, fetchOf(id, 8), "")
	// A preferred replica is told as long as there is one.
	a["a-0"] = FetchPartitionResponse{HighWatermark: 5, PreferredReadReplica: 3}
	f(12, fetchOf(id, 9), "a-0")
	f(12, fetchOf(id, 10), "a-0")
	a["a-0"] = FetchPartitionResponse{HighWatermark: 5}
	// Records send a partition to the end of the queue.
	a["a-0"] = FetchPartitionResponse{HighWatermark: 5, Records: []byte("x")}
	a["a-1"] = FetchPartitionResponse{HighWatermark: 9, Records: []byte("x")}
	f(12, fetchOf(id, 11), "a-0 a-1")
	a["a-0"] = FetchPartitionResponse{HighWatermark: 6, Records: []byte("x")}
	a["b-0"] = FetchPartitionResponse{HighWatermark: 8, LogStartOffset: 2}
	a["a-1"] = FetchPartitionResponse{HighWatermark: 9}
	f(12, fetchOf(id, 12), "b-0 a-0")
	// New ones come in at the end, forgotten ones leave.
	a["a-0"] = FetchPartitionResponse{HighWatermark: 6}
	f(12, fetchOf(id, 13, "c-0", "!a-1", "!nothing-1"), "c-0")
	if s.Stats() != (SessionStats{1, 3, 0}) {
		t.Errorf("%+v", s.Stats())
	}
	// A session without partitions is over; the fetch still gets its answer.
	f(12, fetchOf(id, 14, "!a-0", "!b-0", "!c-0"), "")
	f(12, fetchOf(id, 15), "FETCH_SESSION_ID_NOT_FOUND")

	// A full fetch ends the session that it names, and opens another if its epoch is 0.
	id = f(12, fetchOf(0, 0, "a-0"), "a-0")
	second := f(12, fetchOf(id, 0, "a-0", "a-1"), "a-0 a-1")
	f(12, fetchOf(id, 1), "FETCH_SESSION_ID_NOT_FOUND")
	if got := f(12, fetchOf(second, -1, "b-0"), "b-0"); got != 0 {
		t.Errorf("session %d", got)
	}
	f(12, fetchOf(second, 1), "FETCH_SESSION_ID_NOT_FOUND")
	if s.Stats() != (SessionStats{0, 0, 0}) {
		t.Errorf("%+v", s.Stats())
	}
	// Named twice: once, as named last.
	c := s.Begin(epoch0, 7, &FetchRequest{SessionEpoch: 0, Topics: []FetchTopic{{Name: "a", Partitions: []FetchPartition{
		{Partition: 1, FetchOffset: 1}, {Partition: 0, FetchOffset: 2}, {Partition: 1, FetchOffset: 3}}}}}, false)
	var offsets []int64
	c.Each(func(p *SessionPartition) { offsets = append(offsets, p.FetchOffset) })
	if fmt.Sprint(offsets) != "[3 2]" {
		t.Errorf("offsets %v", offsets)
	}
	c.Put()
}

func TestSessionEpochWraps(t *testing.T) {
	for e, want := range map[int32]int32{0: 1, 1: 2, math.MaxInt32 - 1: math.MaxInt32, math.MaxInt32: 1, -1: -1, -7: -1} {
		if got := nextEpoch(e); got != want {
			t.Errorf("after %d: %d, want %d", e, got, want)
		}
	}
}

// Two requests with consecutive epochs at once: the first is overtaken and answers nothing.
func TestSessionOvertaken(t *testing.T) {
	s, a := newSessions(10), answerer{}
	c := s.Begin(epoch0, 12, fetchOf(0, 0, "a-0"), false)
	_, resp := a.run(c, epoch0)
	id := resp.SessionID
	first := s.Begin(epoch0, 12, fetchOf(id, 1), false)
	second := s.Begin(epoch0, 12, fetchOf(id, 2), false)
	released := 0
	late := GetFetchResponse()
	late.Add("a", kafka.TopicID{}, 0).Source = &source{[]byte("x"), &released}
	if first.Each(func(*SessionPartition) { t.Error("visited") }) {
		t.Error("the overtaken fetch goes on")
	}
	first.Finish(epoch0, late)
	if late.ErrorCode != kerr.InvalidFetchSessionEpoch.Code || len(late.Topics) != 0 || released != 1 || late.SessionID != id {
		t.Errorf("%+v, %d released", late, released)
	}
	if got, _ := a.run(second, epoch0); got != "" {
		t.Errorf("%q", got)
	}
}

func TestSessionEviction(t *testing.T) {
	open := func(s *Sessions, now time.Time, follower bool, n int) int32 {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf("t-%d", i))
		}
		c := s.Begin(now, 12, fetchOf(0, 0, parts...), follower)
		defer c.Put()
		_, resp := answerer{}.run(c, now)
		return resp.SessionID
	}
	use := func(s *Sessions, now time.Time, id, epoch int32) bool {
		c := s.Begin(now, 12, fetchOf(id, epoch), false)
		defer c.Put()
		return c.Err() == nil
	}
	at := func(d time.Duration) time.Time { return epoch0.Add(d) }

	s := newSessions(0)
	if id := open(s, epoch0, true, 3); id != 0 {
		t.Errorf("a session without slots: %d", id)
	}
	s = newSessions(2)
	small, large := open(s, at(0), false, 2), open(s, at(time.Second), false, 5)
	// Young consumers' sessions are safe from other consumers, whatever their size.
	if id := open(s, at(2*time.Second), false, 9); id != 0 {
		t.Error("a young session was evicted")
	}
	// A follower's takes the smallest consumer's.
	follower := open(s, at(3*time.Second), true, 1)
	if follower == 0 || use(s, at(3*time.Second), small, 1) || !use(s, at(3*time.Second), large, 1) {
		t.Error("a follower did not get the smallest session's place")
	}
	// After two minutes, if it is still used, a larger one may replace it; an equal or smaller one may not.
	use(s, at(130*time.Second), large, 2)
	c := s.Begin(at(130*time.Second), 12, fetchOf(follower, 1), true)
	c.Put()
	if id := open(s, at(131*time.Second), false, 5); id != 0 {
		t.Error("an equal one took the place")
	}
	larger := open(s, at(132*time.Second), false, 6)
	if larger == 0 || use(s, at(132*time.Second), large, 3) || !use(s, at(132*time.Second), follower, 2) {
		t.Error("a larger session did not get the place of the small old one, or a follower's was taken")
	}
	// One that is not used for two minutes goes first, a follower's too.
	use(s, at(300*time.Second), larger, 1)
	last := open(s, at(300*time.Second), false, 1)
	if last == 0 || use(s, at(301*time.Second), follower, 3) {
		t.Error("a stale session stayed")
	}
	if got := s.Stats(); got != (SessionStats{2, 7, 3}) {
		t.Errorf("%+v", got)
	}
}

// What is set on partitions is undone when they leave, by being forgotten or with their session, also one that was closed
// while a fetch was on its way.
func TestSessionClose(t *testing.T) {
	s := newSessions(1)
	closed := map[string]int{}
	watch := func(p *SessionPartition) {
		name := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
		if p.InSession() && p.Close == nil {
			p.Close = func() { closed[name]++ }
		}
	}
	id := func() int32 {
		c := s.Begin(epoch0, 12, fetchOf(0, 0, "a-0", "a-1", "a-2"), false)
		c.Each(watch)
		_, resp := answerer{}.run(c, epoch0)
		return resp.SessionID
	}()
	c := s.Begin(epoch0, 12, fetchOf(id, 1), false)
	c.Each(watch)
	c = s.Begin(epoch0, 12, fetchOf(id, 2, "!a-1"), false)
	if fmt.Sprint(closed) != "map[a-1:1]" {
		t.Errorf("forgotten: %v", closed)
	}
	other := s.Begin(epoch0, 12, fetchOf(id, 0, "b-0"), false)
	if fmt.Sprint(closed) != "map[a-0:1 a-1:1 a-2:1]" {
		t.Errorf("ended: %v", closed)
	}
	c.Each(watch) // still on its way
	if fmt.Sprint(closed) != "map[a-0:2 a-1:1 a-2:2]" {
		t.Errorf("after the end: %v", closed)
	}
	other.Put()
}

func TestSessionTouchWakes(t *testing.T) {
	s := newSessions(1)
	c := s.Begin(epoch0, 12, fetchOf(0, 0, "a-0", "a-1"), false)
	_, resp := answerer{}.run(c, epoch0)
	c = s.Begin(epoch0, 12, fetchOf(resp.SessionID, 1), false)
	woken := 0
	c.Wake(func() { woken++ })
	var parts []*SessionPartition
	c.Each(func(p *SessionPartition) { parts = append(parts, p) })
	parts[0].Touch()
	parts[0].Touch()
	if woken != 2 {
		t.Errorf("woken %d times", woken)
	}
	c.Put()
	parts[1].Touch()
	if woken != 2 {
		t.Error("woken after the fetch was over")
	}
}

// A random history of one log with many partitions and two sessions over it: in one all partitions are quiet and touched
// when something happens to them, in the other they are all looked at. Their answers must be equal.
func TestSessionQuiet(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		type state struct{ hw, start int64 }
		logs := map[string]*state{}
		var names []string
		for i := range 12 {
			n := fmt.Sprintf("t-%d", i)
			names = append(names, n)
			logs[n] = &state{hw: int64(i)}
		}
		errs := map[string]int16{}
		sessions := newSessions(10)
		watched := map[string]map[*SessionPartition]bool{}
		touch := func(n string) {
			for p := range watched[n] {
				p.Touch()
			}
		}
		visits, room := 0, math.MaxInt
		var last map[string]string
		fetch := func(req *FetchRequest, quiet bool) string {
			c := sessions.Begin(epoch0, 12, req, false)
			if c.Err() != nil {
				t.Fatal(c.Err())
			}
			resp := GetFetchResponse()
			room := room
			c.Each(func(p *SessionPartition) {
				n := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
				if quiet && p.InSession() && !p.Quiet {
					if watched[n] == nil {
						watched[n] = map[*SessionPartition]bool{}
					}
					watched[n][p] = true
					p.Quiet, p.Close = true, func() { delete(watched[n], p) }
				}
				if quiet {
					visits++
				}
				q := resp.Add(p.Topic, p.TopicID, p.Partition)
				l := logs[n]
				p.More = false
				if e := errs[n]; e != 0 {
					q.ErrorCode, q.HighWatermark = e, -1
				} else {
					q.HighWatermark, q.LogStartOffset = l.hw, l.start
					if p.FetchOffset < l.hw {
						if room > 0 {
							room--
							q.Records = []byte("x")
						} else {
							p.More = true
						}
					}
				}
				if !c.Keep(p, q) {
					resp.Drop()
				}
			})
			c.Finish(epoch0, resp)
			// What was answered, without order: the queues differ.
			got := map[string]string{}
			for _, x := range resp.Topics {
				for _, p := range x.Partitions {
					got[fmt.Sprintf("%s-%d", x.Name, p.Partition)] = fmt.Sprint(p.ErrorCode, p.HighWatermark, p.LogStartOffset, string(p.Records))
				}
			}
			req.SessionID = resp.SessionID
			c.Put()
			last = got
			return fmt.Sprint(got)
		}
		request := func() *FetchRequest { return fetchOf(0, 0, names...) }
		a, b := request(), request()
		if x, y := fetch(a, true), fetch(b, false); x != y {
			t.Fatalf("seed %d: %s\n%s", seed, x, y)
		}
		for step := int32(1); step < 60; step++ {
			next := fetchOf(0, step)
			for range r.IntN(4) {
				n := names[r.IntN(len(names))]
				l := logs[n]
				switch r.IntN(5) {
				case 0, 1:
					l.hw++
				case 2:
					l.start = l.hw
				case 3:
					if errs[n] == 0 {
						errs[n] = 6
					} else {
						delete(errs, n)
					}
				case 4: // the reader has read all that there is
					next.Topics = append(next.Topics, fetchOf(0, 0, n).Topics...)
					next.Topics[len(next.Topics)-1].Partitions[0].FetchOffset = l.hw
				}
				touch(n)
			}
			if r.IntN(10) == 0 {
				n := names[r.IntN(len(names))]
				next.Forgotten = fetchOf(0, 0, "!"+n).Forgotten
				next.Topics = nil
			}
			x, y := *next, *next
			x.SessionID, y.SessionID = a.SessionID, b.SessionID
			got, want := fetch(&x, true), fetch(&y, false)
			if got != want {
				t.Fatalf("seed %d, step %d:\n got %s\nwant %s", seed, step, got, want)
			}
		}
		if visits >= 60*12 {
			t.Fatalf("seed %d: quiet partitions were visited %d times", seed, visits)
		}
		// With room for the records of one partition in each answer, every partition that has some comes to its turn.
		room = 1
		served := map[string]bool{}
		for step := int32(60); step < 60+12; step++ {
			fetch(fetchOf(a.SessionID, step), true)
			for n, x := range last {
				served[n] = served[n] || strings.HasSuffix(x, "x")
			}
		}
		for p := range quietOnes(watched) {
			n := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
			if errs[n] == 0 && p.FetchOffset < logs[n].hw && !served[n] {
				t.Fatalf("seed %d: %s has records and was never served", seed, n)
			}
		}
	}
}

func quietOnes(watched map[string]map[*SessionPartition]bool) map[*SessionPartition]bool {
	all := map[*SessionPartition]bool{}
	for _, ps := range watched {
		maps.Copy(all, ps)
	}
	return all
}

func BenchmarkSessionIdle(b *testing.B) {
	for _, quiet := range []bool{false, true} {
		b.Run(fmt.Sprintf("quiet=%v", quiet), func(b *testing.B) {
			s := newSessions(10)
			var parts []string
			for i := range 1000 {
				parts = append(parts, fmt.Sprintf("t-%d", i))
			}
			c := s.Begin(epoch0, 12, fetchOf(0, 0, parts...), false)
			_, resp := answerer{}.run(c, epoch0)
			c.Put()
			req, epoch := &FetchRequest{SessionID: resp.SessionID}, int32(0)
			out := GetFetchResponse()
			b.ReportAllocs()
			for b.Loop() {
				epoch++
				req.SessionEpoch = epoch
				c := s.Begin(epoch0, 12, req, false)
				out.Reset()
				c.Each(func(p *SessionPartition) {
					p.Quiet = quiet
					if !c.Keep(p, out.Add(p.Topic, p.TopicID, p.Partition)) {
						out.Drop()
					}
				})
				c.Finish(epoch0, out)
				c.Put()
			}
		})
	}
}
