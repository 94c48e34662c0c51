package storage

import (
	"slices"
	"sync"

	"github.com/highwater/highwater/internal/kafka"
)

// EpochStart is one entry of the leader epoch history: the first offset of an epoch.
type EpochStart struct {
	Epoch kafka.LeaderEpoch
	Start kafka.Offset
}

// EpochHistory says which leader's epoch each offset of a log belongs to. Both fields of its entries ascend. It changes in
// memory at once; the file leader-epoch-checkpoint follows at the latest before the recovery point moves beyond the change,
// and what lies above that is made anew from the batches.
type EpochHistory struct {
	mu      sync.RWMutex
	entries []EpochStart
	stored  []EpochStart // what the file has
	dirty   bool         // that isn't the same
}

// assign notes that epoch begins at start. Entries that contradict it are dropped: the newest information wins, as when a
// follower takes in its leader's batches after a truncation.
func (h *EpochHistory) assign(epoch kafka.LeaderEpoch, start kafka.Offset) {
	if epoch < 0 || start < 0 {
		return
	}
	h.mu.RLock()
	n := len(h.entries)
	known := n > 0 && h.entries[n-1].Epoch == epoch && h.entries[n-1].Start <= start
	h.mu.RUnlock()
	if known {
		return // the common case: another batch of the newest epoch
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n = len(h.entries)
	for n > 0 && (h.entries[n-1].Epoch >= epoch || h.entries[n-1].Start >= start) {
		n--
	}
	h.entries = append(slices.Clip(h.entries[:n]), EpochStart{epoch, start})
	h.dirty = true
}

func (h *EpochHistory) latest() (EpochStart, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(h.entries) == 0 {
		return EpochStart{kafka.NoLeaderEpoch, -1}, false
	}
	return h.entries[len(h.entries)-1], true
}

// endOffset is the largest epoch not above asked and where it ends, in a log that ends at end.
func (h *EpochHistory) endOffset(asked kafka.LeaderEpoch, end kafka.Offset) (kafka.LeaderEpoch, kafka.Offset) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	n := len(h.entries)
	switch {
	case asked < 0 || n == 0:
		return kafka.NoLeaderEpoch, -1
	case asked == h.entries[n-1].Epoch:
		return asked, end // the newest epoch ends where the log does
	case asked > h.entries[n-1].Epoch:
		return kafka.NoLeaderEpoch, -1 // nobody can say what a later leader did
	}
	i, found := slices.BinarySearchFunc(h.entries, asked, func(e EpochStart, a kafka.LeaderEpoch) int { return int(e.Epoch) - int(a) })
	if found {
		return asked, h.entries[i+1].Start
	}
	if i == 0 {
		return asked, h.entries[0].Start // older than all that is left: it ends where the oldest begins
	}
	return h.entries[i-1].Epoch, h.entries[i].Start
}

// at is the epoch that offset belongs to.
func (h *EpochHistory) at(offset kafka.Offset) (kafka.LeaderEpoch, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for i := len(h.entries) - 1; i >= 0; i-- {
		if h.entries[i].Start <= offset {
			return h.entries[i].Epoch, true
		}
	}
	return kafka.NoLeaderEpoch, false
}

// truncateEnd drops epochs that begin at or beyond end.
func (h *EpochHistory) truncateEnd(end kafka.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.entries)
	for n > 0 && h.entries[n-1].Start >= end {
		n--
	}
	if n < len(h.entries) {
		h.entries, h.dirty = slices.Clip(h.entries[:n]), true
	}
}

// truncateStart drops epochs that ended at or before start; the one that start lies in begins there now.
func (h *EpochHistory) truncateStart(start kafka.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for n < len(h.entries) && h.entries[n].Start <= start {
		n++
	}
	if n == 0 || n == 1 && h.entries[0].Start == start {
		return
	}
	h.entries = slices.Clone(h.entries[n-1:])
	h.entries[0].Start = start
	h.dirty = true
}

func (h *EpochHistory) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dirty = h.dirty || len(h.entries) > 0
	h.entries = nil
}

func (h *EpochHistory) list() []EpochStart {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Clone(h.entries)
}

// toWrite gives what the file of a log that ends at end should have, if it is behind. An epoch that begins at the end has no
// records yet and is dropped when the log is opened: for that alone nothing is written, or every restart would write a file for
// each partition that is led.
func (h *EpochHistory) toWrite(end kafka.Offset) ([]EpochStart, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.dirty || slices.Equal(below(h.entries, end), below(h.stored, end)) {
		return nil, false
	}
	h.dirty = false
	h.stored = h.entries // entries are never changed in place
	return h.entries, true
}

func below(entries []EpochStart, end kafka.Offset) []EpochStart {
	n := len(entries)
	for n > 0 && entries[n-1].Start >= end {
		n--
	}
	return entries[:n]
}

func (h *EpochHistory) markDirty() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dirty, h.stored = true, nil
}
