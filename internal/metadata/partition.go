package metadata

import (
	"fmt"
	"iter"
	"slices"

	"github.com/highwater/highwater/internal/kafka"
)

// RecoveryState tells whether a partition's leader was elected uncleanly and has to recover.
type RecoveryState int8

// Kafka's LeaderRecoveryState.
const (
	Recovered  RecoveryState = 0
	Recovering RecoveryState = 1
)

// Partition is the state of one partition. Its slices belong to the Image and must not be changed.
type Partition struct {
	Leader         kafka.BrokerID // NoBroker if there is none
	LeaderEpoch    kafka.LeaderEpoch
	PartitionEpoch kafka.PartitionEpoch
	Recovery       RecoveryState
	Replicas       []kafka.BrokerID // in order of preference
	ISR            []kafka.BrokerID
	Removing       []kafka.BrokerID // replicas that a reassignment will take away
	Adding         []kafka.BrokerID // replicas that a reassignment brings
	ELR            []kafka.BrokerID // outside the ISR, but with everything below the high watermark (KIP-966)
	LastKnownELR   []kafka.BrokerID
	// Directories has, for each of Replicas, the log directory; nil if all are DirMigrating, as before 3.7-IV2.
	Directories []kafka.DirectoryID
}

// Directory is the log directory of a broker's replica; DirMigrating if it is not known.
func (p *Partition) Directory(id kafka.BrokerID) kafka.DirectoryID {
	if i := slices.Index(p.Replicas, id); i >= 0 && i < len(p.Directories) {
		return p.Directories[i]
	}
	return kafka.DirMigrating
}

// HasReplica tells whether a broker has a replica.
func (p *Partition) HasReplica(id kafka.BrokerID) bool { return slices.Contains(p.Replicas, id) }

// InISR tells whether a broker is in the ISR.
func (p *Partition) InISR(id kafka.BrokerID) bool { return slices.Contains(p.ISR, id) }

// Reassigning tells whether a reassignment is under way.
func (p *Partition) Reassigning() bool { return len(p.Adding) > 0 || len(p.Removing) > 0 }

// PreferredLeader is the first replica.
func (p *Partition) PreferredLeader() kafka.BrokerID {
	if len(p.Replicas) == 0 {
		return kafka.NoBroker
	}
	return p.Replicas[0]
}

// Equal tells whether all fields are equal.
func (p *Partition) Equal(q *Partition) bool {
	return p.Leader == q.Leader && p.LeaderEpoch == q.LeaderEpoch && p.PartitionEpoch == q.PartitionEpoch && p.Recovery == q.Recovery &&
		slices.Equal(p.Replicas, q.Replicas) && slices.Equal(p.ISR, q.ISR) && slices.Equal(p.Removing, q.Removing) &&
		slices.Equal(p.Adding, q.Adding) && slices.Equal(p.ELR, q.ELR) && slices.Equal(p.LastKnownELR, q.LastKnownELR) &&
		slices.Equal(p.Directories, q.Directories)
}

// Topic is one topic with its partitions.
type Topic struct {
	Name string
	ID   kafka.TopicID

	// Partitions lie in chunks of chunkSize, so that a change copies one chunk and not the topic. A chunk is nil if none
	// of its partitions exists.
	chunks []*chunk
	count  int
	owner  *token
}

// token marks what a Delta made itself and may therefore change in place.
type token struct{ _ byte }

const (
	chunkBits = 6
	chunkSize = 1 << chunkBits
	// maxPartition bounds a partition's number: a damaged record must not make us allocate a table of 2^31 entries. It is
	// 16 times what the largest known clusters have in all their topics.
	maxPartition = 1 << 24
	maxReplicas  = 1<<16 - 1
)

// chunk has up to chunkSize partitions in three allocations without a pointer inside: with a million partitions the
// garbage collector has nothing to do.
type chunk struct {
	owner *token
	slots []slot
	ids   []kafka.BrokerID    // replicas, ISR and so on of each slot, one after the other
	dirs  []kafka.DirectoryID // directories of each slot
	waste int                 // elements of ids and dirs that no slot refers to
}

type slot struct {
	leader         kafka.BrokerID
	leaderEpoch    kafka.LeaderEpoch
	partitionEpoch kafka.PartitionEpoch
	ids, dirs      uint32 // where the slot's lists begin
	counts         [6]uint16
	nDirs          uint16
	recovery       RecoveryState
	exists         bool
	isrShared      bool // the ISR is equal to the replicas and not stored again
}

// The lists of a slot, in the order of their elements.
const (
	listReplicas = iota
	listISR
	listRemoving
	listAdding
	listELR
	listLastELR
)

func (s *slot) len() int {
	n := int(s.nDirs)
	for i, c := range s.counts {
		if i != listISR || !s.isrShared {
			n += int(c)
		}
	}
	return n
}

// Len is the number of partitions.
func (t *Topic) Len() int { return t.count }

// Partition is the state of one partition.
func (t *Topic) Partition(id int32) (p Partition, ok bool) {
	if id < 0 || int(id>>chunkBits) >= len(t.chunks) {
		return Partition{}, false
	}
	c := t.chunks[id>>chunkBits]
	i := int(id & (chunkSize - 1))
	if c == nil || i >= len(c.slots) || !c.slots[i].exists {
		return Partition{}, false
	}
	return c.get(i), true
}

// Has tells whether a partition exists.
func (t *Topic) Has(id int32) bool {
	if id < 0 || int(id>>chunkBits) >= len(t.chunks) {
		return false
	}
	c := t.chunks[id>>chunkBits]
	i := int(id & (chunkSize - 1))
	return c != nil && i < len(c.slots) && c.slots[i].exists
}

// Partitions goes through the partitions in ascending order.
func (t *Topic) Partitions() iter.Seq2[int32, Partition] {
	return func(yield func(int32, Partition) bool) {
		for n, c := range t.chunks {
			if c == nil {
				continue
			}
			for i := range c.slots {
				if c.slots[i].exists && !yield(int32(n<<chunkBits|i), c.get(i)) {
					return
				}
			}
		}
	}
}

func (c *chunk) get(i int) Partition {
	s := &c.slots[i]
	p := Partition{Leader: s.leader, LeaderEpoch: s.leaderEpoch, PartitionEpoch: s.partitionEpoch, Recovery: s.recovery}
	at := s.ids
	take := func(list int) []kafka.BrokerID {
		n := uint32(s.counts[list])
		if n == 0 {
			return nil
		}
		a := c.ids[at : at+n : at+n]
		at += n
		return a
	}
	p.Replicas = take(listReplicas)
	if s.isrShared {
		p.ISR = p.Replicas
	} else {
		p.ISR = take(listISR)
	}
	p.Removing, p.Adding = take(listRemoving), take(listAdding)
	p.ELR, p.LastKnownELR = take(listELR), take(listLastELR)
	if s.nDirs > 0 {
		end := s.dirs + uint32(s.nDirs)
		p.Directories = c.dirs[s.dirs:end:end]
	}
	return p
}

// put stores p in slot i of a chunk that may be changed. Elements are only ever appended to ids and dirs, so what get
// returned before stays as it was.
func (c *chunk) put(i int, p *Partition) error {
	if i >= len(c.slots) {
		if i >= cap(c.slots) {
			grown := make([]slot, i+1, min(chunkSize, max(i+1, 2*cap(c.slots))))
			copy(grown, c.slots)
			c.slots = grown
		}
		c.slots = c.slots[:i+1]
	}
	s := &c.slots[i]
	if s.exists {
		c.waste += s.len()
		if c.waste > 64 && c.waste > (len(c.ids)+len(c.dirs))/2 {
			s.exists = false
			*c = *c.copy(c.owner)
			s = &c.slots[i]
		}
	}
	*s = slot{
		leader: p.Leader, leaderEpoch: p.LeaderEpoch, partitionEpoch: p.PartitionEpoch, recovery: p.Recovery, exists: true,
		ids: uint32(len(c.ids)), dirs: uint32(len(c.dirs)), isrShared: slices.Equal(p.Replicas, p.ISR),
	}
	for list, l := range [...][]kafka.BrokerID{p.Replicas, p.ISR, p.Removing, p.Adding, p.ELR, p.LastKnownELR} {
		if len(l) > maxReplicas {
			return fmt.Errorf("%d replicas are too many", len(l))
		}
		s.counts[list] = uint16(len(l))
		if list != listISR || !s.isrShared {
			c.ids = append(c.ids, l...)
		}
	}
	if len(p.Directories) > maxReplicas {
		return fmt.Errorf("%d directories are too many", len(p.Directories))
	}
	for _, d := range p.Directories {
		if d != kafka.DirMigrating {
			s.nDirs = uint16(len(p.Directories))
			c.dirs = append(c.dirs, p.Directories...)
			break
		}
	}
	return nil
}

// copy is a chunk without waste that owner may change.
func (c *chunk) copy(owner *token) *chunk {
	ids, dirs := 0, 0
	for i := range c.slots {
		if s := &c.slots[i]; s.exists {
			ids += s.len() - int(s.nDirs)
			dirs += int(s.nDirs)
		}
	}
	n := &chunk{owner: owner, slots: slices.Clone(c.slots), ids: make([]kafka.BrokerID, 0, ids), dirs: make([]kafka.DirectoryID, 0, dirs)}
	for i := range n.slots {
		s := &n.slots[i]
		if !s.exists {
			continue
		}
		idsFrom, dirsFrom := s.ids, s.dirs
		s.ids, s.dirs = uint32(len(n.ids)), uint32(len(n.dirs))
		n.ids = append(n.ids, c.ids[idsFrom:idsFrom+uint32(s.len())-uint32(s.nDirs)]...)
		n.dirs = append(n.dirs, c.dirs[dirsFrom:dirsFrom+uint32(s.nDirs)]...)
	}
	return n
}

// trim gives back what growing by appending left over.
func (c *chunk) trim() {
	if c.waste > 0 || cap(c.ids) > len(c.ids)+len(c.ids)/8 || cap(c.dirs) > len(c.dirs)+len(c.dirs)/8 {
		*c = *c.copy(c.owner)
	}
	if cap(c.slots) > len(c.slots)+len(c.slots)/8 {
		c.slots = append(make([]slot, 0, len(c.slots)), c.slots...)
	}
}

// set stores a partition in a topic that owner may change.
func (t *Topic) set(id int32, p *Partition, owner *token) error {
	if id < 0 || id > maxPartition {
		return fmt.Errorf("partition number %d is out of range", id)
	}
	n := int(id >> chunkBits)
	for n >= len(t.chunks) {
		t.chunks = append(t.chunks, nil)
	}
	c := t.chunks[n]
	switch {
	case c == nil:
		c = &chunk{owner: owner}
		t.chunks[n] = c
	case c.owner != owner:
		c = c.copy(owner)
		t.chunks[n] = c
	}
	i := int(id & (chunkSize - 1))
	if i >= len(c.slots) || !c.slots[i].exists {
		t.count++
	}
	return c.put(i, p)
}
