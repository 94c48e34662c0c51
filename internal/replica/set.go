package replica

import (
	"errors"
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

// Options is what a Set is made of. The functions may be called under Set.mu; they return quickly and don't call the Set.
type Options struct {
	ID     kafka.BrokerID
	Dirs   []*Dir        // those that could be opened; the first with the fewest logs takes a new replica
	Lost   []string      // absolute paths of those that couldn't
	LagMax time.Duration // replica.lag.time.max.ms

	// Config is the configuration of a topic in force by an image.
	Config func(image *metadata.Image, topic string) TopicConfig
	// Alter sends a change of the ISR to the controller; the answer comes by Replica.Altered. Called without a lock.
	Alter func(*Replica, replication.ISRChange)
	// Failed is told that a replica went offline because of its log. Called with the replica's lock held.
	Failed func(*Replica, error)
	// Assigned is told that a replica lies, or will lie, in another directory than the metadata says: the controller must know.
	// accepted, if not nil, is to be called when it does, without a lock.
	Assigned func(p kafka.TopicIDPartition, dir kafka.DirectoryID, accepted func())
	// Moving is told that Replica.Move has something to do. It doesn't wait.
	Moving func(*Replica)
	// Cordoned tells whether the directory of that path takes no new replicas (cordoned.log.dirs); nil: none.
	Cordoned func(path string) bool
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

	// changing lets one change of which replicas there are, and in which directories, happen at a time: those of the metadata,
	// moves between directories, a directory's failure. It makes directories and files, and is taken before mu. It guards
	// preferred and starting.
	changing  sync.Mutex
	preferred map[kafka.TopicPartition]*Dir // where partitions that aren't here yet shall be made
	starting  bool                          // Start is at work

	mu     sync.RWMutex // guards the maps and topics; held in write mode by Apply alone
	byName map[string]*topic
	byID   map[kafka.TopicID]*topic
	// broken are partitions whose files are here but failed their check: they are neither served nor made anew.
	broken map[kafka.TopicPartition]error
	// absent are partitions that should be here but could not be made, or may lie in a directory that is offline.
	absent map[kafka.TopicPartition]error
}

type topic struct {
	name       string
	id         kafka.TopicID
	partitions []*Replica // by number; nil where this broker has no replica
}

// NewSet is an empty set.
func NewSet(o Options) *Set {
	s := &Set{opts: o, byName: make(map[string]*topic), byID: make(map[kafka.TopicID]*topic), broken: make(map[kafka.TopicPartition]error), absent: make(map[kafka.TopicPartition]error),
		preferred: make(map[kafka.TopicPartition]*Dir)}
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
	err := s.broken[p]
	if err == nil {
		err = s.absent[p]
	}
	if err != nil {
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
	s.changing.Lock()
	defer s.changing.Unlock()
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
	s.changing.Lock()
	defer s.changing.Unlock()
	s.image.Store(image)
	for _, d := range s.opts.Dirs {
		for _, l := range d.Logs() {
			if why := s.strayBecause(image, l); why != nil {
				s.strand("partition", d, l, why)
			}
		}
	}
	s.chooseDoubles(image)
	s.resumeMoves(image)
	s.starting = true
	for t := range image.Topics() {
		s.applyTopic(now, image, t, t.Partitions())
	}
	s.starting = false
	s.noteOffline()
	s.noteMissing()
	s.noteRenamed(image)
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
			s.setAbsent(kafka.TopicPartition{Topic: t.Name, Partition: id}, nil)
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
		} else if l := r.Log(); l.Dir().Err() == nil && r.movesTo() == nil {
			s.assign(r, s.dirOf(l), &p)
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
	s.mu.RLock()
	broken := s.broken[tp]
	s.mu.RUnlock()
	if broken != nil {
		return nil // what is on the disk may be the only copy; it was reported when it was found
	}
	log := s.currentLog(tp)
	if log == nil {
		var err error
		log, err = s.createLog(now, tp, t.ID, p.Directory(s.opts.ID), c)
		known := s.setAbsent(tp, err)
		var offline *offlineDirError
		switch {
		case err == nil:
		case s.starting && errors.As(err, &offline):
			return nil // noteOffline tells of all at once
		default:
			if !known {
				s.opts.Note("log could not be created", tp, err)
			}
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
	r := &Replica{set: s, partition: tp, topicID: t.ID}
	r.log.Store(log)
	r.highWatermark.Store(log.HighWatermark())
	r.role.Store(&role{leader: kafka.NoBroker, epoch: kafka.NoLeaderEpoch})
	s.enter(t, r)
	s.resumeMove(r)
	if r.movesTo() == nil {
		s.assign(r, s.dirOf(log), p)
	}
	return r
}

// createLog makes a new log where it belongs. If a directory can't the next one is tried, where there is a choice.
func (s *Set) createLog(now time.Time, tp kafka.TopicPartition, id kafka.TopicID, want kafka.DirectoryID, c *TopicConfig) (*storage.Log, error) {
	dirs, err := s.places(tp, want)
	for _, d := range dirs {
		var log *storage.Log
		if log, err = d.Create(tp, id, c.Log, now); err == nil {
			delete(s.preferred, tp)
			return log, nil
		}
	}
	return nil, err
}

// setAbsent keeps why there is no log of a partition, nil if there is one, and tells whether the same was known.
func (s *Set) setAbsent(p kafka.TopicPartition, err error) (known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.absent[p]; before != nil && err != nil {
		known = before.Error() == err.Error()
	}
	if err == nil {
		delete(s.absent, p)
	} else {
		s.absent[p] = err
	}
	return known
}

func (s *Set) enter(t *metadata.Topic, r *Replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byName[t.Name]
	if e == nil {
		e = &topic{name: t.Name, id: t.ID}
		s.byName[t.Name], s.byID[t.ID] = e, e
	}
	id := int(r.partition.Partition)
	if id >= len(e.partitions) {
		e.partitions = append(e.partitions, make([]*Replica, id+1-len(e.partitions))...)
	}
	e.partitions[id] = r
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
	s.endMove(r, false)
	s.deleteDir(s.dirOf(r.Log()), r.Log())
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
			r.configure(c.Log)
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
