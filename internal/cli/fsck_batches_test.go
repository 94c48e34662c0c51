package cli

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
)

// TestFsckGap: a segment in the middle of a log is missing, as after a clean stop and after a kill.
func TestFsckGap(t *testing.T) {
	const dir = "1/data/steps-0"
	files := fsckArchive(t, "single-4.4")
	for _, c := range []struct {
		clean     bool
		highwater string
	}{{true, ""}, {false, "set aside as .aside files"}} {
		m := fsckMem(t, "single-4.4", dir)
		fsckPut(t, m, "1/data/meta.properties", files["1/data/meta.properties"])
		if c.clean {
			fsckPut(t, m, "1/data/"+storage.CleanShutdownFile, files["1/data/"+storage.CleanShutdownFile])
		}
		entries, err := m.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		var bases []string
		for _, e := range entries {
			if base, ok := strings.CutSuffix(e.Name(), ".log"); ok {
				bases = append(bases, base)
			}
		}
		if len(bases) < 3 {
			t.Fatalf("segments %v", bases)
		}
		for _, suffix := range []string{".log", ".index", ".timeindex", ".snapshot", ".txnindex"} {
			if err := m.RemoveAll(dir + "/" + bases[1] + suffix); err != nil {
				t.Fatal(err)
			}
		}
		missing, _, _ := storage.ParseSegmentFileName(bases[1] + ".log")
		r := fsckRun(t, m, dir)
		if !slices.ContainsFunc(r.Findings, func(f *fsckFinding) bool {
			return f.File == dir+"/"+bases[2]+".log" && f.Check == "gap" && f.Severity == fsckWarning && f.Offset == missing &&
				strings.Contains(f.WayOut, "backup") && (f.Highwater == "") == (c.highwater == "") && strings.Contains(f.Highwater, c.highwater)
		}) {
			t.Errorf("clean %v:\n%s", c.clean, fsckLines(r, fsckWarning))
		}
	}
}

// TestFsckRecoveryPoint: a bad batch below the recovery point, in its segment, costs Kafka all that follows; not us. In an earlier
// segment it costs nobody anything, and is never served.
func TestFsckRecoveryPoint(t *testing.T) {
	const dir = "1/data/stream-0"
	files := fsckArchive(t, "single-4.4-unclean")
	for _, c := range []struct {
		base, kafka, highwater string
		truncated              bool
	}{
		{"00000000000000005710", "truncates the log to offset", "cuts nothing off below the recovery point 7700", true},
		{"00000000000000000000", "below the recovery point", "checks the batch before it is served", false},
	} {
		m := fsckMem(t, "single-4.4-unclean", dir)
		fsckPut(t, m, "1/data/meta.properties", files["1/data/meta.properties"])
		fsckPut(t, m, "1/data/recovery-point-offset-checkpoint", []byte("0\n1\nstream 0 7700\n"))
		if err := m.FlipBit(dir+"/"+c.base+".log", 8*100); err != nil {
			t.Fatal(err)
		}
		r := fsckRun(t, m, dir)
		p := r.partition("stream-0")
		if (p.TruncatedTo >= 0) != c.truncated || !slices.Equal(p.Recovers, []int64{5710}) || r.Errors == 0 {
			t.Errorf("%s: truncated to %d, recovers %v, %d errors", c.base, p.TruncatedTo, p.Recovers, r.Errors)
		}
		if !slices.ContainsFunc(r.Findings, func(f *fsckFinding) bool {
			return f.Check == "batch-crc" && strings.Contains(f.Kafka, c.kafka) && strings.Contains(f.Highwater, c.highwater)
		}) {
			t.Errorf("%s: not said in\n%s", c.base, fsckLines(r, fsckNote))
		}
	}
}

// TestFsckMetadataRecoveryPoint: Kafka knows no recovery point of the metadata log, and cuts it off at a bad batch wherever that is.
// Highwater does so only above what it knows to have been synced, by the checkpoint's line or by a snapshot; else it refuses to start.
func TestFsckMetadataRecoveryPoint(t *testing.T) {
	const dir, log = "1/data/" + fsckMetadataDir, "1/data/" + fsckMetadataDir + "/00000000000000000000.log"
	const archive = "single-4.4"
	files := fsckArchive(t, archive)
	newest := kafka.Offset(0)
	for file := range files {
		if id, ok := raftloop.ParseSnapshotName(path.Base(file)); ok && path.Dir(file) == dir {
			newest = max(newest, id.Offset)
		}
	}
	// Positions of batches below and above the snapshot's end, and the log's end.
	var below, above int64
	var bad, end kafka.Offset
	for data, pos := files[log], 0; pos < len(data); {
		b := record.Batch(data[pos:])
		if b.BaseOffset() == 0 {
			below = int64(pos)
		}
		if above == 0 && b.BaseOffset() >= newest {
			above, bad = int64(pos), b.BaseOffset()
		}
		end, pos = b.NextOffset(), pos+b.Size()
	}
	if newest == 0 || above == 0 || bad+1 >= end {
		t.Fatalf("the archive has its newest snapshot at %d and its log's end at %d", newest, end)
	}
	for _, c := range []struct {
		name       string
		at         int64
		checkpoint kafka.Offset // -1 for no line
		highwater  string       // "" where it does the same as Kafka
	}{
		{"no line, above the snapshot", above, -1, ""},
		{"no line, below the snapshot", below, -1, fmt.Sprintf("does not start: an error that names file and position. It cuts nothing off the metadata log below offset %d", newest)},
		{"a line, above the snapshot", above, end, fmt.Sprintf("does not start: an error that names file and position. It cuts nothing off the metadata log below offset %d", end)},
		{"a line below the place", above, bad, ""},
	} {
		m := fsckMem(t, archive, dir)
		fsckPut(t, m, "1/data/meta.properties", files["1/data/meta.properties"])
		if c.checkpoint >= 0 {
			fsckPut(t, m, "1/data/recovery-point-offset-checkpoint", fmt.Appendf(nil, "0\n1\n__cluster_metadata 0 %d\n", c.checkpoint))
		}
		if err := m.FlipBit(log, 8*(c.at+70)); err != nil {
			t.Fatal(err)
		}
		r := fsckRun(t, m, dir)
		p := r.partition(fsckMetadataDir)
		if p.TruncatedTo < 0 || r.Errors == 0 {
			t.Errorf("%s: Kafka's forecast is %+v, with %d errors", c.name, p, r.Errors)
		}
		if !slices.ContainsFunc(r.Findings, func(f *fsckFinding) bool {
			return f.File == log && f.Check == "batch-crc" && strings.Contains(f.Kafka, "truncates the log to offset") &&
				(f.Highwater == "") == (c.highwater == "") && strings.HasPrefix(f.Highwater, c.highwater)
		}) {
			t.Errorf("%s: not said in\n%s", c.name, fsckLines(r, fsckNote))
		}
	}
	// A log that ends below its recovery point, at the border of a batch.
	m := fsckMem(t, archive, dir)
	fsckPut(t, m, "1/data/meta.properties", files["1/data/meta.properties"])
	fsckPut(t, m, "1/data/recovery-point-offset-checkpoint", fmt.Appendf(nil, "0\n1\n__cluster_metadata 0 %d\n", end+5))
	if r := fsckRun(t, m, dir); !r.has("1/data/recovery-point-offset-checkpoint", "checkpoint", fsckError) {
		t.Errorf("the log ends below its recovery point:\n%s", fsckLines(r, fsckNote))
	}
}
