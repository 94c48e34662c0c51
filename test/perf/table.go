package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// report is all that was measured.
type report struct {
	Machine string
	Rounds  int
	Rivals  []string
	Figures map[string]map[string]*figure // row, rival
	Memory  map[string][2]float64         // rival → idle, loaded, in MB
	Start   map[string]time.Duration      // rival, on an empty directory

	Trials    map[string]map[string]float64 // row, rival
	TrialRows []string                      // in order
}

// figure is the median of a row's rounds.
type figure struct {
	Samples []*sample
	Unit    string
	Cost    float64
	PerSec  float64 // requests
	GBs     float64
	P50     float64
	P99     float64
}

func (r *report) add(l load, rival string, s *sample) {
	if r.Figures[l.name] == nil {
		r.Figures[l.name] = map[string]*figure{}
	}
	f := r.Figures[l.name][rival]
	if f == nil {
		f = &figure{Unit: l.unit}
		r.Figures[l.name][rival] = f
	}
	f.Samples = append(f.Samples, s)
	f.Cost = f.median(func(s *sample) float64 { return s.cost(l.unit) })
	f.PerSec = f.median(func(s *sample) float64 { return float64(s.Requests) / s.Wall })
	f.GBs = f.median(func(s *sample) float64 { return s.GB / s.Wall })
	f.P50 = f.median(func(s *sample) float64 { return s.P50 })
	f.P99 = f.median(func(s *sample) float64 { return s.P99 })
}

func (f *figure) median(of func(*sample) float64) float64 {
	var v []float64
	for _, s := range f.Samples {
		v = append(v, of(s))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func (r *report) keep(v *rival) {
	if r.Memory == nil {
		r.Memory, r.Start = map[string][2]float64{}, map[string]time.Duration{}
	}
	r.Memory[v.name] = [2]float64{v.idleMB, v.loadMB}
	r.Start[v.name] = v.startTime
}

// ratio is what a row costs one rival, against another; 0 if one of them was not measured.
func (r *report) ratio(row, rival, to string) float64 {
	a, b := r.Figures[row][rival], r.Figures[row][to]
	if a == nil || b == nil || b.Cost == 0 {
		return 0
	}
	return a.Cost / b.Cost
}

func (r *report) print(w io.Writer, rows []load) {
	fmt.Fprintf(w, "%s; median of %d interleaved rounds; CPU of the broker's process\n\n", r.Machine, r.Rounds)
	fmt.Fprintf(w, "%-30s %-9s", "", "unit")
	for _, n := range r.Rivals {
		fmt.Fprintf(w, "|%10s", n)
		if n != "null" {
			fmt.Fprintf(w, "%8s", "/null")
		}
		if n == "highwater" && slices.Contains(r.Rivals, "kafka") {
			fmt.Fprintf(w, "%8s", "/kafka")
		}
		fmt.Fprintf(w, "%9s%8s%9s%9s ", "req/s", "GB/s", "p50 µs", "p99 µs")
	}
	fmt.Fprintf(w, "| goal\n")
	for _, l := range rows {
		fmt.Fprintf(w, "%-30s %-9s", l.name, l.unit)
		for _, n := range r.Rivals {
			f := r.Figures[l.name][n]
			if f == nil {
				fmt.Fprintf(w, "|%10s", "-")
				continue
			}
			fmt.Fprintf(w, "|%10.3f", f.Cost)
			if n != "null" {
				fmt.Fprintf(w, "%8.2f", r.ratio(l.name, n, "null"))
			}
			if n == "highwater" && slices.Contains(r.Rivals, "kafka") {
				fmt.Fprintf(w, "%8.2f", r.ratio(l.name, n, "kafka"))
			}
			fmt.Fprintf(w, "%9.0f%8.2f%9.0f%9.0f ", f.PerSec, f.GBs, f.P50, f.P99)
		}
		if l.goal != "" {
			fmt.Fprintf(w, "| ≤ %s", l.goal)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	for _, n := range r.Rivals {
		fmt.Fprintf(w, "%-10s resident %4.0f MB idle, %4.0f MB under load; first answer after %4.0f ms", n, r.Memory[n][0], r.Memory[n][1], r.Start[n].Seconds()*1000)
		fmt.Fprintln(w)
	}
	if slices.Contains(r.Rivals, "highwater") {
		fmt.Fprintln(w, strings.TrimSpace(`
goals of highwater: ≤ 40 MB idle, ≤ 150 MB under load`))
	}
	r.printTrials(w)
}
