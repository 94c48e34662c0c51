package controllerloop

import (
	"container/heap"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/controller"
	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// Log is the metadata log, as far as a controller writes it. *raftloop.Loop is one.
type Log interface {
	// Propose appends records as one atomic batch, if this node still leads epoch, and returns the offset of the last.
	// It never waits for the disk.
	Propose(epoch kafka.LeaderEpoch, records [][]byte) (kafka.Offset, error)
	// UpgradeKRaftVersion raises kraft.version, likewise, and returns the offset of the last record of that; -1 if there was nothing to do.
	UpgradeKRaftVersion(epoch kafka.LeaderEpoch, level int16) (kafka.Offset, error)
	// Resign gives the epoch up.
	Resign(epoch kafka.LeaderEpoch)
}

// Options is what a Loop is made of.
type Options struct {
	Controller controller.Options
	Log        Log
	Logger     *slog.Logger
	// Fatal is called at most once, on the Loop's goroutine, with an error after which this process must not go on.
	Fatal func(error)
}

// Leadership is what Lead tells.
type Leadership struct {
	Epoch kafka.LeaderEpoch
	// Local: this node leads. The rest counts only then.
	Local bool
	// Image is the metadata up to the last committed record.
	Image *metadata.Image
	// Empty: the log has no metadata record; what there is in Image comes from the first checkpoint.
	Empty bool
	// Bootstrap are the metadata records of the first checkpoint; none if there is no such checkpoint.
	Bootstrap []controller.Record
	// NextOffset is that of the next record; a guess if control records lie between.
	NextOffset kafka.Offset
}

// Bounds of what goes into one batch: Kafka's maxRecordsPerBatch, and what the log takes.
const (
	maxBatchRecords = controller.MaxRecords
	maxBatchBytes   = 8 << 20
)

// inboxSize bounds the requests that wait for the goroutine. A full inbox makes callers wait, which slows down the
// connections that bring more. Guess.
const inboxSize = 1024

// Loop owns the goroutine. The order of its life: New, Start, use, Close.
type Loop struct {
	opt Options
	log *slog.Logger

	inbox chan request
	wake  chan struct{} // capacity 1: raft has something
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once

	mu   sync.Mutex
	news []news // from the metadata log, in its order

	// The goroutine's own.
	active    *controller.Controller // nil: another node leads
	committed kafka.Offset
	control   kafka.Offset // of the last control record that came of a decision
	parked    []*parked    // by offset
	deadlines deadlines
	failed    bool
}

// request is something that the Controller shall decide.
type request struct {
	req      kmsg.Request
	direct   bool
	deadline time.Time
	done     func(kmsg.Response, error)
}

// news is a change of leadership or, with lead nil, of the committed offset.
type news struct {
	lead      *Leadership
	committed kafka.Offset
}

// parked is an answer that waits for offset to be committed.
type parked struct {
	request
	resp   kmsg.Response
	offset kafka.Offset
	index  int // in deadlines, -1 if not there
	told   bool
}

// New makes a Loop.
func New(o Options) *Loop {
	l := &Loop{opt: o, log: o.Logger, inbox: make(chan request, inboxSize), wake: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}), committed: -1, control: -1}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l
}

// Start runs the goroutine.
func (l *Loop) Start() { go l.run() }

// Close ends the goroutine; who still waits hears NOT_CONTROLLER.
func (l *Loop) Close() {
	l.once.Do(func() { close(l.stop) })
	<-l.done
}

// Decide lets the active controller carry out a request. done gets the answer when what was decided is committed, or an
// error: NOT_CONTROLLER if this node doesn't lead (any more), REQUEST_TIMED_OUT if it takes longer than the deadline; then
// the decision may still come into force. direct: the request wasn't forwarded by a broker. req must not refer to memory
// that the caller uses again.
func (l *Loop) Decide(req kmsg.Request, direct bool, deadline time.Time, done func(kmsg.Response, error)) {
	r := request{req, direct, deadline, done}
	select {
	case <-l.done:
		done(nil, kerr.NotController)
		return
	default:
	}
	select {
	case l.inbox <- r:
	case <-l.done:
		done(nil, kerr.NotController)
	}
}

// Lead tells who leads the quorum now.
func (l *Loop) Lead(to Leadership) { l.tell(news{lead: &to}) }

// Committed tells that all up to last is committed.
func (l *Loop) Committed(last kafka.Offset) { l.tell(news{committed: last}) }

func (l *Loop) tell(n news) {
	l.mu.Lock()
	if k := len(l.news); n.lead == nil && k > 0 && l.news[k-1].lead == nil {
		l.news[k-1] = n
	} else {
		l.news = append(l.news, n)
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Loop) run() {
	defer close(l.done)
	defer l.drain()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(l.wait(time.Now()))
		var r request
		got := false
		select {
		case <-l.stop:
			return
		case <-l.wake:
		case <-timer.C:
		case r = <-l.inbox:
			got = true
		}
		if err := l.turn(r, got); err != nil {
			l.log.Error("controller failed", "err", err)
			l.drop()
			l.failed = true
			if l.opt.Fatal != nil {
				l.opt.Fatal(err)
			}
			return
		}
	}
}

// turn does one thing, after what the log told. A broken invariant becomes an error.
func (l *Loop) turn(r request, got bool) (err error) {
	if got {
		defer func() {
			if err != nil {
				r.done(nil, kerr.UnknownServerError)
			}
		}()
	}
	defer invariant.Recover(&err)
	if err := l.takeNews(time.Now()); err != nil {
		return err
	}
	now := time.Now()
	l.expire(now)
	if err := l.tick(now); err != nil {
		return err
	}
	if !got {
		return nil
	}
	return l.decide(r, time.Now())
}

// wait is how long nothing is due.
func (l *Loop) wait(now time.Time) time.Duration {
	d := time.Hour
	if l.active != nil {
		if at := l.active.Deadline(); !at.IsZero() {
			d = min(d, at.Sub(now))
		}
	}
	if len(l.deadlines) > 0 {
		d = min(d, l.deadlines[0].deadline.Sub(now))
	}
	return max(d, 0)
}

func (l *Loop) takeNews(now time.Time) error {
	l.mu.Lock()
	list := l.news
	l.news = nil
	l.mu.Unlock()
	for _, n := range list {
		if n.lead == nil {
			l.committed = n.committed
			l.release()
			continue
		}
		if l.active != nil {
			if n.lead.Local && n.lead.Epoch == l.active.Epoch() {
				continue
			}
			l.log.Info("controller is no longer active", "epoch", l.active.Epoch())
			l.drop()
		}
		if n.lead.Local {
			if err := l.activate(n.lead, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// activate begins an epoch.
func (l *Loop) activate(to *Leadership, now time.Time) error {
	l.committed, l.control = max(l.committed, to.Image.Provenance().Offset), -1
	l.active = controller.New(l.opt.Controller, to.Image, to.Epoch, to.NextOffset, now)
	res, err := l.active.Activate(to.Empty, to.Bootstrap)
	if err != nil {
		return err
	}
	l.log.Info("controller is active", "epoch", to.Epoch, "metadataVersion", to.Image.MetadataVersion().String(), "empty", to.Empty)
	_, err = l.write(res, now)
	return err
}

// drop ends the epoch. What is parked and not committed is not decided any more.
func (l *Loop) drop() {
	l.active = nil
	for _, p := range l.parked {
		l.tellParked(p, nil, kerr.NotController)
	}
	l.parked, l.deadlines = nil, nil
}

func (l *Loop) drain() {
	l.drop()
	for {
		select {
		case r := <-l.inbox:
			r.done(nil, kerr.NotController)
		default:
			return
		}
	}
}

// tick takes the periodic decisions that are due.
func (l *Loop) tick(now time.Time) error {
	for l.active != nil {
		if at := l.active.Deadline(); at.IsZero() || at.After(now) {
			return nil
		}
		if _, err := l.write(l.active.Tick(now), now); err != nil {
			return err
		}
	}
	return nil
}

func (l *Loop) decide(r request, now time.Time) error {
	if l.active == nil {
		r.done(nil, kerr.NotController)
		return nil
	}
	if !r.deadline.IsZero() && !now.Before(r.deadline) {
		r.done(nil, kerr.RequestTimedOut)
		return nil
	}
	res, ok := l.active.Handle(controller.Context{Now: now, Direct: r.direct}, r.req)
	if !ok {
		r.done(nil, kerr.UnsupportedVersion)
		return nil
	}
	wrote, err := l.write(res, now)
	if err != nil {
		return err
	}
	if !wrote {
		r.done(nil, kerr.NotController)
		return nil
	}
	p := &parked{request: r, resp: res.Response, offset: max(l.active.NextOffset()-1, l.control), index: -1}
	if len(res.Records) == 0 && len(l.parked) == 0 && p.offset <= l.committed {
		r.done(p.resp, nil)
		return nil
	}
	// Without records it was read from the working state, which may not be committed yet: it waits for all of it.
	if p.offset <= l.committed {
		r.done(p.resp, nil)
		return nil
	}
	l.parked = append(l.parked, p)
	if !r.deadline.IsZero() {
		heap.Push(&l.deadlines, p)
	}
	return nil
}

// write proposes a Result's records and takes them into the working state. It is false if this node doesn't lead any
// more: then the Controller is gone.
func (l *Loop) write(res controller.Result, now time.Time) (bool, error) {
	if res.KRaftVersion > 0 {
		last, err := l.opt.Log.UpgradeKRaftVersion(l.active.Epoch(), res.KRaftVersion)
		if err != nil {
			l.giveUp(err)
			return false, nil
		}
		l.control = max(l.control, last)
	}
	records := res.Records
	for len(records) > 0 {
		values, n, err := encode(records)
		if err != nil {
			return false, err
		}
		invariant.Check(!res.Atomic || n == len(records), "K10: an atomic result of %d records doesn't fit into a batch", len(records))
		last, err := l.opt.Log.Propose(l.active.Epoch(), values)
		if err != nil {
			l.giveUp(err)
			return false, nil
		}
		if err := l.active.Apply(last-kafka.Offset(n)+1, records[:n], now); err != nil {
			return false, err
		}
		records = records[n:]
	}
	if res.Appended != nil {
		res.Appended(l.active.NextOffset() - 1)
	}
	return true, nil
}

// giveUp ends the epoch of a controller that cannot write.
func (l *Loop) giveUp(err error) {
	epoch := l.active.Epoch()
	l.log.Info("controller cannot write", "epoch", epoch, "err", err)
	l.drop()
	l.opt.Log.Resign(epoch) // if it still leads: a leader without a controller helps nobody
}

// encode frames as many of the records as go into one batch. All values share one buffer.
func encode(records []controller.Record) (values [][]byte, n int, err error) {
	var buf []byte
	ends := make([]int, 0, min(len(records), maxBatchRecords))
	for _, r := range records {
		if len(ends) == maxBatchRecords {
			break
		}
		grown, err := schema.AppendFrame(buf, r.Message, r.Version)
		if err != nil {
			return nil, 0, err
		}
		if len(grown)+64*len(ends) > maxBatchBytes && len(ends) > 0 {
			break
		}
		buf = grown
		ends = append(ends, len(buf))
	}
	values = make([][]byte, len(ends))
	start := 0
	for i, end := range ends {
		values[i] = buf[start:end:end]
		start = end
	}
	return values, len(ends), nil
}

// release answers all that is committed.
func (l *Loop) release() {
	n := 0
	for n < len(l.parked) && l.parked[n].offset <= l.committed {
		p := l.parked[n]
		l.parked[n] = nil
		l.tellParked(p, p.resp, nil)
		n++
	}
	if l.parked = l.parked[n:]; len(l.parked) == 0 {
		l.parked = nil
	}
}

func (l *Loop) expire(now time.Time) {
	for len(l.deadlines) > 0 && !now.Before(l.deadlines[0].deadline) {
		l.tellParked(l.deadlines[0], nil, kerr.RequestTimedOut)
	}
}

// tellParked calls done, once.
func (l *Loop) tellParked(p *parked, resp kmsg.Response, err error) {
	if p.index >= 0 {
		heap.Remove(&l.deadlines, p.index)
	}
	if !p.told {
		p.told = true
		p.done(resp, err)
	}
}

// deadlines is a heap, the earliest first.
type deadlines []*parked

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline.Before(d[j].deadline) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push is heap's.
func (d *deadlines) Push(x any) {
	p := x.(*parked)
	p.index = len(*d)
	*d = append(*d, p)
}

// Pop is heap's.
func (d *deadlines) Pop() any {
	old := *d
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	p.index = -1
	return p
}
