package api

// Incremental fetch sessions (KIP-227). A reader of a thousand partitions names them once; later requests tell only what
// changed, and answers hold only partitions with news.
//
//	ctx := sessions.Begin(...)       before the read: which partitions, and is the session right
//	ctx.Each(...)                    once or, in a long poll, several times: read
//	  q := response.Add(...)         in the last round: answer,
//	  if !ctx.Keep(p, q) { Drop }    leaving out what the reader knows
//	ctx.Finish(now, response)        session id; a full request that asked for one opens a session here, as in Kafka
//	ctx.Put()
//
// What a fetch costs. Kafka looks at every partition of the session each time. Here a partition can be quiet: whoever
// handles it puts a watch on its replica once, which calls Touch when there may be news, and sets Quiet; from then on Each
// passes it over until Touch, or until a request changes it. Partitions are visited in the order in which they were last
// given records, oldest first, so that a busy one cannot starve the rest.

import (
	"container/list"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// Sessions is the cache of incremental fetch sessions: at most `slots`, and a new one only takes the place of an older one
// by Kafka's rule.
type Sessions struct {
	slots int

	mu         sync.Mutex // guards what follows, and the fields of fetchSession that say so
	random     *rand.Rand
	byID       map[int32]*fetchSession
	lastUsed   *list.List // of *fetchSession, longest unused first
	partitions int
	evictions  int64
}

// evictionTime is how long a session is safe from being replaced by a more valuable one, and after which an unused one
// may be replaced by any (Kafka's INCREMENTAL_FETCH_SESSIONS_EVICTION_MS, not a config).
const evictionTime = 120 * time.Second

// NewSessions makes a cache (max.incremental.fetch.session.cache.slots). random draws the ids.
func NewSessions(slots int, random *rand.Rand) *Sessions {
	return &Sessions{slots: slots, random: random, byID: map[int32]*fetchSession{}, lastUsed: list.New()}
}

// SessionStats are the numbers behind Kafka's metrics of fetch sessions.
type SessionStats struct {
	Sessions, Partitions int
	Evictions            int64
}

// Stats tells how full the cache is.
func (s *Sessions) Stats() SessionStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SessionStats{len(s.byID), s.partitions, s.evictions}
}

// The epochs of a request that don't count: 0 opens a session, -1 closes one or does without.
const (
	initialEpoch int32 = 0
	finalEpoch   int32 = -1
)

func nextEpoch(e int32) int32 {
	switch {
	case e < 0:
		return finalEpoch
	case e == math.MaxInt32:
		return 1
	}
	return e + 1
}

// fetchSession is the server's half of a session.
type fetchSession struct {
	id         int32
	follower   bool
	usesIDs    bool
	created    time.Time
	used       time.Time     // guarded by Sessions.mu, like the next five
	place      *list.Element // in lastUsed
	size       int           // when it was last used: what counts for eviction
	byFollower bool          // a follower's session may replace it
	byAny      bool          // any session may

	mu     sync.Mutex // guards what follows
	epoch  int32      // that the next request must have
	byKey  map[partitionKey]*SessionPartition
	all    partitionList // in the order in which they came
	active partitionList // those that Each visits
	closed bool

	touchMu sync.Mutex // guards what follows; held for an instant only, by those who append
	touched []*SessionPartition
	wake    func()
}

type partitionKey struct {
	id        kafka.TopicID
	name      string // only without an id
	partition int32
}

// SessionPartition is one partition of a fetch: of a session, or of a request without one.
type SessionPartition struct {
	Topic          string // name; "" with an id until the handler fills it in
	TopicID        kafka.TopicID
	FetchPartition // as it was last asked for

	// Quiet tells that somebody calls Touch when there may be news: when there is more to read, when the high watermark or
	// the log's start moves, when reading starts or ceases to be an error. It only matters in a session.
	Quiet bool
	// More tells that this fetch left out records that are there, because it was full.
	More bool
	// Close, if set, is called when the partition leaves its session: the place to take a watch away.
	Close func()
	// Handle is the handler's own, e.g. the replica.
	Handle any

	session        *fetchSession
	highWatermark  kafka.Offset // as last told; -1 = tell it again
	logStartOffset kafka.Offset
	all, active    links
	touched        bool // guarded by session.touchMu
}

// InSession tells whether the partition lives longer than this fetch.
func (p *SessionPartition) InSession() bool { return p.session != nil }

// Touch says that there may be news of the partition. It may be called from any goroutine, often, and at any time, also when
// the session is gone; it waits for nobody.
func (p *SessionPartition) Touch() {
	s := p.session
	if s == nil {
		return
	}
	s.touchMu.Lock()
	if !p.touched {
		p.touched = true
		s.touched = append(s.touched, p)
	}
	wake := s.wake
	s.touchMu.Unlock()
	if wake != nil {
		wake()
	}
}

// links and partitionList are two intrusive lists that a partition can be in.
type links struct {
	prev, next *SessionPartition
	in         bool
}

type partitionList struct {
	first, last *SessionPartition
	n           int
	of          func(*SessionPartition) *links
}

func (l *partitionList) append(p *SessionPartition) {
	k := l.of(p)
	if k.in {
		return
	}
	*k = links{prev: l.last, in: true}
	if l.last == nil {
		l.first = p
	} else {
		l.of(l.last).next = p
	}
	l.last = p
	l.n++
}

func (l *partitionList) remove(p *SessionPartition) {
	k := l.of(p)
	if !k.in {
		return
	}
	if k.prev == nil {
		l.first = k.next
	} else {
		l.of(k.prev).next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		l.of(k.next).prev = k.prev
	}
	*k = links{}
	l.n--
}

func newSession(id int32, follower, usesIDs bool, now time.Time) *fetchSession {
	s := &fetchSession{id: id, follower: follower, usesIDs: usesIDs, created: now, size: -1, epoch: nextEpoch(initialEpoch), byKey: map[partitionKey]*SessionPartition{}}
	s.all.of = func(p *SessionPartition) *links { return &p.all }
	s.active.of = func(p *SessionPartition) *links { return &p.active }
	return s
}

func (s *fetchSession) key(t *FetchTopic, partition int32) partitionKey {
	if s.usesIDs {
		return partitionKey{id: t.ID, partition: partition}
	}
	return partitionKey{name: t.Name, partition: partition}
}

// update takes over what a request says of its partitions. It returns what is to be called for those that left.
func (s *fetchSession) update(req *FetchRequest) (left []func()) {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			q := &t.Partitions[j]
			p := s.byKey[s.key(t, q.Partition)]
			if p == nil {
				p = &SessionPartition{Topic: t.Name, TopicID: t.ID, session: s, highWatermark: -1, logStartOffset: -1}
				s.enter(p, q.Partition)
			}
			p.FetchPartition = *q
			s.active.append(p)
		}
	}
	for i := range req.Forgotten {
		t := &req.Forgotten[i]
		named := FetchTopic{Name: t.Name, ID: t.ID}
		for _, n := range t.Partitions {
			k := s.key(&named, n)
			if p := s.byKey[k]; p != nil {
				delete(s.byKey, k)
				s.all.remove(p)
				s.active.remove(p)
				if p.Close != nil {
					left = append(left, p.Close)
				}
			}
		}
	}
	return left
}

func (s *fetchSession) enter(p *SessionPartition, partition int32) {
	s.byKey[s.key(&FetchTopic{Name: p.Topic, ID: p.TopicID}, partition)] = p
	s.all.append(p)
	s.active.append(p)
}

// takeTouched moves the partitions that were touched to those that are visited.
func (s *fetchSession) takeTouched() {
	s.touchMu.Lock()
	for i, p := range s.touched {
		p.touched = false
		if p.all.in { // it may have left meanwhile
			s.active.append(p)
		}
		s.touched[i] = nil
	}
	s.touched = s.touched[:0]
	s.touchMu.Unlock()
}

// close ends the session.
func (s *fetchSession) close() {
	s.mu.Lock()
	s.closed = true
	left := s.leavingLocked()
	s.mu.Unlock()
	for _, f := range left {
		f()
	}
}

// leavingLocked is what is to be called, without the lock, because the session is closed.
func (s *fetchSession) leavingLocked() (left []func()) {
	if !s.closed {
		return nil
	}
	for p := s.all.first; p != nil; p = p.all.next {
		if p.Close != nil {
			left = append(left, p.Close)
			p.Close = nil
		}
	}
	return left
}

// Kinds of fetch.
type fetchKind int

const (
	sessionless fetchKind = iota
	full                  // a new session, if there is room
	incremental
	refused
)

// FetchContext is one fetch on its way. It comes from a pool.
type FetchContext struct {
	sessions *Sessions
	kind     fetchKind
	err      error
	follower bool
	usesIDs  bool
	session  *fetchSession // of an incremental fetch
	epoch    int32         // that session has as long as this fetch is its last
	flat     []SessionPartition
}

var fetchContexts = sync.Pool{New: func() any { return new(FetchContext) }}

// Begin takes a request in. follower tells that a replica fetches, whose session is worth more than a consumer's.
func (s *Sessions) Begin(now time.Time, version int16, req *FetchRequest, follower bool) *FetchContext {
	c := fetchContexts.Get().(*FetchContext)
	c.sessions, c.follower, c.usesIDs = s, follower, version >= 13
	c.kind, c.err, c.session = sessionless, nil, nil
	if req.SessionEpoch == initialEpoch || req.SessionEpoch == finalEpoch {
		if req.SessionID != 0 {
			s.remove(req.SessionID)
		}
		if req.SessionEpoch == initialEpoch {
			c.kind = full
		}
		c.takeAll(req)
		return c
	}
	s.mu.Lock()
	session := s.byID[req.SessionID]
	if session == nil {
		s.mu.Unlock()
		return c.refuse(kerr.FetchSessionIDNotFound)
	}
	session.mu.Lock()
	var left []func()
	switch {
	case session.epoch != req.SessionEpoch:
		c.refuse(kerr.InvalidFetchSessionEpoch)
	case session.usesIDs != c.usesIDs:
		c.refuse(kerr.FetchSessionTopicIDError)
	default:
		left = session.update(req)
		if session.all.n == 0 { // nothing left of it
			s.dropLocked(session)
			session.closed = true
			c.takeAll(req)
			break
		}
		session.epoch = nextEpoch(session.epoch)
		c.kind, c.session, c.epoch = incremental, session, session.epoch
		s.touchLocked(session, session.all.n, now)
	}
	session.mu.Unlock()
	s.mu.Unlock()
	for _, f := range left {
		f()
	}
	return c
}

func (c *FetchContext) refuse(err error) *FetchContext {
	c.kind, c.err = refused, err
	return c
}

// takeAll makes the partitions of a request without a session. One that is named twice counts once, as it is named last.
func (c *FetchContext) takeAll(req *FetchRequest) {
	n := 0
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := extend(&c.flat)
			*p = SessionPartition{Topic: t.Name, TopicID: t.ID, FetchPartition: t.Partitions[j], highWatermark: -1, logStartOffset: -1}
			n++
		}
	}
	if n < 2 {
		return
	}
	// Readers name a partition once; only if the cheap look cannot prove it is a map made.
	if ascending(c.flat) {
		return
	}
	seen := make(map[partitionKey]int, n)
	kept := c.flat[:0]
	for _, p := range c.flat {
		k := partitionKey{p.TopicID, p.Topic, p.Partition}
		if at, ok := seen[k]; ok {
			kept[at].FetchPartition = p.FetchPartition
			continue
		}
		seen[k] = len(kept)
		kept = append(kept, p)
	}
	c.flat = kept
}

// ascending tells whether all are of one topic with partitions in ascending order, or single partitions of topics in
// ascending order: then none stands twice.
func ascending(ps []SessionPartition) bool {
	for i := 1; i < len(ps); i++ {
		a, b := &ps[i-1], &ps[i]
		order := a.TopicID.Compare(b.TopicID)
		if order == 0 {
			switch {
			case a.Topic < b.Topic:
				order = -1
			case a.Topic > b.Topic:
				order = 1
			}
		}
		if order > 0 || order == 0 && a.Partition >= b.Partition {
			return false
		}
	}
	return true
}

// Err is why the session doesn't allow the fetch: the code of an empty answer, with session id 0. Nil if it does.
func (c *FetchContext) Err() error { return c.err }

// Each visits the partitions to be read, in order. In a session it may pass over quiet ones. It returns false if the session
// has gone on without this fetch, because another request came with the next epoch: then the fetch is to end, and Finish
// answers INVALID_FETCH_SESSION_EPOCH.
func (c *FetchContext) Each(visit func(*SessionPartition)) bool {
	if c.session == nil {
		for i := range c.flat {
			visit(&c.flat[i])
		}
		return true
	}
	s := c.session
	s.mu.Lock()
	valid := s.epoch == c.epoch
	if valid {
		s.takeTouched()
		for p, n := s.active.first, s.active.n; n > 0; n-- {
			next := p.active.next // Keep may move p
			visit(p)
			p = next
		}
	}
	left := s.leavingLocked() // it was closed before, and visit set a Close nevertheless
	s.mu.Unlock()
	for _, f := range left {
		f()
	}
	return valid
}

// Wake sets what Touch calls while this fetch waits, and calls it if there was a Touch since Each; nil to stop.
func (c *FetchContext) Wake(wake func()) {
	s := c.session
	if s == nil {
		return
	}
	s.touchMu.Lock()
	s.wake = wake
	late := wake != nil && len(s.touched) > 0 // between the look and the wait
	s.touchMu.Unlock()
	if late {
		wake()
	}
}

// Keep tells, within the last Each, whether q must be in the answer, and notes what the reader will know. Without a session
// everything must be.
func (c *FetchContext) Keep(p *SessionPartition, q *FetchPartitionResponse) bool {
	bytes := q.Bytes()
	keep := bytes > 0 || q.ErrorCode != 0 || q.PreferredReadReplica != -1 || q.DivergingEpoch != -1 || q.DivergingEndOffset != -1
	if p.highWatermark != q.HighWatermark {
		p.highWatermark, keep = q.HighWatermark, true
	}
	if p.logStartOffset != q.LogStartOffset {
		p.logStartOffset, keep = q.LogStartOffset, true
	}
	if q.ErrorCode != 0 {
		p.highWatermark = -1 // so that it is told when the error has gone
	}
	if c.session == nil {
		return true
	}
	// With records it goes to the end of the queue; with nothing to say it leaves the queue, if somebody watches it.
	s := c.session
	switch {
	case bytes > 0:
		s.active.remove(p)
		s.active.append(p)
	case p.Quiet && !p.More && q.ErrorCode == 0:
		s.active.remove(p)
	}
	return keep
}

// Finish puts the session into the answer. The partitions of a full fetch become a session's if there is room. If the
// session does not allow the fetch, or has gone on without it, the answer is emptied.
func (c *FetchContext) Finish(now time.Time, resp *FetchResponse) {
	c.Throttled(resp)
	if c.kind == full && resp.ErrorCode == 0 {
		resp.SessionID = c.sessions.create(now, c)
	}
}

// Throttled is Finish for an answer that a quota keeps empty: it opens no session.
func (c *FetchContext) Throttled(resp *FetchResponse) {
	resp.SessionID = 0
	switch c.kind {
	case refused:
		resp.fail(kerr.Code(c.err))
	case incremental:
		s := c.session
		resp.SessionID = s.id
		s.mu.Lock()
		valid := s.epoch == c.epoch
		s.mu.Unlock()
		if !valid {
			resp.fail(kerr.InvalidFetchSessionEpoch.Code)
		}
	}
}

// Put gives the context back.
func (c *FetchContext) Put() {
	c.Wake(nil)
	clear(c.flat)
	if cap(c.flat) > keptPartitions {
		c.flat = nil
	}
	*c = FetchContext{flat: c.flat[:0]}
	fetchContexts.Put(c)
}

// create opens a session and returns its id, or 0 if there is no room.
func (s *Sessions) create(now time.Time, c *FetchContext) int32 {
	s.mu.Lock()
	var evicted *fetchSession
	if len(s.byID) >= s.slots {
		if evicted = s.victimLocked(now, c.follower, len(c.flat)); evicted == nil {
			s.mu.Unlock()
			return 0
		}
		s.dropLocked(evicted)
		s.evictions++
	}
	id := s.random.Int32N(math.MaxInt32-1) + 1
	for s.byID[id] != nil {
		id = s.random.Int32N(math.MaxInt32-1) + 1
	}
	session := newSession(id, c.follower, c.usesIDs, now)
	slab := make([]SessionPartition, len(c.flat))
	for i := range slab {
		slab[i] = c.flat[i]
		slab[i].session, slab[i].Quiet, slab[i].Close = session, false, nil
		session.enter(&slab[i], slab[i].Partition)
	}
	s.byID[id] = session
	s.touchLocked(session, len(slab), now)
	s.mu.Unlock()
	if evicted != nil {
		evicted.close()
	}
	return id
}

// victimLocked is the session whose place a new one of the given kind and size may take: the one unused longest if that is
// longer than evictionTime; else the least valuable of those that may be replaced at all, if it is worth less than the new
// one. Consumers' sessions are worth less than followers', small ones less than large ones.
func (s *Sessions) victimLocked(now time.Time, follower bool, size int) *fetchSession {
	front := s.lastUsed.Front()
	if front == nil {
		return nil
	}
	if oldest := front.Value.(*fetchSession); now.Sub(oldest.used) > evictionTime {
		return oldest
	}
	var least *fetchSession
	for e := front; e != nil; e = e.Next() {
		o := e.Value.(*fetchSession)
		if (follower && o.byFollower || !follower && o.byAny) && (least == nil || o.less(least.follower, least.size, least.id)) {
			least = o
		}
	}
	if least == nil || !least.less(follower, size, 0) {
		return nil
	}
	return least
}

// less orders sessions by their value.
func (s *fetchSession) less(follower bool, size int, id int32) bool {
	switch {
	case s.follower != follower:
		return !s.follower
	case s.size != size:
		return s.size < size
	}
	return s.id < id
}

// touchLocked notes that a session was used.
func (s *Sessions) touchLocked(f *fetchSession, size int, now time.Time) {
	f.used = now
	if f.place == nil {
		f.place = s.lastUsed.PushBack(f)
	} else {
		s.lastUsed.MoveToBack(f.place)
	}
	s.partitions += size - max(f.size, 0)
	f.size = size
	old := now.Sub(f.created) > evictionTime
	f.byFollower = f.byFollower || !f.follower || old
	f.byAny = f.byAny || old
}

// remove closes the session with this id, if there is one.
func (s *Sessions) remove(id int32) {
	s.mu.Lock()
	f := s.byID[id]
	if f != nil {
		s.dropLocked(f)
	}
	s.mu.Unlock()
	if f != nil {
		f.close()
	}
}

func (s *Sessions) dropLocked(f *fetchSession) {
	delete(s.byID, f.id)
	s.lastUsed.Remove(f.place)
	s.partitions -= f.size
}

// InSession tells whether the fetch goes on with a session; one that opens a session is not in it yet.
func (c *FetchContext) InSession() bool { return c.session != nil }

// Filter leaves out of the answer what the reader of a session knows already. seen are the partitions of the answer, in its
// order, as the last Each visited them.
func (c *FetchContext) Filter(seen []*SessionPartition, resp *FetchResponse) {
	if c.session == nil {
		n := 0
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				c.Keep(seen[n], &resp.Topics[i].Partitions[j]) // what the session that begins now has told
				n++
			}
		}
		return
	}
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != c.epoch {
		return // Finish empties it
	}
	n := 0
	topics := 0
	for i := range resp.Topics {
		t := &resp.Topics[i]
		kept := 0
		for j := range t.Partitions {
			if c.Keep(seen[n], &t.Partitions[j]) {
				t.Partitions[kept], t.Partitions[j] = t.Partitions[j], t.Partitions[kept]
				kept++
			}
			n++
		}
		t.Partitions = t.Partitions[:kept]
		if kept > 0 {
			resp.Topics[topics], resp.Topics[i] = resp.Topics[i], resp.Topics[topics]
			topics++
		}
	}
	resp.Topics = resp.Topics[:topics]
}
