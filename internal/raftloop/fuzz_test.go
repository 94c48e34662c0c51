package raftloop

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/vfs"
)

// FuzzQuorumState: no content of the file panics, and what is taken is written so that it reads the same.
func FuzzQuorumState(f *testing.F) {
	f.Add([]byte(`{"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}`))
	f.Add([]byte(`{"leaderId":2,"leaderEpoch":3,"votedId":2,"votedDirectoryId":"32X9O6aDTomUcneApPjcvg","data_version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := ParseQuorumState(data)
		if err != nil {
			return
		}
		again, err := ParseQuorumState(AppendQuorumState(nil, e))
		if err != nil || again.Epoch != e.Epoch || again.Leader != e.Leader || again.Voted.ID != e.Voted.ID {
			t.Errorf("%+v became %+v (%v)", e, again, err)
		}
	})
}

func snapshotBytes(t testing.TB) []byte {
	t.Helper()
	m := vfs.NewMem()
	voters := raft.NewVoterSet(raft.Voter{Key: raft.ReplicaKey{ID: 1, Directory: kafka.DirectoryID{1}}, MaxKRaft: 1,
		Endpoints: []raft.Endpoint{{Listener: "CONTROLLER", Host: "h", Port: 1}}})
	w, err := createSnapshot(m, "", kafka.OffsetAndEpoch{Offset: 7, Epoch: 2}, time.UnixMilli(1000), voters, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append([]byte("one"), []byte("two")); err != nil {
		t.Fatal(err)
	}
	if err := w.Freeze(); err != nil {
		t.Fatal(err)
	}
	data, err := m.ReadFile("/"+SnapshotName(w.ID()), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func verifyBytes(t testing.TB, data []byte) error {
	t.Helper()
	m := vfs.NewMem()
	put(t, m, "s", data)
	_, err := verifySnapshot(m, "s", kafka.OffsetAndEpoch{}, nil)
	return err
}

// TestSnapshotDamaged: a snapshot that lacks its end, or has any bit wrong that the check sums cover, is not taken.
func TestSnapshotDamaged(t *testing.T) {
	data := snapshotBytes(t)
	if err := verifyBytes(t, data); err != nil {
		t.Fatal(err)
	}
	for i := range data {
		if verifyBytes(t, data[:i]) == nil {
			t.Errorf("taken with %d of %d bytes", i, len(data))
		}
		bad := bytes.Clone(data)
		bad[i] ^= 0x10
		// The check sum does not cover the leader epoch of a batch, 4 bytes after its length.
		err := verifyBytes(t, bad)
		if at := offsetInBatch(data, i); err == nil && (at < 12 || at > 15) {
			t.Errorf("taken with byte %d wrong, byte %d of its batch", i, at)
		}
	}
	if verifyBytes(t, append(bytes.Clone(data), data...)) == nil {
		t.Error("taken with something behind the footer")
	}
}

func offsetInBatch(data []byte, i int) int {
	pos := 0
	for {
		size := 12 + int(data[pos+8])<<24 + int(data[pos+9])<<16 + int(data[pos+10])<<8 + int(data[pos+11])
		if i < pos+size {
			return i - pos
		}
		pos += size
	}
}

// FuzzSnapshot: no file panics or makes the reader allocate what is not there.
func FuzzSnapshot(f *testing.F) {
	f.Add(snapshotBytes(f))
	for _, a := range []string{"formatted-4.4"} {
		m := unpack(f, a, "initial-three")
		data, err := m.ReadFile(metadataDir+"/"+SnapshotName(kafka.OffsetAndEpoch{}), 1<<20)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = verifyBytes(t, data)
		_ = verifyBytes(t, repaired(data))
	})
}

// repaired puts the right check sum into each batch, so that what it covers is read, too.
func repaired(data []byte) []byte {
	data = bytes.Clone(data)
	for at := 0; len(data)-at >= 61; {
		size := int64(int32(binary.BigEndian.Uint32(data[at+8:]))) + 12
		if size < 61 || size > int64(len(data)-at) {
			break
		}
		end := at + int(size)
		binary.BigEndian.PutUint32(data[at+17:], crc32.Checksum(data[at+21:end], crc32.MakeTable(crc32.Castagnoli)))
		at = end
	}
	return data
}

// FuzzFetched: no records that a leader sends panic, and what is taken is whole batches.
func FuzzFetched(f *testing.F) {
	f.Add(snapshotBytes(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, repaired(data)} {
			infos, size, _ := parse(data)
			sum := 0
			for _, i := range infos {
				sum += i.Size
			}
			if sum != size || size > len(data) {
				t.Errorf("batches of %d bytes, %d taken of %d", sum, size, len(data))
			}
		}
	})
}
