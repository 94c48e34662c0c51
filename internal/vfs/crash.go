package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Crash cuts the power: it returns a file system in a state that the disk may be in when the power comes back, drawn with
// rng. What was synced is there. Of the rest:
//
//   - Names that SyncDir didn't see (creations, renames, removals) are kept or lost: all, none, a prefix or any subset.
//   - A file's unsynced writes are kept or lost block by block (512 bytes or 4 KiB), whatever their order; the file may have
//     its new size but zeros in place of the data; the last write that is kept may be torn at any byte.
//
// The old Mem and its open files give ErrPowerCut from now on; but it may be asked for a Crash again, for another outcome of the
// same power cut. A file that has lost its name is gone.
func (m *Mem) Crash(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crash{rng: rng, block: 512, files: map[*node]*node{}}
	if rng.IntN(2) == 0 {
		c.block = 4096
	}
	// One draw decides how lossy this cut is as a whole: with every write drawn alone, "all kept" and "all lost" would never
	// come up in a long run.
	c.names = c.subset(m.unsafeNames())
	c.keepData = [...]float64{0, 1, 0.5, 0.9, -1}[rng.IntN(5)]
	m.crashed = true
	out := NewMem()
	out.capacity = m.capacity
	out.root = c.dir(m.root)
	out.used = out.root.size()
	return out
}

type crash struct {
	rng      *rand.Rand
	block    int64
	names    map[*nameChange]bool
	keepData float64 // probability for a block; below 0: the writes up to some point in time, then nothing
	files    map[*node]*node
}

// unsafeNames lists the unsynced changes of names of the whole tree, each once, in a fixed order.
func (m *Mem) unsafeNames() []*nameChange {
	var out []*nameChange
	seen := map[*nameChange]bool{}
	visited := map[*node]bool{}
	var walk func(n *node)
	walk = func(n *node) {
		if visited[n] {
			return
		}
		visited[n] = true
		for _, c := range n.renames {
			if !c.done && !seen[c] {
				seen[c] = true
				out = append(out, c)
			}
			if c.what.dir {
				walk(c.what)
			}
		}
		for _, set := range []map[string]*node{n.safe, n.names} {
			for _, name := range sortedKeys(set) {
				if set[name].dir {
					walk(set[name])
				}
			}
		}
	}
	walk(m.root)
	return out
}

func (c *crash) subset(all []*nameChange) map[*nameChange]bool {
	keep := make(map[*nameChange]bool, len(all))
	mode, cut := c.rng.IntN(4), c.rng.IntN(len(all)+1)
	for i, n := range all {
		switch mode {
		case 0: // nothing
		case 1:
			keep[n] = true
		case 2: // as a journal does it
			keep[n] = i < cut
		case 3:
			keep[n] = c.rng.IntN(2) == 0
		}
	}
	return keep
}

// dir is what is left of a directory.
func (c *crash) dir(d *node) *node {
	names := make(map[string]*node, len(d.safe))
	for name, n := range d.safe {
		names[name] = n
	}
	for _, ch := range d.renames {
		if ch.done || !c.names[ch] {
			continue
		}
		if ch.from == d && names[ch.fromName] == ch.what {
			delete(names, ch.fromName)
		}
		if ch.to == d {
			names[ch.toName] = ch.what
		}
	}
	out := newDir()
	for _, name := range sortedKeys(names) {
		n := names[name]
		var left *node
		if n.dir {
			left = c.dir(n)
		} else if left = c.files[n]; left == nil {
			left = c.file(n)
			c.files[n] = left
		}
		out.names[name], out.safe[name] = left, left
	}
	return out
}

// file is what is left of a file.
func (c *crash) file(n *node) *node {
	image := append([]byte{}, n.durable...)
	pending := n.pending
	keep := c.keepData
	if keep < 0 {
		pending, keep = pending[:c.rng.IntN(len(pending)+1)], 1
	}
	torn := c.rng.IntN(3) == 0
	for i, ch := range pending {
		if ch.data == nil {
			if c.rng.Float64() < keep {
				image = resize(image, ch.off)
			}
			continue
		}
		data := ch.data
		if torn && i == len(pending)-1 {
			data = data[:c.rng.IntN(len(data)+1)]
		}
		image = c.write(image, ch.off, data, keep)
		if end := ch.off + int64(len(ch.data)); end > int64(len(image)) && keep > 0 && c.rng.IntN(8) == 0 {
			image = resize(image, end) // the size is there, the data isn't
		}
	}
	left := &node{mod: n.mod, data: image, durable: append([]byte{}, image...)}
	return left
}

// write makes a change block by block, keeping each with probability keep.
func (c *crash) write(image []byte, off int64, data []byte, keep float64) []byte {
	for len(data) > 0 {
		n := min(int64(len(data)), c.block-off%c.block)
		if keep == 1 || keep > 0 && c.rng.Float64() < keep {
			ch := change{off, data[:n]}
			image = ch.apply(image)
		}
		off, data = off+n, data[n:]
	}
	return image
}

func (n *node) size() int64 {
	total := int64(len(n.data))
	for _, c := range n.names {
		total += c.size()
	}
	return total
}

func sortedKeys(m map[string]*node) []string {
	return slices.Sorted(maps.Keys(m))
}
