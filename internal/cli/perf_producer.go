package cli

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater/highwater/internal/kafka"
)

// runProducerPerf is kafka-producer-perf-test.
func runProducerPerf(e *Env) int {
	p := producerPerfArgs()
	if len(e.Args) == 0 {
		p.PrintHelp(e.Stdout)
		return 0
	}
	n, err := p.Parse(e.Args, e.Stdout)
	if err == nil {
		var t *producerPerf
		if t, err = newProducerPerf(e, p, n); err == nil {
			if err = t.run(); err == nil {
				return 0
			}
		}
	}
	var a *ArgError
	switch {
	case errors.Is(err, ErrHelp):
		return 1 // as Kafka's tool, which takes help for an error
	case errors.As(err, &a):
		return HandleError(e.Stderr, err)
	}
	e.Errorf("Exception in thread \"main\" %s", javaLine(err))
	printCauses(e, err)
	return 1
}

func producerPerfArgs() *ArgParser {
	p := &ArgParser{Prog: "kafka-producer-perf-test", Description: "Measures a producer. Transactions are on with a transactional id (by option, property or file) or with --transaction-duration-ms."}
	p.Add(Arg{Names: []string{"--bootstrap-server"}, Meta: "BOOTSTRAP-SERVER", Help: "The servers to connect to; wins over bootstrap.servers elsewhere."})
	p.Add(Arg{Names: []string{"--topic"}, Meta: "TOPIC", Required: true, Help: "The topic to produce to."})
	p.Add(Arg{Names: []string{"--num-records"}, Meta: "NUM-RECORDS", Type: "Long", Required: true, Help: "How many records."})
	p.Add(Arg{Names: []string{"--payload-delimiter"}, Meta: "PAYLOAD-DELIMITER", Default: `\n`, Help: "What separates the payloads in --payload-file."})
	p.Add(Arg{Names: []string{"--throughput"}, Meta: "THROUGHPUT", Type: "Double", Required: true, Help: "At most about so many records a second; -1: no limit."})
	p.Add(Arg{Names: []string{"--producer-props"}, Meta: "PROP-NAME=PROP-VALUE", Many: true, Help: "(DEPRECATED) use --command-property."})
	p.Add(Arg{Names: []string{"--command-property"}, Meta: "PROP-NAME=PROP-VALUE", Many: true, Help: "Properties of the producer; they win over those in --command-config."})
	p.Add(Arg{Names: []string{"--producer.config"}, Meta: "CONFIG-FILE", Help: "(DEPRECATED) use --command-config."})
	p.Add(Arg{Names: []string{"--command-config"}, Meta: "CONFIG-FILE", Help: "A file with properties of the producer."})
	p.Add(Arg{Names: []string{"--print-metrics"}, Help: "Print the client's metrics at the end."})
	p.Add(Arg{Names: []string{"--transactional-id"}, Meta: "TRANSACTIONAL-ID", Help: "The transactional id."})
	p.Add(Arg{Names: []string{"--transaction-duration-ms"}, Meta: "TRANSACTION-DURATION", Type: "Long", Help: "The longest a transaction takes; 3000 where transactions are on without it."})
	p.Add(Arg{Names: []string{"--warmup-records"}, Meta: "WARMUP-RECORDS", Type: "Long", Help: "So many first records don't count in the statistics of the steady state, which come as a further line."})
	p.Add(Arg{Names: []string{"--reporting-interval"}, Meta: "INTERVAL-MS", Type: "Long", Default: "5000", Help: "How often to report in milliseconds."})
	p.Add(Arg{Names: []string{"--record-key-range"}, Meta: "KEY-RANGE", Type: "Integer", Help: "Keys are numbers from 0 to below this."})
	p.Add(Arg{Names: []string{"--key-distribution"}, Meta: "KEY-DISTRIBUTION", Choices: []string{"none", "range", "random"}, Default: "none", Help: "No keys, keys in turn, random keys."})
	p.Add(Arg{Names: []string{"--random-seed"}, Meta: "RANDOM-SEED", Type: "Long", Default: "0", Help: "Seed of random keys and payloads."})
	p.Group(true,
		Arg{Names: []string{"--record-size"}, Meta: "RECORD-SIZE", Type: "Integer", Help: "Bytes of a record."},
		Arg{Names: []string{"--payload-file"}, Meta: "PAYLOAD-FILE", Help: "A file of UTF-8 text with payloads, of which each record gets one at random."},
		Arg{Names: []string{"--payload-monotonic"}, Help: "Each record's payload is its number."})
	return p
}

// producerPerf is one run of the test.
type producerPerf struct {
	e            *Env
	topic        string
	props        []Property
	records      int64
	warmup       int64
	size         int
	payloadFile  string
	delimiter    string
	monotonic    bool
	throughput   float64
	interval     time.Duration
	metrics      bool
	transactions bool
	duration     time.Duration
	keyRange     int64
	keys         string
	seed         uint64

	rand *rand.Rand
	pool sync.Pool
}

// newProducerPerf checks the options as Kafka does, in its order, and puts the properties together.
func newProducerPerf(e *Env, p *ArgParser, n *Namespace) (*producerPerf, error) {
	fail := func(text string) error { return &ArgError{p, text} }
	t := &producerPerf{
		e: e, topic: n.Get("topic"), records: n.Int64("num-records"), warmup: n.Int64("warmup-records"), size: int(n.Int64("record-size")),
		payloadFile: n.Get("payload-file"), delimiter: n.Get("payload-delimiter"), monotonic: n.Has("payload-monotonic"),
		interval: time.Duration(n.Int64("reporting-interval")) * time.Millisecond, metrics: n.Has("print-metrics"),
		keyRange: n.Int64("record-key-range"), keys: n.Get("key-distribution"), seed: uint64(n.Int64("random-seed")),
	}
	var err error
	if t.throughput, err = strconv.ParseFloat(n.Get("throughput"), 64); err != nil {
		return nil, err
	}
	switch {
	case t.records <= 0:
		return nil, fail("--num-records should be greater than zero.")
	case t.warmup >= t.records:
		return nil, fail("The value for --warmup-records must be strictly fewer than the number of records in the test, --num-records.")
	case n.Has("record-size") && t.size <= 0:
		return nil, fail("--record-size should be greater than zero.")
	case !n.Has("bootstrap-server") && !n.Has("command-property") && !n.Has("producer-props") && !n.Has("producer.config") && !n.Has("command-config"):
		return nil, fail("At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or --command-config must be specified.")
	case n.Has("command-property") && n.Has("producer-props"):
		return nil, fail("--command-property and --producer-props cannot be specified together.")
	case n.Has("command-config") && n.Has("producer.config"):
		return nil, fail("--command-config and --producer.config cannot be specified together.")
	case n.Has("transaction-duration-ms") && n.Int64("transaction-duration-ms") <= 0:
		return nil, fail("--transaction-duration-ms should be greater than zero.")
	case t.interval <= 0:
		return nil, fail("--reporting-interval should be greater than zero.")
	case n.Has("record-key-range") && t.keyRange <= 0:
		return nil, fail("--record-key-range should be greater than zero.")
	case !n.Has("record-key-range") && t.keys != "none":
		return nil, fail("--record-key-range is required when --key-distribution is 'range' or 'random'.")
	case n.Has("record-key-range") && t.keys == "none":
		return nil, fail("--key-distribution must be 'range' or 'random' when --record-key-range is specified.")
	}
	if t.delimiter == `\n` {
		t.delimiter = "\n"
	}
	for _, old := range [][2]string{{"producer-props", "command-property"}, {"producer.config", "command-config"}} {
		if n.Has(old[0]) {
			e.Printf("Option --%s has been deprecated and will be removed in a future version. Use --%s instead.\n", old[0], old[1])
		}
	}
	for _, o := range []string{"producer.config", "command-config"} {
		if path := n.Get(o); path != "" {
			if t.props, err = ReadProperties(path); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range append(n.All("producer-props"), n.All("command-property")...) {
		k, v, ok := strings.Cut(s, "=")
		if !ok || strings.Contains(v, "=") && !strings.HasPrefix(k, "sasl.") && !strings.HasPrefix(k, "ssl.") {
			return nil, illegalArgument("Invalid property: " + s)
		}
		t.props = setProperty(t.props, k, v)
	}
	if s := n.Get("bootstrap-server"); s != "" {
		t.props = setProperty(t.props, "bootstrap.servers", s)
	}
	if !hasProperty(t.props, "client.id") {
		t.props = append(t.props, Property{"client.id", "perf-producer-client"})
	}
	if s := n.Get("transactional-id"); s != "" {
		t.props = setProperty(t.props, "transactional.id", s)
	}
	t.duration = time.Duration(n.Int64("transaction-duration-ms")) * time.Millisecond
	t.transactions = hasProperty(t.props, "transactional.id") || t.duration > 0
	if t.transactions {
		if !hasProperty(t.props, "transactional.id") {
			t.props = append(t.props, Property{"transactional.id", "performance-producer-" + randomUUID()})
		}
		if t.duration == 0 {
			t.duration = 3 * time.Second
		}
	}
	return t, nil
}

// randomUUID draws an id as Kafka prints it.
func randomUUID() string {
	for {
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:8], rand.Uint64())
		binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
		if u, ok := kafka.RandomUUID(b); ok {
			return u.String()
		}
	}
}

// payloads reads --payload-file.
func (t *producerPerf) payloads() ([][]byte, error) {
	if t.payloadFile == "" {
		return nil, nil
	}
	path, err := filepath.Abs(t.payloadFile)
	if err != nil {
		return nil, err
	}
	t.e.Printf("Reading payloads from: %s\n", path)
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return nil, illegalArgument("File does not exist or empty file provided.")
	}
	list := strings.Split(string(b), t.delimiter)
	for len(list) > 0 && list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	t.e.Printf("Number of records read: %d\n", len(list))
	var out [][]byte
	for _, s := range list {
		out = append(out, []byte(s))
	}
	if len(out) == 0 {
		return nil, illegalArgument("File does not exist or empty file provided.")
	}
	return out, nil
}

// perfRecord is a record on its way, with its statistics.
type perfRecord struct {
	kgo.Record
	start  time.Time
	steady bool
	key    [4]byte
}

func (t *producerPerf) run() error {
	list, err := t.payloads()
	if err != nil {
		return err
	}
	largest := max(t.size, 20)
	for _, p := range list {
		largest = max(largest, len(p))
	}
	batch := 16384
	for _, p := range t.props {
		if p.Key == "batch.size" {
			if n, err := strconv.Atoi(p.Value); err == nil {
				batch = n
			}
		}
	}
	pr, err := newProducer(t.e, t.props, max(batch, largest+128))
	if err != nil {
		return err
	}
	defer pr.client.Close()
	t.e.Stoppable()
	counters := &perfCounters{client: pr.conf.clientID(), began: time.Now()}
	t.rand = rand.New(rand.NewPCG(t.seed, t.seed))
	if t.warmup > 0 {
		t.e.Printf("Warmup first %d records. Steady state results will print after the complete test summary.\n", t.warmup)
	}
	if t.transactions {
		if _, _, err := pr.client.ProducerID(t.e.Context); err != nil { // Kafka's initTransactions
			return pr.javaError(&kgo.Record{}, err)
		}
	}
	all := newPerfStats(t.records, t.interval, t.e, false)
	var steady *perfStats
	if t.warmup > 0 {
		steady = newPerfStats(t.records-t.warmup, t.interval, t.e, true)
		all.silentAfter = t.warmup
	}
	start := time.Now()
	inTransaction, transactionStart := false, time.Time{}
	for i := int64(0); i < t.records && t.e.Context.Err() == nil; i++ {
		if t.transactions && !inTransaction {
			if err := pr.client.BeginTransaction(); err != nil {
				return pr.javaError(&kgo.Record{}, err)
			}
			inTransaction, transactionStart = true, time.Now()
		}
		if steady != nil && i == t.warmup {
			steady.begin()
		}
		r := t.record(i, list)
		r.start, r.steady = time.Now(), steady != nil && i >= t.warmup
		r.Timestamp = r.start
		pr.send(&r.Record, func(_ *kgo.Record, err error) {
			if err != nil {
				counters.failed()
				t.e.Errorf("%s", javaLine(err))
			} else {
				now := time.Now()
				all.record(now, now.Sub(r.start), len(r.Key)+len(r.Value))
				if r.steady {
					steady.record(now, now.Sub(r.start), len(r.Key)+len(r.Value))
				}
				counters.sent(len(r.Key) + len(r.Value))
			}
			t.pool.Put(r)
		})
		if inTransaction && time.Since(transactionStart) >= t.duration {
			if err := t.commit(pr); err != nil {
				return err
			}
			inTransaction = false
		}
		t.throttle(start, i+1)
	}
	if inTransaction {
		if err := t.commit(pr); err != nil {
			return err
		}
	}
	if err := pr.client.Flush(context.WithoutCancel(t.e.Context)); err != nil {
		return pr.javaError(&kgo.Record{}, err)
	}
	all.total()
	if steady != nil {
		steady.total()
	}
	if t.metrics {
		counters.print(t.e, "producer-metrics")
	}
	return nil
}

func (t *producerPerf) commit(pr *producer) error {
	ctx := context.WithoutCancel(t.e.Context)
	if err := pr.client.Flush(ctx); err != nil {
		return pr.javaError(&kgo.Record{}, err)
	}
	if err := pr.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return pr.javaError(&kgo.Record{}, err)
	}
	return nil
}

// record makes record number i, in the memory of one that is done.
func (t *producerPerf) record(i int64, list [][]byte) *perfRecord {
	r, ok := t.pool.Get().(*perfRecord)
	if !ok {
		r = &perfRecord{}
	}
	value := r.Value
	r.Record = kgo.Record{Topic: t.topic}
	switch {
	case list != nil:
		r.Value = list[t.rand.IntN(len(list))]
	case t.monotonic:
		r.Value = strconv.AppendInt(value[:0], i, 10)
	default:
		if cap(value) < t.size {
			value = make([]byte, t.size)
		}
		r.Value = value[:t.size]
		fillLetters(t.rand, r.Value)
	}
	switch t.keys {
	case "range":
		binary.BigEndian.PutUint32(r.key[:], uint32(i%t.keyRange))
		r.Key = r.key[:]
	case "random":
		binary.BigEndian.PutUint32(r.key[:], uint32(t.rand.Int64N(t.keyRange)))
		r.Key = r.key[:]
	}
	return r
}

// fillLetters fills b with random capitals, eight for each number drawn.
func fillLetters(r *rand.Rand, b []byte) {
	for len(b) > 0 {
		x := r.Uint64()
		for j := 0; j < 8 && j < len(b); j++ {
			b[j] = 'A' + byte(x&0xff*26>>8)
			x >>= 8
		}
		b = b[min(8, len(b)):]
	}
}

// throttle waits until n records are due.
func (t *producerPerf) throttle(start time.Time, n int64) {
	if t.throughput < 0 {
		return
	}
	var ahead time.Duration
	if t.throughput == 0 { // Kafka's way to stop
		ahead = 1 << 62
	} else {
		ahead = time.Until(start.Add(time.Duration(float64(n) / t.throughput * float64(time.Second))))
	}
	if ahead < 2*time.Millisecond {
		return
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.e.Context.Done():
	}
}

// perfStats gathers latencies. Of many records it keeps every n-th, half a million in all.
type perfStats struct {
	e           *Env
	steady      bool
	interval    time.Duration
	sampling    int64
	silentAfter int64 // reports end with so many records, where the steady state's reports take over; 0 = never

	mu           sync.Mutex
	start        time.Time // guarded by mu, as all below
	windowStart  time.Time
	latencies    []int64
	iteration    int64
	count, bytes int64
	maxLatency   int64
	totalLatency int64

	windowCount, windowBytes, windowMax, windowTotal int64
	announced                                        bool
}

func newPerfStats(records int64, interval time.Duration, e *Env, steady bool) *perfStats {
	keep := min(records, 500000)
	s := &perfStats{e: e, steady: steady, interval: interval, sampling: max(records/keep, 1), latencies: make([]int64, 0, keep+1)}
	s.begin()
	return s
}

func (s *perfStats) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start = time.Now()
	s.windowStart = s.start
}

func (s *perfStats) record(now time.Time, latency time.Duration, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms := latency.Milliseconds()
	s.count++
	s.bytes += int64(bytes)
	s.totalLatency += ms
	s.maxLatency = max(s.maxLatency, ms)
	s.windowCount++
	s.windowBytes += int64(bytes)
	s.windowTotal += ms
	s.windowMax = max(s.windowMax, ms)
	if s.iteration%s.sampling == 0 {
		s.latencies = append(s.latencies, ms)
	}
	s.iteration++
	if elapsed := now.Sub(s.windowStart); elapsed >= s.interval {
		if s.silentAfter == 0 || s.count <= s.silentAfter {
			if s.steady && !s.announced {
				s.e.Println("In steady state.")
				s.announced = true
			}
			sec := elapsed.Seconds()
			s.e.Printf("%d records sent, %.1f records/sec (%.2f MB/sec), %.1f ms avg latency, %.1f ms max latency.\n", s.windowCount,
				float64(s.windowCount)/sec, float64(s.windowBytes)/sec/(1<<20), float64(s.windowTotal)/float64(s.windowCount), float64(s.windowMax))
			s.e.Flush()
		}
		s.windowStart = now
		s.windowCount, s.windowBytes, s.windowMax, s.windowTotal = 0, 0, 0, 0
	}
}

func (s *perfStats) total() {
	s.mu.Lock()
	defer s.mu.Unlock()
	sec := time.Since(s.start).Seconds()
	sort.Slice(s.latencies, func(i, j int) bool { return s.latencies[i] < s.latencies[j] })
	at := func(p float64) int64 {
		if len(s.latencies) == 0 {
			return 0
		}
		return s.latencies[min(int(p*float64(len(s.latencies))), len(s.latencies)-1)]
	}
	state := ""
	if s.steady {
		state = " steady state"
	}
	average := 0.0
	if s.count > 0 {
		average = float64(s.totalLatency) / float64(s.count)
	}
	s.e.Printf("%d%s records sent, %f records/sec (%.2f MB/sec), %.2f ms avg latency, %.2f ms max latency, %d ms 50th, %d ms 95th, %d ms 99th, %d ms 99.9th.\n",
		s.count, state, float64(s.count)/sec, float64(s.bytes)/sec/(1<<20), average, float64(s.maxLatency), at(0.5), at(0.95), at(0.99), at(0.999))
}

// perfCounters is what --print-metrics shows: those of Kafka's client metrics that this client has too.
type perfCounters struct {
	client string
	began  time.Time

	mu                     sync.Mutex
	records, bytes, errors int64 // guarded by mu
}

func (c *perfCounters) sent(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records++
	c.bytes += int64(bytes)
}

func (c *perfCounters) failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errors++
}

func (c *perfCounters) print(e *Env, group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	verb := "record-send"
	if group != "producer-metrics" {
		verb = "records-consumed"
	}
	sec := time.Since(c.began).Seconds()
	rows := []struct {
		name  string
		value float64
	}{
		{"byte-rate", float64(c.bytes) / sec}, {"byte-total", float64(c.bytes)}, {"record-error-total", float64(c.errors)},
		{verb + "-rate", float64(c.records) / sec}, {verb + "-total", float64(c.records)},
	}
	width := 0
	for i := range rows {
		rows[i].name = fmt.Sprintf("%s:%s:{client-id=%s}", group, rows[i].name, c.client)
		width = max(width, len(rows[i].name))
	}
	e.Printf("\n%-*s   %s\n", width, "Metric Name", "Value")
	for _, r := range rows {
		e.Printf("%-*s : %.3f\n", width, r.name, r.value)
	}
}
