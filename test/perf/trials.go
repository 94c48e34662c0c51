package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// trial is a measurement that is more than a load: it stops, kills or fills the node. It runs once for each node, after the loads.
type trial struct {
	name string // for -only
	run  func(r *rival, o *options, put func(row string, value float64)) error
}

var trials = []trial{
	{"clean start", cleanStarts},
	{"start after kill -9", uncleanStart},
	{"compaction", compaction},
	{"tail latency", tails},
	{"limited descriptors", limited}, // the last: see there
}

// goal is what a row of a trial is held to: at most this of Highwater's own, and at most this share of Kafka's in the same run.
// 0 is no goal.
type goal struct{ own, share float64 }

// goals are those of the rows that have one.
var goals = map[string]goal{
	startRow(1000):     {own: 0.3, share: 0.1},
	startRow(10_000):   {own: 0.8, share: 0.1},
	startRow(100_000):  {own: 5, share: 0.1},
	memoryRow(10_000):  {own: 120},
	memoryRow(100_000): {own: 500},
	uncleanRow:         {own: 1.2},
	compactRow:         {share: 0.5},
	tailRow(1):         {own: 2},
	tailRow(10):        {own: 2},
}

// units are by the beginning of a row's name.
var units = [][2]string{
	{"create", "s"}, {"clean", "s"}, {compactRow, "CPU-s/GB"}, {compactWall, "s/GB"}, {"memory", "MB"}, {"descriptors", ""}, {uncleanRow, ""}, {"start", "s"}, {"reading", "s"},
	{tailRow(1), ""}, {tailRow(10), ""}, {"p99.9", "ms"}, {"produce", "s"}, {"fetch", "s"},
}

func unitOf(row string) string {
	for _, u := range units {
		if strings.HasPrefix(row, u[0]) {
			return u[1]
		}
	}
	return ""
}

// put notes what a trial found.
func (r *report) put(rival, row string, value float64) {
	if r.Trials == nil {
		r.Trials = map[string]map[string]float64{}
	}
	if r.Trials[row] == nil {
		r.Trials[row] = map[string]float64{}
		r.TrialRows = append(r.TrialRows, row)
	}
	r.Trials[row][rival] = value
}

// printTrials prints a line for each row: the rivals' values, the ratio to Kafka's, the goals.
func (r *report) printTrials(w io.Writer) {
	if len(r.TrialRows) == 0 {
		return
	}
	rivals := slices.DeleteFunc(slices.Clone(r.Rivals), func(n string) bool { return n == "null" })
	fmt.Fprintf(w, "\n%-46s %-9s", "", "unit")
	for _, n := range rivals {
		fmt.Fprintf(w, "|%12s", n)
	}
	fmt.Fprintf(w, "|%9s | goal\n", "/kafka")
	for _, row := range r.TrialRows {
		fmt.Fprintf(w, "%-46s %-9s", row, unitOf(row))
		for _, n := range rivals {
			if v, ok := r.Trials[row][n]; ok {
				fmt.Fprintf(w, "|%12.3f", v)
			} else {
				fmt.Fprintf(w, "|%12s", "-")
			}
		}
		own, kafka := r.Trials[row]["highwater"], r.Trials[row]["kafka"]
		if kafka > 0 && own > 0 {
			fmt.Fprintf(w, "|%9.3f |", own/kafka)
		} else {
			fmt.Fprintf(w, "|%9s |", "-")
		}
		g := goals[row]
		if g.own > 0 {
			fmt.Fprintf(w, " ≤ %g", g.own)
		}
		if g.own > 0 && g.share > 0 {
			fmt.Fprint(w, ",")
		}
		if g.share > 0 {
			fmt.Fprintf(w, " ≤ %g of Kafka's", g.share)
		}
		fmt.Fprintln(w)
	}
}
