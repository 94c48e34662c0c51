package storage

import (
	"bytes"
	"errors"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// seedsOf adds every small file of the archives whose name ends so to the corpus, each content once.
func seedsOf(f *testing.F, suffix string) {
	f.Helper()
	seen := map[string]bool{}
	for _, archive := range []string{"single-4.4", "single-4.4-torn", "3.9.2-zookeeper", "3.3.2-single"} {
		for name, b := range archiveSmallFiles(f, archive) {
			if strings.HasSuffix(name, suffix) && !seen[string(b)] {
				f.Add(b)
				seen[string(b)] = true
			}
		}
	}
	if len(seen) == 0 {
		f.Fatal("no seeds")
	}
}

func FuzzSnapshot(f *testing.F) {
	seedsOf(f, snapshotSuffix)
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := decodeSnapshot(b)
		if err == nil && !bytes.Equal(encodeSnapshot(entries), b) {
			t.Fatalf("%x became %x", b, encodeSnapshot(entries))
		}
	})
}

func FuzzTxnIndex(f *testing.F) {
	seedsOf(f, txnIndexSuffix)
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := decodeAborted(b, 0)
		var again []byte
		for _, e := range entries {
			again = e.append(again)
		}
		if err == nil && !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

func FuzzEpochs(f *testing.F) {
	seedsOf(f, epochsName)
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := decodeEpochs(b)
		if err != nil {
			return
		}
		again, err := decodeEpochs(encodeEpochs(entries))
		if err != nil || len(again) != len(entries) {
			t.Fatal(again, err)
		}
	})
}

func FuzzOffsetCheckpoint(f *testing.F) {
	seedsOf(f, "-checkpoint")
	f.Fuzz(func(t *testing.T, b []byte) {
		offsets, err := decodeOffsets(b)
		if err != nil {
			return
		}
		var entries []checkpointEntry
		for p, o := range offsets {
			entries = append(entries, checkpointEntry{p, o})
		}
		again, err := decodeOffsets(encodeOffsets(entries))
		if err != nil || len(again) != len(offsets) {
			t.Fatal(again, err)
		}
	})
}

func FuzzMeta(f *testing.F) {
	seedsOf(f, metaName)
	seedsOf(f, partitionMetadataName)
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMeta(b); err == nil && m.ClusterID != "" && !bytes.ContainsAny([]byte(m.ClusterID), " \\\t\r\n\f:=#!\x00") && isASCII(m.ClusterID) {
			again, err := decodeMeta(encodeMeta(m))
			if err != nil || again != m {
				t.Fatalf("%+v became %+v, %v", m, again, err)
			}
		}
		if id, err := decodePartitionMetadata(b); err == nil {
			if again, err := decodePartitionMetadata(encodePartitionMetadata(id)); err != nil || again != id {
				t.Fatal(again, err)
			}
		}
		decodeCleanShutdown(b)
		parseDirName(string(b))
		parseSegmentName(string(b))
	})
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// FuzzRecovery takes any bytes for the end of a segment, and any for its indexes: recovery gives back the good batches before
// them, and a clean start with such indexes serves these, too, or refuses with an error.
func FuzzRecovery(f *testing.F) {
	good := goodBatches(f)
	f.Add([]byte{}, []byte{}, []byte{})
	f.Add(good[:len(good)/2], []byte{0, 0, 0, 1, 0, 0, 0, 9}, []byte{0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 1})
	f.Add(bytes.Repeat([]byte{0}, 4096), bytes.Repeat([]byte{0}, 800), bytes.Repeat([]byte{0}, 1200))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x04\x7f\xff\xff\xff\x00\x00\x00\x00\x02"), []byte("x"), []byte("y"))
	f.Fuzz(func(t *testing.T, tail, index, timeIndex []byte) {
		for _, clean := range []bool{false, true} {
			fsys := vfs.NewMem()
			if err := fsys.MkdirAll("d/t-0"); err != nil {
				t.Fatal(err)
			}
			log := good
			if !clean {
				log = append(bytes.Clone(good), tail...)
			}
			put(t, fsys, "d/t-0/00000000000000000000.log", log)
			put(t, fsys, "d/t-0/00000000000000000000.index", index)
			put(t, fsys, "d/t-0/00000000000000000000.timeindex", timeIndex)
			if clean {
				put(t, fsys, "d/"+cleanShutdownName, nil)
			}
			d := newDir(t, fsys)
			dirs, err := d.Partitions()
			if err != nil {
				t.Fatal(err)
			}
			c := DefaultConfig()
			c.IndexIntervalBytes = 100
			l, _, err := d.Open(dirs[0], c, time.UnixMilli(1))
			if err != nil {
				t.Fatal(err)
			}
			l.SetHighWatermark(l.EndOffset())
			s, err := l.Read(0, len(good), true, l.EndOffset())
			var ce *CorruptError
			if err != nil && !(clean && errors.As(err, &ce)) {
				t.Fatal(err)
			}
			got := make([]byte, s.Len())
			if n, _ := s.ReadAt(got, 0); err == nil && (n < len(good) || !bytes.Equal(got[:len(good)], good)) {
				t.Fatalf("clean %v: %d bytes, not the good batches", clean, n)
			}
			s.Release()
			if _, _, err := l.OffsetForTimestamp(1005, l.EndOffset()); err != nil && !errors.As(err, &ce) {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil && !errors.As(err, &ce) {
				t.Fatal(err)
			}
		}
	})
}

// goodBatches are some batches at offsets 0 to 9.
func goodBatches(t testing.TB) []byte {
	t.Helper()
	var out []byte
	for i := range 5 {
		b := record.NewBuilder(record.DefaultBatchOptions(kafka.Offset(2 * i)))
		b.Append(int64(1000+i), []byte("key"), bytes.Repeat([]byte("v"), 60))
		b.Append(int64(1001+i), nil, nil)
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, batch...)
	}
	return out
}

// TestTruncatedDecoders cuts every small file of an archive off at every byte: no decoder panics, and binary ones refuse.
func TestTruncatedDecoders(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for name, b := range archiveSmallFiles(t, "single-4.4") {
		base := path.Base(name)
		kind := strings.TrimLeft(base, "0123456789") + string(b)
		if seen[kind] {
			continue
		}
		seen[kind] = true
		for n := range len(b) {
			part := b[:n]
			switch {
			case strings.HasSuffix(base, snapshotSuffix):
				if _, err := decodeSnapshot(part); err == nil {
					t.Errorf("%s: %d of %d bytes decode", name, n, len(b))
				}
			case strings.HasSuffix(base, txnIndexSuffix):
				if _, err := decodeAborted(part, 0); (err == nil) != (n%abortedEntrySize == 0) {
					t.Errorf("%s: %d of %d bytes: %v", name, n, len(b), err)
				}
			case strings.HasSuffix(base, "-checkpoint"):
				_, _ = decodeOffsets(part)
				_, _ = decodeEpochs(part)
			case base == metaName, base == partitionMetadataName, base == cleanShutdownName:
				_, _ = decodeMeta(part)
				_, _ = decodePartitionMetadata(part)
				decodeCleanShutdown(part)
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d different files", len(seen))
	}
}

// TestMetaOfKafka reads every meta.properties and partition.metadata of the archives.
func TestMetaOfKafka(t *testing.T) {
	for archive, want := range map[string]Meta{
		"single-4.4":      {Version: 1, ClusterID: "highwater-single-44AAA", NodeID: 1},
		"3.9.2-zookeeper": {Version: 0, NodeID: 1},
	} {
		n := 0
		for name, b := range archiveSmallFiles(t, archive) {
			switch {
			case bytes.HasSuffix([]byte(name), []byte(metaName)):
				m, err := decodeMeta(b)
				if err != nil || m.Version != want.Version || m.NodeID != want.NodeID || want.ClusterID != "" && m.ClusterID != want.ClusterID || m.DirectoryID.IsZero() != (m.Version == 0) {
					t.Errorf("%s: %+v, %v", name, m, err)
				}
				n++
			case bytes.HasSuffix([]byte(name), []byte(partitionMetadataName)):
				id, err := decodePartitionMetadata(b)
				if err != nil || !bytes.Equal(encodePartitionMetadata(id), b) {
					t.Errorf("%s: %v, %v", name, id, err)
				}
				n++
			}
		}
		if n < 2 {
			t.Errorf("%s: %d files", archive, n)
		}
	}
}
