package raft_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into testdata/interaction; read the diff before you commit it")

// TestInteraction runs the scripts in testdata/interaction: commands, each with what it leads to below a line "----".
// A quorum of pure machines lives in one clock; messages wait until a script delivers or drops them.
//
//	nodes N [observers=K] [dynamic] [linger=D]   makes voters 1…N and observers, and starts them
//	advance D             the clock moves, and everybody whose deadline came ticks
//	deliver [A->B]…       the waiting request of A to B, and its answer; without arguments everything, until nothing waits
//	drop A->B…            the request is lost: A's connection fails
//	isolate A / join A    messages from and to A are dropped, and not shown, until it joins
//	propose A N           N records in one batch
//	upgrade A LEVEL       of kraft.version
//	snapshot A OFFSET     A writes a snapshot of what is below OFFSET, and cuts its log there
//	crash A / start A     start goes on with what A had synced
//	shutdown A            gracefully
//	ask A KIND k=v…       a request out of the blue: vote, begin, end, fetch, fetchsnapshot, describe, add, remove, update
//	status                everybody
func TestInteraction(t *testing.T) {
	files, err := filepath.Glob("testdata/interaction/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) { runScript(t, name) })
	}
}

func runScript(t *testing.T, name string) {
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	e := &quorum{now: time.UnixMilli(1_000_000)}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if line == "" || strings.HasPrefix(line, "#") {
			out.WriteString(line + "\n")
			continue
		}
		// What stood there as the answer is made anew.
		if i+1 < len(lines) && lines[i+1] == "----" {
			i++
			for i+1 < len(lines) && lines[i+1] != "" {
				i++
			}
		}
		e.out.Reset()
		if err := e.do(strings.Fields(line)); err != nil {
			t.Fatalf("%s: %s: %v", name, line, err)
		}
		out.WriteString(line + "\n----\n" + e.out.String())
	}
	if got := out.String(); got != string(data) {
		if *rewrite {
			if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Errorf("%s differs; go test ./internal/raft -run TestInteraction -rewrite. Now:\n%s", name, got)
	}
}

type quorum struct {
	now     time.Time
	nodes   []*member // by id - 1
	dynamic bool
	linger  time.Duration
	voters  int
	waiting []waiting
	cut     []kafka.BrokerID
	out     strings.Builder
}

// member is a machine with its disk.
type member struct {
	q        *quorum
	id       kafka.BrokerID
	r        *raft.Raft // nil while it is down
	log      []raft.BatchInfo
	start    kafka.Offset
	snaps    []kafka.OffsetAndEpoch
	snapCtl  []raft.ControlRecord
	election raft.Election
	asked    map[uint64]func(kmsg.Response)
	lastID   uint64
}

type waiting struct {
	from, to kafka.BrokerID
	send     raft.Send
}

const snapshotSize = 1000

func (q *quorum) printf(format string, args ...any) { fmt.Fprintf(&q.out, format+"\n", args...) }

func (q *quorum) do(w []string) error {
	id := func(i int) *member {
		if i < len(w) {
			if n, err := strconv.Atoi(w[i]); err == nil && n >= 1 && n <= len(q.nodes) {
				return q.nodes[n-1]
			}
		}
		return nil
	}
	switch w[0] {
	case "nodes":
		return q.make(w[1:])
	case "advance":
		d, err := time.ParseDuration(w[1])
		if err != nil {
			return err
		}
		q.advance(q.now.Add(d))
		return nil
	case "deliver":
		return q.deliver(w[1:])
	case "drop":
		for _, p := range w[1:] {
			m, err := q.take(p)
			if err != nil {
				return err
			}
			q.fail(m)
		}
		return nil
	case "status":
		for _, m := range q.nodes {
			m.status()
		}
		return nil
	}
	m := id(1)
	if m == nil {
		return errors.New("no such command or node")
	}
	switch w[0] {
	case "isolate":
		q.cut = append(q.cut, m.id)
		q.failCut()
	case "join":
		q.cut = slices.DeleteFunc(q.cut, func(c kafka.BrokerID) bool { return c == m.id })
	case "propose":
		n, err := strconv.Atoi(w[2])
		if err != nil {
			return err
		}
		records := make([][]byte, n)
		last, perr := m.r.Propose(q.now, m.r.Status().Epoch, records)
		if perr != nil {
			q.printf("%d: %v", m.id, perr)
			return nil
		}
		q.printf("%d: proposed up to %d", m.id, last)
		m.step(raft.Tick{})
	case "upgrade":
		level, err := strconv.Atoi(w[2])
		if err != nil {
			return err
		}
		last, uerr := m.r.UpgradeKRaftVersion(q.now, m.r.Status().Epoch, int16(level))
		if uerr != nil {
			q.printf("%d: %v", m.id, uerr)
			return nil
		}
		q.printf("%d: kraft.version %d up to %d", m.id, level, last)
		m.step(raft.Tick{})
	case "snapshot":
		n, err := strconv.Atoi(w[2])
		if err != nil {
			return err
		}
		m.snapshot(kafka.Offset(n))
	case "crash":
		q.printf("%d: down", m.id)
		m.r = nil
		kept := q.waiting[:0]
		for _, x := range q.waiting {
			if x.from != m.id {
				kept = append(kept, x)
			}
		}
		q.waiting = kept
	case "start":
		m.run()
	case "shutdown":
		m.step(raft.Shutdown{Timeout: 5 * time.Second})
	case "ask":
		return m.ask(w[2], w[3:])
	default:
		return errors.New("no such command")
	}
	return nil
}

func directory(id kafka.BrokerID) kafka.DirectoryID { return kafka.DirectoryID{0: 0xd0, 15: byte(id)} }

func endpoint(id kafka.BrokerID) raft.Endpoint {
	return raft.Endpoint{Listener: "CONTROLLER", Host: fmt.Sprintf("n%d", id), Port: 9093}
}

func (q *quorum) make(args []string) error {
	observers := 0
	for i, a := range args {
		var err error
		switch k, v, _ := strings.Cut(a, "="); {
		case i == 0:
			q.voters, err = strconv.Atoi(a)
		case k == "observers":
			observers, err = strconv.Atoi(v)
		case k == "linger":
			q.linger, err = time.ParseDuration(v)
		case k == "dynamic":
			q.dynamic = true
		default:
			err = fmt.Errorf("unknown %q", a)
		}
		if err != nil {
			return err
		}
	}
	for i := range q.voters + observers {
		m := &member{q: q, id: kafka.BrokerID(i + 1), asked: make(map[uint64]func(kmsg.Response))}
		m.election = raft.Election{Leader: kafka.NoBroker, Voted: raft.ReplicaKey{ID: kafka.NoBroker}}
		if q.dynamic && i < q.voters {
			m.snaps = []kafka.OffsetAndEpoch{{}}
			m.snapCtl = []raft.ControlRecord{raft.KRaftVersion(1), raft.Voters{Set: q.set()}}
		}
		q.nodes = append(q.nodes, m)
	}
	for _, m := range q.nodes {
		m.run()
	}
	return nil
}

func (q *quorum) set() raft.VoterSet {
	var s raft.VoterSet
	for i := range q.voters {
		id := kafka.BrokerID(i + 1)
		v := raft.Voter{Key: raft.ReplicaKey{ID: id}, Endpoints: []raft.Endpoint{endpoint(id)}}
		if q.dynamic {
			v.Key.Directory, v.MaxKRaft = directory(id), 1
		}
		s = s.With(v)
	}
	return s
}

func (m *member) run() {
	q := m.q
	cfg := raft.Config{
		ID: m.id, Directory: directory(m.id), ClusterID: "cluster", CanVote: q.dynamic || int(m.id) <= q.voters, Listener: "CONTROLLER",
		Endpoints: []raft.Endpoint{endpoint(m.id)}, AppendLinger: q.linger,
		ElectionTimeout: time.Second, ElectionBackoffMax: time.Second, FetchTimeout: 2 * time.Second, RequestTimeout: 2 * time.Second,
		RetryBackoff: 20 * time.Millisecond, FetchMaxBytes: 1 << 20, FetchSnapshotMaxBytes: 600, Rand: rand.New(rand.NewPCG(uint64(m.id), 7)),
	}
	if q.dynamic {
		cfg.Bootstrap = []raft.Endpoint{endpoint(1), endpoint(2)}
	} else {
		cfg.StaticVoters = q.set()
	}
	s := raft.LogState{StartOffset: m.start, EndOffset: m.end(), Snapshots: m.snaps}
	if n := len(m.snaps); n > 0 {
		for _, c := range m.snapCtl {
			s.Control = append(s.Control, raft.ControlAt{Offset: m.snaps[n-1].Offset - 1, Record: c})
		}
	}
	for _, b := range m.log {
		if n := len(s.Epochs); n == 0 || s.Epochs[n-1].Epoch < b.Epoch {
			s.Epochs = append(s.Epochs, raft.EpochStart{Epoch: b.Epoch, Offset: b.BaseOffset})
		}
		s.Control = append(s.Control, b.Control...)
	}
	m.r = raft.New(q.now, cfg, s, m.election)
	m.settle()
}

func (m *member) end() kafka.Offset {
	if n := len(m.log); n > 0 {
		return m.log[n-1].LastOffset + 1
	}
	return m.start
}

func (m *member) step(ev raft.Event) {
	if m.r == nil {
		return
	}
	if err := m.r.Step(m.q.now, ev); err != nil {
		m.q.printf("%d: %v", m.id, err)
	}
	m.settle()
}

// settle does what Ready asks, as package raftloop does, and prints it.
func (m *member) settle() {
	q := m.q
	for {
		rd := m.r.Ready()
		if rd.Empty() {
			return
		}
		for _, n := range rd.Notes {
			if n.Warn {
				q.printf("%d: WARN %s %v", m.id, n.Text, n.Args)
			}
		}
		var events []raft.Event
		p := &rd.Persist
		if p.Election != nil {
			m.election = *p.Election
			q.printf("%d: quorum-state epoch=%d leader=%d voted=%d", m.id, p.Election.Epoch, p.Election.Leader, p.Election.Voted.ID)
		}
		if p.Truncate != nil {
			q.printf("%d: truncate to %d", m.id, *p.Truncate)
			m.log = slices.DeleteFunc(m.log, func(b raft.BatchInfo) bool { return b.LastOffset >= *p.Truncate })
		}
		if c := p.SnapshotChunk; c != nil {
			q.printf("%d: snapshot %v bytes %d..%d", m.id, c.ID, c.Position, c.Position+int64(len(c.Data)))
			if c.Last {
				m.snaps = append(m.snaps, c.ID)
				m.snapCtl = q.leaderControl(c.ID)
				events = append(events, raft.SnapshotFetched{ID: c.ID, Control: m.snapCtl})
			}
		}
		if p.ResetTo != nil {
			q.printf("%d: log begins anew at %v", m.id, *p.ResetTo)
			m.log, m.start, m.snaps = nil, p.ResetTo.Offset, []kafka.OffsetAndEpoch{*p.ResetTo}
		}
		for _, a := range p.Append {
			m.append(&a)
		}
		if p.Flush {
			events = append(events, raft.Flushed{EndOffset: m.end()})
		}
		for _, s := range rd.Send {
			w := waiting{m.id, target(s.To), s}
			if !slices.Contains(q.cut, m.id) && !slices.Contains(q.cut, w.to) {
				q.printf("%d: -> %d %s", m.id, w.to, show(s.Msg))
			}
			q.waiting = append(q.waiting, w)
		}
		for _, rp := range rd.Reply {
			m.fill(&rp)
			done := m.asked[rp.ID]
			delete(m.asked, rp.ID)
			done(rp.Msg)
		}
		if rd.Committed {
			q.printf("%d: high watermark %d", m.id, rd.HighWatermark)
		}
		if rd.Role != nil {
			q.printf("%d: %v epoch=%d leader=%d", m.id, rd.Role.Role, rd.Role.Epoch, rd.Role.Leader)
		}
		for _, ev := range events {
			if err := m.r.Step(q.now, ev); err != nil {
				q.printf("%d: %v", m.id, err)
			}
		}
		q.failCut()
	}
}

func (m *member) append(a *raft.Append) {
	if a.Raw != nil {
		for _, b := range unpackBatches(a.Raw) {
			m.log = append(m.log, b)
			m.q.printf("%d: append %d..%d epoch=%d", m.id, b.BaseOffset, b.LastOffset, b.Epoch)
		}
		return
	}
	b := raft.BatchInfo{BaseOffset: a.BaseOffset, LastOffset: a.LastOffset, Epoch: a.Epoch}
	var kinds []string
	for i, c := range a.Control {
		b.Control = append(b.Control, raft.ControlAt{Offset: a.BaseOffset + int64(i), Record: c})
		kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", c), "raft."))
		if v, ok := c.(raft.Voters); ok {
			kinds[i] += fmt.Sprint(ids(v.Set))
		}
	}
	m.log = append(m.log, b)
	m.q.printf("%d: append %d..%d epoch=%d %s", m.id, b.BaseOffset, b.LastOffset, b.Epoch, strings.Join(kinds, " "))
}

// Records go over this network as indices into a table of batches.
var batchTable []raft.BatchInfo

func packBatches(batches []raft.BatchInfo) []byte {
	var out []byte
	for _, b := range batches {
		batchTable = append(batchTable, b)
		i := len(batchTable) - 1
		out = append(out, byte(i>>16), byte(i>>8), byte(i))
	}
	return out
}

func unpackBatches(data []byte) []raft.BatchInfo {
	var out []raft.BatchInfo
	for ; len(data) >= 3; data = data[3:] {
		b := batchTable[int(data[0])<<16|int(data[1])<<8|int(data[2])]
		b.Size = 3
		out = append(out, b)
	}
	return out
}

func (m *member) fill(rp *raft.Reply) {
	if rp.Read != nil {
		i := slices.IndexFunc(m.log, func(b raft.BatchInfo) bool { return b.LastOffset >= rp.Read.Offset })
		rp.Msg.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches = packBatches(m.log[i:])
	}
	if s := rp.Snapshot; s != nil {
		p := &rp.Msg.(*kmsg.FetchSnapshotResponse).Topics[0].Partitions[0]
		p.Size = snapshotSize
		p.Bytes = make([]byte, min(int64(s.MaxBytes), snapshotSize-s.Position))
	}
}

// leaderControl is what the snapshot's writer put into its header.
func (q *quorum) leaderControl(id kafka.OffsetAndEpoch) []raft.ControlRecord {
	for _, m := range q.nodes {
		if m.r == nil || m.r.Status().Role != raft.Leader {
			continue
		}
		if set, version := m.r.VotersAt(id.Offset); version > 0 {
			return []raft.ControlRecord{raft.KRaftVersion(version), raft.Voters{Set: set}}
		}
	}
	return nil
}

func (m *member) snapshot(end kafka.Offset) {
	id := kafka.OffsetAndEpoch{Offset: end}
	for _, b := range m.log {
		if b.BaseOffset < end {
			id.Epoch = b.Epoch
		}
	}
	set, version := m.r.VotersAt(end)
	m.snapCtl = nil
	if version > 0 {
		m.snapCtl = []raft.ControlRecord{raft.KRaftVersion(version), raft.Voters{Set: set}}
	}
	m.snaps = []kafka.OffsetAndEpoch{id}
	m.log = slices.DeleteFunc(m.log, func(b raft.BatchInfo) bool { return b.LastOffset < end })
	m.start = end
	m.step(raft.SnapshotCreated{ID: id})
	m.step(raft.LogStart{Offset: end, Snapshots: m.snaps})
}

func target(n raft.Node) kafka.BrokerID {
	id, _ := strconv.Atoi(strings.TrimPrefix(n.Host, "n"))
	return kafka.BrokerID(id)
}

func (q *quorum) advance(to time.Time) {
	for range 10_000 {
		var next *member
		for _, m := range q.nodes {
			if m.r != nil && !m.r.Deadline().After(to) && (next == nil || m.r.Deadline().Before(next.r.Deadline())) {
				next = m
			}
		}
		if next == nil {
			break
		}
		if d := next.r.Deadline(); d.After(q.now) {
			q.now = d
		}
		next.step(raft.Tick{})
	}
	q.now = to
}

func (q *quorum) take(pair string) (waiting, error) {
	var from, to kafka.BrokerID
	if _, err := fmt.Sscanf(pair, "%d->%d", &from, &to); err != nil {
		return waiting{}, err
	}
	for i, w := range q.waiting {
		if w.from == from && w.to == to {
			q.waiting = slices.Delete(q.waiting, i, i+1)
			return w, nil
		}
	}
	return waiting{}, fmt.Errorf("nothing waits from %d to %d", from, to)
}

func (q *quorum) fail(w waiting) {
	if m := q.nodes[w.from-1]; m.r != nil {
		m.step(raft.Response{Corr: w.send.Corr, Err: errors.New("connection lost")})
	}
}

func (q *quorum) failCut() {
	for i := 0; i < len(q.waiting); i++ {
		w := q.waiting[i]
		if slices.Contains(q.cut, w.from) || slices.Contains(q.cut, w.to) {
			q.waiting = slices.Delete(q.waiting, i, i+1)
			q.fail(w)
			i = -1
		}
	}
}

func (q *quorum) deliver(pairs []string) error {
	for _, p := range pairs {
		w, err := q.take(p)
		if err != nil {
			return err
		}
		q.pass(w)
	}
	for n := 0; len(pairs) == 0 && len(q.waiting) > 0 && n < 200; n++ {
		w := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.pass(w)
	}
	return nil
}

// pass gives a request to its receiver, and the answer back at once or when there is one.
func (q *quorum) pass(w waiting) {
	from, to := q.nodes[w.from-1], q.nodes[w.to-1]
	life := from.r
	if to.r == nil {
		q.fail(w)
		return
	}
	to.lastID++
	w.send.Msg.SetVersion(w.send.Msg.MaxVersion())
	if _, ok := w.send.Msg.(*kmsg.ApiVersionsRequest); ok {
		r := kmsg.NewPtrApiVersionsResponse()
		r.SupportedFeatures = []kmsg.ApiVersionsResponseSupportedFeature{{Name: "kraft.version", MaxVersion: 1}}
		from.step(raft.Response{Corr: w.send.Corr, Msg: r})
		return
	}
	to.asked[to.lastID] = func(r kmsg.Response) {
		if from.r == nil || from.r != life || slices.Contains(q.cut, from.id) || slices.Contains(q.cut, to.id) {
			return
		}
		q.printf("%d: <- %d %s", from.id, to.id, showResponse(r))
		ev := raft.Response{Corr: w.send.Corr, Msg: r}
		if f, ok := r.(*kmsg.FetchResponse); ok && len(f.Topics) == 1 {
			ev.Batches = unpackBatches(f.Topics[0].Partitions[0].RecordBatches)
		}
		from.step(ev)
	}
	to.step(raft.Request{ID: to.lastID, Listener: "CONTROLLER", Msg: w.send.Msg})
}

func (m *member) status() {
	if m.r == nil {
		m.q.printf("%d: down", m.id)
		return
	}
	s := m.r.Status()
	m.q.printf("%d: %v epoch=%d leader=%d log=%d..%d(%d) hw=%d voters=%v@%d stopped=%v", m.id, s.Role, s.Epoch, s.Leader, s.LogStart, s.LogEnd, s.LogEndEpoch, s.HighWatermark,
		ids(s.Voters), s.VotersOffset, s.Stopped)
}

func ids(s raft.VoterSet) []kafka.BrokerID {
	var out []kafka.BrokerID
	for _, v := range s.Voters() {
		out = append(out, v.Key.ID)
	}
	return out
}
