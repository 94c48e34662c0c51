package sim

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed only, with its trace")
	seedsFlag = flag.Int("seeds", 300, "how many seeds to run")
	firstFlag = flag.Uint64("first", 1, "first seed")
	// budgetFlag keeps a slow or busy machine from waiting for all of them.
	budgetFlag = flag.Duration("budget", 45*time.Second, "begin no seed after this time")
)

// run is one life of a metadata quorum under the faults of a seed.
func run(seed uint64, change func(*RaftConfig), trace func(string), logger *slog.Logger) (w *World, c *RaftCluster, err error) {
	w = NewWorld(seed)
	w.Trace = trace
	cfg := DrawRaft(w)
	if change != nil {
		change(&cfg)
	}
	c = NewRaftCluster(w, cfg, logger)
	return w, c, c.Run()
}

// TestRaft runs quorums under faults and checks the invariants K1–K11 at every step. Every fiftieth seed runs twice: the
// traces must be equal.
func TestRaft(t *testing.T) {
	if *seedFlag != 0 {
		level := new(slog.LevelVar)
		w, c, err := run(*seedFlag, nil, func(l string) { fmt.Println(l) }, slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: level})))
		t.Logf("seed %d: %v\nconfig: %v\nstats: %v", *seedFlag, w.Hash(), c.cfg, c.Stats)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	n := *seedsFlag
	if testing.Short() {
		n = min(n, 50)
	}
	began := time.Now()
	var (
		next atomic.Uint64
		wg   sync.WaitGroup
		mu   sync.Mutex
		// under mu
		sum         = map[string]int{}
		ran, events int
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !t.Failed() && time.Since(began) < *budgetFlag {
				i := next.Add(1) - 1
				if i >= uint64(n) {
					return
				}
				seed := *firstFlag + i
				w, c, err := run(seed, nil, nil, nil)
				if err != nil {
					t.Errorf("seed %d: %v\nconfig: %v\n%s\nagain: go test ./internal/sim -run TestRaft -seed=%d", seed, err, c.cfg, strings.Join(w.Recent(), "\n"), seed)
					return
				}
				if seed%50 == 0 {
					if w2, _, err := run(seed, nil, nil, nil); err != nil || w2.Hash() != w.Hash() {
						t.Errorf("seed %d is not deterministic: %s, then %s (%v)", seed, w.Hash(), w2.Hash(), err)
					}
				}
				mu.Lock()
				ran++
				events += w.Events
				for k, v := range c.Stats {
					sum[k] += v
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d seeds of %d, %d events in %v: %v", ran, n, events, time.Since(began).Round(time.Millisecond), sum)
	// A run that reaches nothing proves nothing.
	if !t.Failed() && ran >= 100 {
		for _, k := range []string{"elections", "resignations", "truncations", "snapshots loaded", "log starts moved", "voter sets", "pre-votes", "claims", "voters added", "voters removed", "kraft.version raised"} {
			if sum[k] == 0 {
				t.Errorf("no seed reached: %s", k)
			}
		}
	}
}
