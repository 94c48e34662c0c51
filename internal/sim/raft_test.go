package sim

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed only, with its trace")
	seedsFlag = flag.Int("seeds", 300, "how many seeds to run")
	firstFlag = flag.Uint64("first", 1, "first seed")
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

// TestRaft runs quorums under faults and checks the invariants K1–K11 at every step. Every hundredth seed runs twice: the
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
	var events atomic.Int64
	total := make(chan map[string]int, n)
	began := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for i := range n {
			seed := *firstFlag + uint64(i)
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w, c, err := run(seed, nil, nil, nil)
				if err != nil {
					t.Fatalf("seed %d: %v\nconfig: %v\n%s\nagain: go test ./internal/sim -run TestRaft -seed=%d", seed, err, c.cfg, strings.Join(w.Recent(), "\n"), seed)
				}
				events.Add(int64(w.Events))
				total <- c.Stats
				if seed%100 == 0 {
					w2, _, err := run(seed, nil, nil, nil)
					if err != nil || w2.Hash() != w.Hash() {
						t.Fatalf("seed %d is not deterministic: %s, then %s (%v)", seed, w.Hash(), w2.Hash(), err)
					}
				}
			})
		}
	})
	close(total)
	sum := map[string]int{}
	for s := range total {
		for k, v := range s {
			sum[k] += v
		}
	}
	t.Logf("%d seeds, %d events in %v: %v", n, events.Load(), time.Since(began).Round(time.Millisecond), sum)
	// A run that reaches nothing proves nothing.
	if !t.Failed() && n >= 50 {
		for _, k := range []string{"elections", "resignations", "truncations", "snapshots loaded", "log starts moved", "voter sets", "pre-votes", "claims", "voters added", "voters removed"} {
			if sum[k] == 0 {
				t.Errorf("no seed reached: %s", k)
			}
		}
	}
}
