package cli

import (
	"errors"
	"testing"

	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// FuzzFsck checks a partition whose files may hold anything: it says something of them, and does not fail.
func FuzzFsck(f *testing.F) {
	files := fsckArchive(f, "single-4.4")
	seed := func(dir, base string, clean bool) {
		get := func(suffix string) []byte { return files["1/data/"+dir+"/"+base+suffix] }
		log := get(".log")
		end := 0
		for end < len(log) && end < 2000 { // a few batches say as much, and sooner
			end += record.Batch(log[end:]).Size()
		}
		log = log[:end]
		f.Add(log, get(".index"), get(".timeindex"), get(".txnindex"), get(".snapshot"), files["1/data/"+dir+"/leader-epoch-checkpoint"], clean)
	}
	for _, clean := range []bool{false, true} {
		seed("txn-0", "00000000000000000005", clean)
		seed("compacted-txn-0", "00000000000000000000", clean)
		seed("idempotent-0", "00000000000000000064", clean)
		seed("codec-lz4-0", "00000000000000000000", clean)
	}
	// One directory in memory for all runs of this process, a clean one and one that is not: a run only exchanges the bytes of
	// the partition's files, since to make them would be most of the work.
	names := [...]string{
		"00000000000000000005.log", "00000000000000000005.index", "00000000000000000005.timeindex", "00000000000000000005.txnindex",
		"00000000000000000005.snapshot", "00000000000000000060.snapshot", "leader-epoch-checkpoint",
	}
	m := vfs.NewMem()
	open := map[bool][len(names)]vfs.File{}
	for clean, dir := range map[bool]string{false: "killed", true: "clean"} {
		fsckPut(f, m, dir+"/meta.properties", files["1/data/meta.properties"])
		if clean {
			fsckPut(f, m, dir+"/.kafka_cleanshutdown", nil)
		}
		var of [len(names)]vfs.File
		for i, name := range names {
			fsckPut(f, m, dir+"/t-0/"+name, nil)
			var err error
			if of[i], err = m.Open(dir+"/t-0/"+name, vfs.ReadWrite); err != nil {
				f.Fatal(err)
			}
		}
		open[clean] = of
	}
	f.Fuzz(func(t *testing.T, log, index, times, txns, snapshot, epochs []byte, clean bool) {
		if len(log) > 1<<16 {
			return
		}
		of := open[clean]
		for i, data := range [len(names)][]byte{log, index, times, txns, snapshot, snapshot, epochs} {
			_, err := of[i].WriteAt(data, 0)
			if err := errors.Join(err, of[i].Truncate(int64(len(data))), of[i].Sync()); err != nil {
				t.Fatal(err)
			}
		}
		dir := "killed"
		if clean {
			dir = "clean"
		}
		r := fsckRun(t, m, dir+"/t-0")
		p := r.partition("t-0")
		if p.EndOffset < p.StartOffset || p.TruncatedTo > p.EndOffset && p.TruncatedTo >= 0 {
			t.Errorf("from %d to %d, truncated to %d", p.StartOffset, p.EndOffset, p.TruncatedTo)
		}
		for _, x := range r.Findings {
			if x.Kafka == "" || x.Text == "" {
				t.Errorf("says nothing: %+v", x)
			}
		}
	})
}
