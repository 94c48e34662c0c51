package cli

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
)

const perfColumns = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"

// consumerPerf is kafka-consumer-perf-test.
type consumerPerf struct {
	*toolArgs
	bootstrap, topic, include, group, fetchSize          *Option
	commandProperty, fromLatest, socket                  *Option
	consumerConfig, commandConfig, printMetrics, details *Option
	timeout, messages, records, interval                 *Option
	dateFormat, hideHeader                               *Option
}

func runConsumerPerf(e *Env) int {
	t := &consumerPerf{toolArgs: newToolArgs(e)}
	return runTool(t.run, func(err error) {
		e.Errorf("%s", err.Error())
		printCauses(e, err)
	})
}

func (t *consumerPerf) options() {
	t.bootstrap = t.Value("bootstrap-server", "server to connect to", "REQUIRED: The servers to connect to.")
	t.topic = t.Value("topic", "topic", "The topic to read.")
	t.include = t.Value("include", "Java regex (String)", "A regular expression for topics to read.")
	t.group = t.Value("group", "gid", "The consumer group's id.").Default("perf-consumer-" + strconv.Itoa(rand.IntN(100000)))
	t.fetchSize = t.Value("fetch-size", "size", "The most bytes of a partition in one request.").Default("1048576")
	t.commandProperty = t.Value("command-property", "prop1=val1", "A property of the consumer; wins over --command-config.")
	t.fromLatest = t.Flag("from-latest", "Without a committed offset start with the latest record, not the earliest.")
	t.socket = t.Value("socket-buffer-size", "size", "TCP receive buffer.").Default("2097152")
	t.consumerConfig = t.Value("consumer.config", "config file", "(DEPRECATED) use --command-config.")
	t.commandConfig = t.Value("command-config", "config file", "A file with properties of the consumer.")
	t.printMetrics = t.Flag("print-metrics", "Print the client's metrics.")
	t.details = t.Flag("show-detailed-stats", "Report at each interval of --reporting-interval.")
	t.timeout = t.Optional("timeout", "milliseconds", "The longest time between two records.").Default("10000")
	t.messages = t.Value("messages", "count", "(DEPRECATED) use --num-records.")
	t.records = t.Value("num-records", "count", "REQUIRED: How many records to read.")
	t.interval = t.Value("reporting-interval", "interval_ms", "How often to report in milliseconds.").Default("5000")
	t.dateFormat = t.Value("date-format", "date format", "How times are shown, as java.text.SimpleDateFormat takes it.").Default("yyyy-MM-dd HH:mm:ss:SSS")
	t.hideHeader = t.Flag("hide-header", "Leave the line with the columns' names out.")
}

func (t *consumerPerf) check() error {
	t.options()
	if err := t.parse(); err != nil {
		return t.usage(err.Error())
	}
	if err := t.helpOrVersion("This tool is used to verify the consumer performance."); err != nil {
		return err
	}
	if err := t.exactlyOne(t.topic, t.include); err != nil {
		return err
	}
	if err := t.exactlyOne(t.messages, t.records); err != nil {
		return err
	}
	if t.p.Has(t.messages) {
		t.e.Println("Warning: --messages is deprecated. Use --num-records instead.")
	}
	if err := t.require(t.bootstrap); err != nil {
		return err
	}
	if t.p.Has(t.consumerConfig) && t.p.Has(t.commandConfig) {
		return t.usage(fmt.Sprintf("Option \"%s\" can't be used with option \"%s\"", t.commandConfig, t.consumerConfig))
	}
	if t.p.Has(t.consumerConfig) {
		t.e.Println("Warning: --consumer.config is deprecated. Use --command-config instead.")
	}
	return nil
}

// props are the consumer's properties.
func (t *consumerPerf) props() ([]Property, error) {
	var props []Property
	for _, o := range []*Option{t.consumerConfig, t.commandConfig} {
		if t.p.Has(o) {
			path, err := t.text(o)
			if err != nil {
				return nil, err
			}
			if props, err = ReadProperties(path); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range parseKeyValueArgs(t.p.All(t.commandProperty)) {
		props = setProperty(props, p.Key, p.Value)
	}
	for _, m := range []struct {
		key string
		o   *Option
	}{{"bootstrap.servers", t.bootstrap}, {"group.id", t.group}, {"receive.buffer.bytes", t.socket}, {"max.partition.fetch.bytes", t.fetchSize}} {
		v, err := t.text(m.o)
		if err != nil {
			return nil, err
		}
		props = setProperty(props, m.key, v)
	}
	reset := "earliest"
	if t.p.Has(t.fromLatest) {
		reset = "latest"
	}
	props = setProperty(props, "auto.offset.reset", reset)
	props = setProperty(props, "check.crcs", "false")
	if !hasProperty(props, "client.id") {
		props = append(props, Property{"client.id", "perf-consumer-client"})
	}
	return props, nil
}

// rebalances adds up the time in which the consumer had no partitions.
type rebalances struct {
	mu       sync.Mutex
	since    time.Time     // guarded by mu, as all below
	total    time.Duration // since the start
	inWindow time.Duration // since the last report
}

func (r *rebalances) lost(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = now
}

func (r *rebalances) joined(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total += now.Sub(r.since)
	r.inWindow += now.Sub(r.since)
}

// take gives the window's time and starts a new one.
func (r *rebalances) take() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.inWindow
	r.inWindow = 0
	return d
}

func (r *rebalances) sum() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

func (t *consumerPerf) run() error {
	if err := t.check(); err != nil {
		return err
	}
	details := t.p.Has(t.details)
	if !t.p.Has(t.hideHeader) {
		first := "start.time, end.time"
		if details {
			first = "time, threadId"
		}
		t.e.Printf("%s, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec%s\n", first, perfColumns)
	}
	props, err := t.props()
	if err != nil {
		return err
	}
	s := subscription{}
	if t.p.Has(t.topic) {
		name, err := t.text(t.topic)
		if err != nil {
			return err
		}
		s.topics = []string{name}
	} else if s.include, err = t.text(t.include); err != nil {
		return err
	}
	k, err := newConsumer(t.e, props, s)
	if err != nil {
		return err
	}
	defer k.close()
	number := t.records
	if t.p.Has(t.messages) {
		number = t.messages
	}
	want, _, err := t.p.Long(number)
	if err != nil {
		return err
	}
	timeoutMs, _, err := t.p.Long(t.timeout)
	if err != nil {
		return err
	}
	intervalMs, _, err := t.p.Long(t.interval)
	if err != nil {
		return err
	}
	if intervalMs <= 0 {
		return illegalArgument("Reporting interval must be greater than 0.")
	}
	pattern, err := t.text(t.dateFormat)
	if err != nil {
		return err
	}
	if err := checkDateFormat(pattern); err != nil {
		return err
	}
	t.e.Stoppable()
	reb := &rebalances{since: time.Now()}
	k.onJoin, k.onLost = reb.joined, reb.lost
	counters := &perfCounters{client: k.conf.clientID(), began: time.Now()}

	start := time.Now()
	var read, bytes, lastRead, lastBytes int64
	lastReport, lastConsumed := start, start
	timeout, interval := time.Duration(timeoutMs)*time.Millisecond, time.Duration(intervalMs)*time.Millisecond
	for read < want && time.Since(lastConsumed) <= timeout {
		err := k.poll(t.e.Context, 100*time.Millisecond)
		if errors.Is(err, errTimeout) {
			continue
		}
		if err != nil {
			if t.e.Context.Err() != nil {
				break
			}
			return err
		}
		now := time.Now()
		lastConsumed = now
		for _, r := range k.ready {
			read++
			bytes += int64(len(r.Key) + len(r.Value))
			k.done(r)
			counters.sent(len(r.Key) + len(r.Value))
		}
		k.ready = nil
		if since := now.Sub(lastReport); since >= interval {
			if details {
				t.progress(pattern, now, bytes, lastBytes, read, lastRead, since, reb.take())
			}
			lastReport, lastRead, lastBytes = now, read, bytes
		}
	}
	if read < want {
		t.e.Printf("WARNING: Exiting before consuming the expected number of records: timeout (%d ms) exceeded. You can use the --timeout option to increase the timeout.\n", timeoutMs)
	}
	end := time.Now()
	if !details {
		elapsed := float64(end.Sub(start).Milliseconds()) / 1000
		join := reb.sum().Milliseconds()
		fetch := end.Sub(start).Milliseconds() - join
		mb := float64(bytes) / (1 << 20)
		t.e.Printf("%s, %s, %.4f, %s, %d, %s, %d, %d, %s, %s\n", javaDate(pattern, start), javaDate(pattern, end), mb, javaRate(mb, elapsed), read, javaRate(float64(read), elapsed),
			join, fetch, javaRate(mb, float64(fetch)/1000), javaRate(float64(read), float64(fetch)/1000))
	}
	if t.p.Has(t.printMetrics) {
		counters.print(t.e, "consumer-fetch-manager-metrics")
	}
	return nil
}

// progress is one line of --show-detailed-stats.
func (t *consumerPerf) progress(pattern string, now time.Time, bytes, lastBytes, read, lastRead int64, since, join time.Duration) {
	elapsed := float64(since.Milliseconds())
	mb, mbNow := float64(bytes)/(1<<20), float64(bytes-lastBytes)/(1<<20)
	fetch := since.Milliseconds() - join.Milliseconds()
	fetchMB, fetchRecords := 0.0, 0.0
	if fetch > 0 {
		fetchMB, fetchRecords = 1000*mbNow/float64(fetch), 1000*float64(read-lastRead)/float64(fetch)
	}
	t.e.Printf("%s, %d, %.4f, %.4f, %d, %.4f, %d, %d, %.4f, %.4f\n", javaDate(pattern, now), 0, mb, 1000*mbNow/elapsed, read, 1000*float64(read-lastRead)/elapsed,
		join.Milliseconds(), fetch, fetchMB, fetchRecords)
	t.e.Flush()
}

// javaRate is %.4f of a quotient, with Java's words for what is no number.
func javaRate(n, per float64) string {
	switch q := n / per; {
	case math.IsNaN(q):
		return "NaN"
	case math.IsInf(q, 1):
		return "Infinity"
	case math.IsInf(q, -1):
		return "-Infinity"
	default:
		return strconv.FormatFloat(q, 'f', 4, 64)
	}
}

// dateLetters are the pattern letters of SimpleDateFormat.
const dateLetters = "GyYMLwWDdFEuaHkKhmsSzZX"

func checkDateFormat(pattern string) error {
	quoted := false
	for _, c := range pattern {
		switch {
		case c == '\'':
			quoted = !quoted
		case !quoted && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') && !strings.ContainsRune(dateLetters, c):
			return illegalArgument(fmt.Sprintf("Illegal pattern character '%c'", c))
		}
	}
	if quoted {
		return illegalArgument("Unterminated quote")
	}
	return nil
}

// javaDate is a time as SimpleDateFormat shows it.
func javaDate(pattern string, at time.Time) string {
	var b strings.Builder
	r := []rune(pattern)
	for i := 0; i < len(r); {
		c := r[i]
		if c == '\'' {
			j := i + 1
			for j < len(r) && r[j] != '\'' {
				j++
			}
			if j == i+1 {
				b.WriteByte('\'')
			}
			b.WriteString(string(r[i+1 : min(j, len(r))]))
			i = j + 1
			continue
		}
		n := 1
		for i+n < len(r) && r[i+n] == c {
			n++
		}
		i += n
		pad := func(v int) { fmt.Fprintf(&b, "%0*d", n, v) }
		_, week := at.ISOWeek()
		switch c {
		case 'G':
			b.WriteString("AD")
		case 'y', 'Y':
			if n == 2 {
				fmt.Fprintf(&b, "%02d", at.Year()%100)
			} else {
				pad(at.Year())
			}
		case 'M', 'L':
			switch {
			case n >= 4:
				b.WriteString(at.Month().String())
			case n == 3:
				b.WriteString(at.Format("Jan"))
			default:
				pad(int(at.Month()))
			}
		case 'd':
			pad(at.Day())
		case 'D':
			pad(at.YearDay())
		case 'w':
			pad(week)
		case 'W', 'F':
			pad((at.Day()-1)/7 + 1)
		case 'E':
			if n >= 4 {
				b.WriteString(at.Weekday().String())
			} else {
				b.WriteString(at.Format("Mon"))
			}
		case 'u':
			pad((int(at.Weekday())+6)%7 + 1)
		case 'a':
			b.WriteString(at.Format("PM"))
		case 'H':
			pad(at.Hour())
		case 'k':
			pad((at.Hour()+23)%24 + 1)
		case 'K':
			pad(at.Hour() % 12)
		case 'h':
			pad((at.Hour()+11)%12 + 1)
		case 'm':
			pad(at.Minute())
		case 's':
			pad(at.Second())
		case 'S':
			pad(at.Nanosecond() / 1e6)
		case 'z':
			b.WriteString(at.Format("MST"))
		case 'Z':
			b.WriteString(at.Format("-0700"))
		case 'X':
			b.WriteString(at.Format([]string{"Z07", "Z0700", "Z07:00"}[min(n, 3)-1]))
		default:
			b.WriteString(strings.Repeat(string(c), n))
		}
	}
	return b.String()
}
