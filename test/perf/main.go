package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/highwater/highwater/test/peer"
)

type options struct {
	short  bool
	kafka  string // auto, yes, no
	rounds int
	only   string
	scale  float64
	warm   time.Duration
	dir    string
	json   string
	starts string
	noNode bool // no Highwater, to try the benchmark itself
}

func main() {
	var o options
	flag.BoolVar(&o.short, "short", false, "about a minute: one round, little data, no Kafka")
	flag.StringVar(&o.kafka, "kafka", "auto", "run the real Kafka too: yes, no, or auto: if there is a java")
	flag.IntVar(&o.rounds, "rounds", 0, "interleaved rounds; 0: 3, short 1")
	flag.StringVar(&o.only, "only", "", "comma-separated parts of the names of the rows to run")
	flag.Float64Var(&o.scale, "scale", 0, "share of the usual amount of data; 0: 1, short 0.1")
	flag.DurationVar(&o.warm, "warm", 90*time.Second, "how long Kafka is warmed up before the first round")
	flag.StringVar(&o.dir, "dir", "", "where the brokers keep their data; default: a new temporary directory")
	flag.StringVar(&o.json, "json", "", "write all figures to this file")
	flag.StringVar(&o.starts, "starts", "", "partitions of the start rows; default 1000,10000, short 1000")
	flag.BoolVar(&o.noNode, "no-highwater", false, "measure the null broker (and Kafka) alone")
	flag.Parse()
	if _, err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "perf:", err)
		os.Exit(1)
	}
}

// rival is a broker under load.
type rival struct {
	name string
	addr string
	pid  func() int
	stop func()
	node peer.Node // nil for the null broker

	startTime      time.Duration
	idleMB, loadMB float64
}

func run(o options, out io.Writer) (*report, error) {
	if o.rounds == 0 {
		o.rounds = 3
		if o.short {
			o.rounds = 1
		}
	}
	if o.scale == 0 {
		o.scale = 1
		if o.short {
			o.scale = 0.1
		}
	}
	if o.starts == "" {
		o.starts = "1000,10000"
		if o.short {
			o.starts = "1000"
		}
	}
	if o.dir == "" {
		d, err := os.MkdirTemp("", "highwater-perf-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(d)
		o.dir = d
	}
	var rivals []*rival
	defer func() {
		for _, r := range rivals {
			r.stop()
		}
	}()
	null, err := startNull(filepath.Join(o.dir, "null"))
	if err != nil {
		return nil, err
	}
	rivals = append(rivals, null)
	softwares := []peer.Software{peer.Highwater}
	if o.noNode {
		softwares = nil
	}
	_, javaErr := exec.LookPath("java")
	switch {
	case o.kafka == "yes" || o.kafka == "auto" && !o.short && javaErr == nil:
		softwares = append(softwares, peer.Kafka)
	case o.kafka == "auto" && !o.short:
		fmt.Fprintln(out, "no java here: Kafka is left out")
	}
	for _, s := range softwares {
		r, err := startNode(s, filepath.Join(o.dir, string(s)))
		if err != nil {
			return nil, err
		}
		rivals = append(rivals, r)
	}
	for _, r := range rivals {
		r.idleMB = settled(r)
	}
	rows := slices.DeleteFunc(slices.Clone(loads), func(l load) bool { return !chosen(o.only, l.name) })
	rep := &report{Machine: fmt.Sprintf("%d × %s, %s", runtime.NumCPU(), cpuModel(), runtime.Version()), Rounds: o.rounds, Figures: map[string]map[string]*figure{}}
	for _, r := range rivals {
		rep.Rivals = append(rep.Rivals, r.name)
	}
	for _, r := range rivals { // a JVM has to compile what it will run; ours and the null broker have pools to fill
		warm := time.Second
		if r.name == string(peer.Kafka) {
			warm = o.warm
		}
		for begin, first := time.Now(), true; len(rows) > 0 && (first || time.Since(begin) < warm); first = false {
			for _, l := range rows {
				if _, err := l.run(r, min(o.scale, 0.3)); err != nil {
					return nil, fmt.Errorf("%s on %s: %w", l.name, r.name, err)
				}
			}
		}
	}
	for range o.rounds {
		for _, l := range rows {
			for _, r := range rivals {
				s, err := l.run(r, o.scale)
				if err != nil {
					return nil, fmt.Errorf("%s on %s: %w", l.name, r.name, err)
				}
				rep.add(l, r.name, s)
				_, mb := cost(r.pid())
				r.loadMB = max(r.loadMB, mb)
			}
		}
	}
	for _, t := range trials {
		if !chosen(o.only, t.name) {
			continue
		}
		for _, r := range rivals {
			if r.node == nil {
				continue
			}
			if err := t.run(r, &o, func(row string, value float64) { rep.put(r.name, row, value) }); err != nil {
				return nil, fmt.Errorf("%s of %s: %w", t.name, r.name, err)
			}
		}
	}
	for _, r := range rivals {
		rep.keep(r)
	}
	rep.print(out, rows)
	if o.json != "" {
		b, err := json.MarshalIndent(rep, "", "  ")
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Dir(o.json), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(o.json, append(b, '\n'), 0o644); err != nil {
			return nil, err
		}
	}
	return rep, nil
}

// chosen tells whether -only, if it is there, names a row.
func chosen(only, name string) bool {
	return only == "" || slices.ContainsFunc(strings.Split(only, ","), func(part string) bool { return strings.Contains(name, part) })
}

func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for _, l := range strings.Split(string(b), "\n") {
		if name, ok := strings.CutPrefix(l, "model name\t: "); ok {
			return name
		}
	}
	return runtime.GOARCH
}

// settled waits until a started broker is idle and says how much memory it holds then.
func settled(r *rival) float64 {
	last, _ := cost(r.pid())
	mb := 0.0
	for range 20 {
		<-time.After(500 * time.Millisecond)
		var now float64
		now, mb = cost(r.pid())
		if now-last < 0.03 {
			break
		}
		last = now
	}
	return mb
}

func startNode(s peer.Software, home string, properties ...string) (*rival, error) {
	usual := []string{"num.network.threads=3", "num.io.threads=8", "log.retention.ms=-1", "log.retention.bytes=2000000000", "log.segment.bytes=536870912", "log.retention.check.interval.ms=5000"}
	n, err := peer.Create(peer.Options{Software: s, Home: home, Properties: append(usual, properties...)})
	if err != nil {
		return nil, err
	}
	d, err := n.Start()
	if err != nil {
		return nil, err
	}
	return &rival{name: string(s), addr: n.Addr(), pid: n.PID, stop: func() { n.Kill() }, node: n, startTime: d}, nil
}
