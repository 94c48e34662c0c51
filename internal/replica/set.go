package replica

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/replication"
	"github.com/highwater/highwater/internal/storage"
)

// TopicConfig is what a replica needs of its topic's configuration in force.
type TopicConfig struct {
	Log    storage.Config
	MinISR int // min.insync.replicas
}

// Dir is a log directory as a Set knows it.
type Dir struct {
	*storage.Dir
	ID       kafka.DirectoryID
	replicas int // how many lie in it
}

// Options is what a Set is made of. The functions may be called under Set.mu; they return quickly and don't call the Set.
type Options struct {
	ID     kafka.BrokerID
	Dirs   []*Dir        // those that are online; the first with the fewest partitions takes a new one
	LagMax time.Duration // replica.lag.time.max.ms

	// Config is the configuration of a topic in force by an image.
	Config func(image *metadata.Image, topic string) TopicConfig
	// Alter sends a change of the ISR to the controller; the answer comes by Replica.Altered. Called without a lock.
	Alter func(*Replica, replication.ISRChange)
	// Failed is told that a replica went offline because of its log. Called with the replica's lock held.
	Failed func(*Replica, error)
	// Assigned is told that a new replica lies in another directory than the metadata says.
	Assigned func(kafka.TopicIDPartition, kafka.DirectoryID)
	// Rolled is told that a log began a new segment: the one before wants a sync. Called without a lock.
	Rolled func(*storage.Log)
	// Removed is told of a directory that was renamed to …-delete and is to be removed after delay.
	Removed func(d *storage.Dir, name string, delay time.Duration)
	// Note gets what an operator should know: a partition set aside, a log that could not be made.
	Note func(msg string, partition kafka.TopicPartition, err error)
	// Unique makes 16 random bytes for the names of directories that are renamed.
	Unique func() [16]byte
}

// Set is all replicas of this broker. Lookups take a read lock for some nanoseconds.
type Set struct {
	opts  Options
	image atomic.Pointer[metadata.Image]

	mu     sync.RWMutex // guards the maps and topics; held in write mode by Apply alone
	byName map[string]*topic
	byID   map[kafka.TopicID]*topic
	// broken are partitions whose files are here but failed their check: they are neither served nor made anew.
	broken map[kafka.TopicPartition]error
}

type topic struct {
	name       string
	id         kafka.TopicID
	partitions []*Replica // by number; nil where this broker has no replica
}

// NewSet is an empty set.
func NewSet(o Options) *Set {
	s := &Set{opts: o, byName: make(map[string]*topic), byID: make(map[kafka.TopicID]*topic), broken: make(map[kafka.TopicPartition]error)}
	s.image.Store(metadata.Empty())
	return s
}

// Image is the metadata that the set stands at.
func (s *Set) Image() *metadata.Image { return s.image.Load() }

// broker is replication.Cluster by the newest image.
func (s *Set) broker(id kafka.BrokerID) (replication.Broker, bool) {
	b := s.image.Load().Broker(id)
	if b == nil {
		return replication.Broker{}, false
	}
	return replication.Broker{Epoch: b.Epoch, Fenced: b.Fenced, ControlledShutdown: b.ShuttingDown}, true
}

// Broken says that a partition's files failed their check.
func (s *Set) Broken(p kafka.TopicPartition, err error) {
	s.mu.Lock()
	s.broken[p] = err
	s.mu.Unlock()
}

func (s *Set) brokenErr(p kafka.TopicPartition) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.broken[p]; err != nil {
		return kerr.KafkaStorageError.With("Partition %v is offline: %v", p, err)
	}
	return nil
}

// Lookup finds a replica by name. The error is UNKNOWN_TOPIC_OR_PARTITION or, if the partition exists elsewhere,
// NOT_LEADER_OR_FOLLOWER.
func (s *Set) Lookup(name string, partition int32) (*Replica, error) {
	s.mu.RLock()
	r := s.byName[name].get(partition)
	s.mu.RUnlock()
	if r != nil {
		return r, nil
	}
	if t := s.Image().Topic(name); t != nil && t.Has(partition) {
		if err := s.brokenErr(kafka.TopicPartition{Topic: name, Partition: partition}); err != nil {
			return nil, err
		}
		return nil, kerr.NotLeaderOrFollower
	}
	return nil, kerr.UnknownTopicOrPartition
}

// LookupID finds a replica by its topic's id, and the topic's name. The error may be UNKNOWN_TOPIC_ID too.
func (s *Set) LookupID(id kafka.TopicID, partition int32) (*Replica, error) {
	s.mu.RLock()
	r := s.byID[id].get(partition)
	s.mu.RUnlock()
	if r != nil {
		return r, nil
	}
	t := s.Image().TopicByID(id)
	switch {
	case t == nil:
		return nil, kerr.UnknownTopicID
	case t.Has(partition):
		if err := s.brokenErr(kafka.TopicPartition{Topic: t.Name, Partition: partition}); err != nil {
			return nil, err
		}
		return nil, kerr.NotLeaderOrFollower
	}
	return nil, kerr.UnknownTopicOrPartition
}

// Intern is the string of a topic's name, without an allocation if the topic has a replica here.
func (s *Set) Intern(name []byte) string {
	s.mu.RLock()
	t := s.byName[string(name)]
	s.mu.RUnlock()
	if t != nil {
		return t.name
	}
	return string(name)
}

func (t *topic) get(partition int32) *Replica {
	if t == nil || partition < 0 || int(partition) >= len(t.partitions) {
		return nil
	}
	return t.partitions[partition]
}

// All lists the replicas, in no order that means anything.
func (s *Set) All() []*Replica {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []*Replica
	for _, t := range s.byName {
		for _, r := range t.partitions {
			if r != nil {
				all = append(all, r)
			}
		}
	}
	return all
}

// Apply takes in a new image and what changed since the one before: it creates, leads, follows, stops and deletes. Data is
// deleted here and nowhere else, and only of topics or replicas that a committed record took away.
func (s *Set) Apply(now time.Time, image *metadata.Image, changes *metadata.Changes) {
	s.image.Store(image)
	for c := range changes.Topics() {
		if c.Deleted {
			s.mu.RLock()
			t := s.byID[c.ID]
			s.mu.RUnlock()
			if t != nil {
				s.removeTopic(t)
			}
			continue
		}
		t := image.TopicByID(c.ID)
		if t == nil {
			continue
		}
		if c.Created {
			s.applyTopic(now, image, t, t.Partitions())
			continue
		}
		s.applyTopic(now, image, t, func(yield func(int32, metadata.Partition) bool) {
			for id := range c.Partitions() {
				if p, ok := t.Partition(id); ok && !yield(id, p) {
					return
				}
			}
		})
	}
}

// Start takes in the first image that holds this broker's registration: every topic of it. Logs on the disk that it doesn't
// know, or knows under another topic id, are set aside as …-stray; nothing is deleted.
func (s *Set) Start(now time.Time, image *metadata.Image) {
	s.image.Store(image)
	for _, d := range s.opts.Dirs {
		for _, l := range d.Logs() {
			tp := l.Partition()
			t := image.Topic(tp.Topic)
			var why error
			switch {
			case t == nil:
				why = errors.New("the metadata has no such topic")
			case !l.TopicID().IsZero() && l.TopicID() != t.ID:
				why = fmt.Errorf("the metadata has another topic id, %v; the directory's is %v", t.ID, l.TopicID())
			default:
				p, ok := t.Partition(tp.Partition)
				if !ok || !p.HasReplica(s.opts.ID) {
					why = errors.New("the metadata has no such replica on this broker")
				}
			}
			if why == nil {
				continue
			}
			s.opts.Note("partition set aside as stray", tp, why)
			if _, err := d.Strand(l, s.opts.Unique()); err != nil {
				s.opts.Note("partition could not be set aside", tp, err)
			}
		}
	}
	for t := range image.Topics() {
		s.applyTopic(now, image, t, t.Partitions())
	}
}

func (s *Set) applyTopic(now time.Time, image *metadata.Image, t *metadata.Topic, partitions iter.Seq2[int32, metadata.Partition]) {
	s.mu.RLock()
	have := s.byName[t.Name]
	s.mu.RUnlock()
	if have != nil && have.id != t.ID {
		s.removeTopic(have) // deleted and made again between two images
		have = nil
	}
	var config *TopicConfig
	for id, p := range partitions {
		r := have.get(id)
		if !p.HasReplica(s.opts.ID) {
			if r != nil {
				s.removeReplica(r)
			}
			continue
		}
		if r == nil {
			if config == nil {
				c := s.opts.Config(image, t.Name)
				config = &c
			}
			r = s.addReplica(now, t, id, &p, config)
			if r == nil {
				continue
			}
			if have == nil {
				s.mu.RLock()
				have = s.byName[t.Name]
				s.mu.RUnlock()
			}
		}
		state := replication.Partition{
			Replicas: p.Replicas, ISR: p.ISR, AddingReplicas: p.Adding, RemovingReplicas: p.Removing, Leader: p.Leader,
			LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovering: p.Recovery == metadata.Recovering,
		}
		if p.Leader == s.opts.ID {
			if config == nil {
				c := s.opts.Config(image, t.Name)
				config = &c
			}
			r.Lead(now, state, config.MinISR)
		} else if ro := r.role.Load(); ro.leads || ro.epoch != p.LeaderEpoch || ro.leader != p.Leader {
			r.Follow(state)
		}
	}
}

// addReplica opens or makes the log and enters the replica. It returns nil, after a note, if the disk refuses.
func (s *Set) addReplica(now time.Time, t *metadata.Topic, id int32, p *metadata.Partition, c *TopicConfig) *Replica {
	tp := kafka.TopicPartition{Topic: t.Name, Partition: id}
	var log *storage.Log
	var dir *Dir
	for _, d := range s.opts.Dirs {
		if l := d.Log(tp); l != nil {
			log, dir = l, d
		}
	}
	if s.brokenErr(tp) != nil {
		return nil // what is on the disk may be the only copy; it was reported when it was found
	}
	if log == nil {
		if dir = s.pickDir(p.Directory(s.opts.ID)); dir == nil {
			s.opts.Note("no log directory is online for a new replica", tp, nil)
			return nil
		}
		var err error
		if log, err = dir.Create(tp, t.ID, c.Log, now); err != nil {
			s.opts.Note("log could not be created", tp, err)
			return nil
		}
	} else {
		if log.TopicID().IsZero() {
			if err := log.SetTopicID(t.ID); err != nil {
				s.opts.Note("partition.metadata could not be written", tp, err)
			}
		}
		log.SetConfig(c.Log)
	}
	dir.replicas++
	if !dir.ID.IsZero() && p.Directory(s.opts.ID) != dir.ID {
		s.opts.Assigned(kafka.TopicIDPartition{TopicID: t.ID, Partition: id}, dir.ID)
	}
	r := &Replica{set: s, partition: tp, topicID: t.ID}
	r.log.Store(log)
	r.highWatermark.Store(log.HighWatermark())
	r.role.Store(&role{leader: kafka.NoBroker, epoch: kafka.NoLeaderEpoch})
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byName[t.Name]
	if e == nil {
		e = &topic{name: t.Name, id: t.ID}
		s.byName[t.Name], s.byID[t.ID] = e, e
	}
	if int(id) >= len(e.partitions) {
		e.partitions = append(e.partitions, make([]*Replica, int(id)+1-len(e.partitions))...)
	}
	e.partitions[id] = r
	return r
}

// pickDir is the directory that the metadata names or, if it names none of ours, the one with the fewest partitions.
func (s *Set) pickDir(want kafka.DirectoryID) *Dir {
	var best *Dir
	for _, d := range s.opts.Dirs {
		if d.Err() != nil {
			continue
		}
		if d.ID == want && !want.IsReserved() {
			return d
		}
		if best == nil || d.replicas < best.replicas {
			best = d
		}
	}
	return best
}

func (s *Set) removeTopic(t *topic) {
	s.mu.Lock()
	delete(s.byName, t.name)
	delete(s.byID, t.id)
	s.mu.Unlock()
	for _, r := range t.partitions {
		if r != nil {
			s.deleteLog(r)
		}
	}
}

func (s *Set) removeReplica(r *Replica) {
	s.mu.Lock()
	if t := s.byName[r.partition.Topic]; t.get(r.partition.Partition) == r {
		t.partitions[r.partition.Partition] = nil
		if !slices.ContainsFunc(t.partitions, func(r *Replica) bool { return r != nil }) {
			delete(s.byName, t.name)
			delete(s.byID, t.id)
		}
	}
	s.mu.Unlock()
	s.deleteLog(r)
}

func (s *Set) deleteLog(r *Replica) {
	r.stop()
	for _, d := range s.opts.Dirs {
		if d.Log(r.partition) != r.Log() {
			continue
		}
		d.replicas--
		delay := r.Log().Config().FileDeleteDelay
		name, err := d.Delete(r.Log(), s.opts.Unique())
		if err != nil {
			s.opts.Note("directory could not be renamed for deletion", r.partition, err)
			return
		}
		s.opts.Removed(d.Dir, name, delay)
		return
	}
}

// Configure takes in a change of a topic's configuration.
func (s *Set) Configure(now time.Time, image *metadata.Image, name string) {
	s.mu.RLock()
	t := s.byName[name]
	var replicas []*Replica
	if t != nil {
		replicas = slices.Clone(t.partitions)
	}
	s.mu.RUnlock()
	if t == nil {
		return
	}
	c := s.opts.Config(image, name)
	for _, r := range replicas {
		if r != nil {
			r.Log().SetConfig(c.Log)
			r.SetMinISR(now, c.MinISR)
		}
	}
}

// Names lists the topics that have a replica here, sorted.
func (s *Set) Names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := make([]string, 0, len(s.byName))
	for name := range s.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
