package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// fsckSeverity says how much a finding matters.
type fsckSeverity int8

// The severities. Only errors give the tool a status of 1.
const (
	fsckNote    fsckSeverity = iota // expected where a process stopped or is at work; nothing to do
	fsckWarning                     // wrong, but made good without losing a record, or worth a look
	fsckError                       // loses or hides data, or stops Kafka
)

var fsckSeverities = [...]string{"note", "warning", "error"}

func (s fsckSeverity) String() string { return fsckSeverities[s] }

// MarshalText gives the severity its name in JSON.
func (s fsckSeverity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// fsckFinding is one thing to say about one file or directory.
type fsckFinding struct {
	File     string       `json:"file"`
	Severity fsckSeverity `json:"severity"`
	// Check names the kind of finding, for scripts.
	Check string `json:"check"`
	// Position is in bytes, Offset a record's; -1 if there is none to name.
	Position int64  `json:"position"`
	Offset   int64  `json:"offset"`
	Text     string `json:"text"`
	Kafka    string `json:"kafka"`
	// Highwater is "" where it does the same as Kafka.
	Highwater string `json:"highwater,omitempty"`
	WayOut    string `json:"wayOut,omitempty"`
}

// at gives a finding its place.
func (f *fsckFinding) at(position, offset int64) *fsckFinding {
	f.Position, f.Offset = position, offset
	return f
}

// fsckPerFile bounds the findings of one kind in one file: a broken disk has millions.
const fsckPerFile = 10

// fsckFindings collects what one part of the check finds. It is not safe for concurrent use: each part has its own.
type fsckFindings struct {
	list  []*fsckFinding
	count map[[2]string]int // by file and check
}

// add notes a finding; where there were too many of its kind in that file, it only counts.
func (l *fsckFindings) add(severity fsckSeverity, file, check, kafka, format string, args ...any) *fsckFinding {
	f := &fsckFinding{File: file, Severity: severity, Check: check, Kafka: kafka, Position: -1, Offset: -1, Text: fmt.Sprintf(format, args...)}
	if l.count == nil {
		l.count = map[[2]string]int{}
	}
	k := [2]string{file, check}
	if l.count[k]++; l.count[k] <= fsckPerFile {
		l.list = append(l.list, f)
	}
	return f
}

// closed is the list, with a word about those that were left out.
func (l *fsckFindings) closed() []*fsckFinding {
	out := l.list
	for k, n := range l.count {
		if n <= fsckPerFile {
			continue
		}
		for i := len(out) - 1; i >= 0; i-- {
			if f := out[i]; f.File == k[0] && f.Check == k[1] {
				f.Text += fmt.Sprintf(" (and %d more like this in this file)", n-fsckPerFile)
				break
			}
		}
	}
	return out
}

// fsckCounts is what was looked at.
type fsckCounts struct {
	Files      int64 `json:"files"`
	Bytes      int64 `json:"bytes"`
	Partitions int64 `json:"partitions"`
	Segments   int64 `json:"segments"`
	Batches    int64 `json:"batches"`
	Records    int64 `json:"records"`
}

func (c *fsckCounts) add(o fsckCounts) {
	c.Files += o.Files
	c.Bytes += o.Bytes
	c.Partitions += o.Partitions
	c.Segments += o.Segments
	c.Batches += o.Batches
	c.Records += o.Records
}

// fsckForecast is what Kafka's next start makes of a partition.
type fsckForecast struct {
	Partition string `json:"partition"` // the directory's path
	Topic     string `json:"topic"`
	ID        string `json:"topicId,omitempty"`
	// StartOffset and EndOffset are those after the start.
	StartOffset int64 `json:"startOffset"`
	EndOffset   int64 `json:"endOffset"`
	// Recovers lists the base offsets of the segments that it reads and checks as a whole.
	Recovers []int64 `json:"recovers,omitempty"`
	// TruncatedTo is where it cuts the log off, -1 if it doesn't. Bytes, Records and Segments are what goes with that:
	// Records are those that can still be counted.
	TruncatedTo      int64 `json:"truncatedTo"`
	TruncatedBytes   int64 `json:"truncatedBytes,omitempty"`
	TruncatedRecords int64 `json:"truncatedRecords,omitempty"`
	DroppedSegments  int   `json:"droppedSegments,omitempty"`
	Stray            bool  `json:"stray,omitempty"` // it renames the directory to …-stray
}

// fsckDirState is what is to be said of a log directory as a whole.
type fsckDirState struct {
	Path   string `json:"path"`
	Clean  bool   `json:"clean"`
	Locked bool   `json:"locked,omitempty"`
	fsckCounts
}

// fsckReport is everything.
type fsckReport struct {
	Dirs       []*fsckDirState `json:"dirs"`
	Partitions []*fsckForecast `json:"partitions"`
	Findings   []*fsckFinding  `json:"findings"`
	Errors     int             `json:"errors"`
	Warnings   int             `json:"warnings"`
	Notes      int             `json:"notes"`
	// Live: a running broker may have changed files while they were read.
	Live bool `json:"live,omitempty"`
}

func (r *fsckReport) finish() {
	slices.SortStableFunc(r.Findings, func(a, b *fsckFinding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Position, b.Position), cmp.Compare(b.Severity, a.Severity))
	})
	slices.SortFunc(r.Partitions, func(a, b *fsckForecast) int { return cmp.Compare(a.Partition, b.Partition) })
	for _, f := range r.Findings {
		switch f.Severity {
		case fsckError:
			r.Errors++
		case fsckWarning:
			r.Warnings++
		default:
			r.Notes++
		}
	}
	if r.Findings == nil {
		r.Findings = []*fsckFinding{}
	}
	if r.Partitions == nil {
		r.Partitions = []*fsckForecast{}
	}
}

// json writes the report as one JSON object.
func (r *fsckReport) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// text writes the report for people. least is the smallest severity to show.
func (r *fsckReport) text(w io.Writer, least fsckSeverity, verbose bool) {
	if r.Live {
		fmt.Fprintln(w, "A running broker has the directory open: what follows may be about files that were changing while they were read.")
	}
	for _, f := range r.Findings {
		if f.Severity < least {
			continue
		}
		fmt.Fprintf(w, "%s: %s: %s\n", f.File, f.Severity, f.Text)
		fmt.Fprintf(w, "    Kafka: %s\n", f.Kafka)
		if f.Highwater != "" {
			fmt.Fprintf(w, "    Highwater: %s\n", f.Highwater)
		}
		if f.WayOut != "" {
			fmt.Fprintf(w, "    Way out: %s\n", f.WayOut)
		}
	}
	if verbose {
		for _, p := range r.Partitions {
			fmt.Fprintf(w, "%s: offsets %d to %d", p.Partition, p.StartOffset, p.EndOffset)
			if len(p.Recovers) > 0 {
				fmt.Fprintf(w, "; Kafka recovers segments %s", strings.Trim(fmt.Sprint(p.Recovers), "[]"))
			}
			if p.TruncatedTo >= 0 {
				fmt.Fprintf(w, ", truncates to offset %d", p.TruncatedTo)
			}
			fmt.Fprintln(w)
		}
	}
	for _, d := range r.Dirs {
		state := "not stopped cleanly"
		switch {
		case d.Locked:
			state = "in use"
		case d.Clean:
			state = "stopped cleanly"
		}
		fmt.Fprintf(w, "%s: %s; %d partitions, %d segments, %d batches, %d records, %d files, %d bytes\n",
			d.Path, state, d.Partitions, d.Segments, d.Batches, d.Records, d.Files, d.Bytes)
	}
	fmt.Fprintf(w, "%s, %s, %s\n", fsckPlural(r.Errors, "error"), fsckPlural(r.Warnings, "warning"), fsckPlural(r.Notes, "note"))
}

func fsckPlural(n int, what string) string { return fmt.Sprintf("%d %s", n, plural(what, what+"s", n)) }
