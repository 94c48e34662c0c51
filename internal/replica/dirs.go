package replica

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/storage"
)

// Dir is a log directory as a Set knows it.
type Dir struct {
	*storage.Dir
	ID   kafka.DirectoryID
	Name string // its absolute path, by which requests name it
}

func (d *Dir) online() bool { return d.Err() == nil }

// dirOf is the directory that a log lies in.
func (s *Set) dirOf(l *storage.Log) *Dir {
	i := slices.IndexFunc(s.opts.Dirs, func(d *Dir) bool { return d.Dir == l.Dir() })
	return s.opts.Dirs[i]
}

// offlineDirs names the directories that have failed, at the start or later.
func (s *Set) offlineDirs() []string {
	names := slices.Clone(s.opts.Lost)
	for _, d := range s.opts.Dirs {
		if !d.online() {
			names = append(names, d.Name)
		}
	}
	return names
}

// offlineDirError is why a replica that may lie in a log directory that is offline is made nowhere.
type offlineDirError struct{ dirs string }

func (e *offlineDirError) Error() string {
	return "it may lie in a log directory that is offline: " + e.dirs
}

// places lists where a new replica may be made, best first. want is the directory by the metadata.
//
// As in Kafka (KIP-858): a replica that belongs into a directory which isn't online is made nowhere else, for it may lie there
// with all its records, unless no directory is offline at all, or none was chosen yet.
func (s *Set) places(p kafka.TopicPartition, want kafka.DirectoryID) ([]*Dir, error) {
	named := slices.IndexFunc(s.opts.Dirs, func(d *Dir) bool { return !want.IsReserved() && d.ID == want && d.online() })
	if off := s.offlineDirs(); named < 0 && len(off) > 0 && want != kafka.DirUnassigned {
		return nil, &offlineDirError{strings.Join(off, ", ")}
	}
	if d := s.preferred[p]; d != nil && d.online() {
		return []*Dir{d}, nil
	}
	if named >= 0 {
		return []*Dir{s.opts.Dirs[named]}, nil
	}
	var out []*Dir
	for _, d := range s.opts.Dirs {
		if d.online() {
			out = append(out, d)
		}
	}
	if len(out) > 1 {
		out = slices.DeleteFunc(out, s.cordoned)
		count := make(map[*Dir]int, len(out))
		for _, d := range out {
			count[d] = d.Count()
		}
		slices.SortStableFunc(out, func(a, b *Dir) int { return count[a] - count[b] })
	}
	if len(out) == 0 {
		return nil, errors.New("no log directory takes a new replica")
	}
	return out, nil
}

func (s *Set) cordoned(d *Dir) bool { return s.opts.Cordoned != nil && s.opts.Cordoned(d.Name) }

// maxPreferred bounds how many directories are remembered for partitions that aren't there: a guess, far above what a tool asks for.
const maxPreferred = 100_000

// AlterDir moves a partition's replica into the log directory of that path, while it serves: it makes the future log there, and
// leaves the rest to whoever is told by Options.Moving. A path where the replica is already ends a move that is under way. For a
// partition that isn't here yet the directory is remembered, and the answer is REPLICA_NOT_AVAILABLE.
func (s *Set) AlterDir(now time.Time, p kafka.TopicPartition, path string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if !storage.FutureNameFits(p) {
		return kerr.InvalidTopicException.With("The topic name is too long.")
	}
	i := slices.IndexFunc(s.opts.Dirs, func(d *Dir) bool { return d.Name == path })
	switch {
	case i < 0 && !slices.Contains(s.opts.Lost, path):
		return kerr.LogDirNotFound.With("Log dir %s is not found in the config.", path)
	case i < 0 || !s.opts.Dirs[i].online():
		return kerr.KafkaStorageError.With("Log directory %s is offline", path)
	}
	d := s.opts.Dirs[i]
	if s.cordoned(d) {
		return kerr.InvalidReplicaAssignment.With("Log directory %s is cordoned", path)
	}
	r, err := s.Lookup(p.Topic, p.Partition)
	if err != nil {
		if errors.Is(err, kerr.KafkaStorageError) {
			return kerr.KafkaStorageError.With("Partition %v is offline", p)
		}
		if len(s.preferred) < maxPreferred {
			s.preferred[p] = d
		}
		if errors.Is(err, kerr.NotLeaderOrFollower) {
			return kerr.ReplicaNotAvailable
		}
		return err
	}
	if r.role.Load().offline != nil {
		return kerr.KafkaStorageError.With("Partition %v is offline", p)
	}
	switch to := r.movesTo(); {
	case to == d:
		return nil
	case to != nil:
		s.endMove(r, false)
	}
	if r.Log().Dir() == d.Dir {
		return nil
	}
	if off := s.offlineDirs(); len(off) > 0 {
		return kerr.KafkaStorageError.With("Can not create log for %v because log directories %s are offline", p, strings.Join(off, ","))
	}
	future, err := d.CreateFuture(p, r.topicID, s.opts.Unique(), *r.Log().Config(), now)
	if err != nil {
		return kerr.KafkaStorageError.With("%v", err)
	}
	r.beginMove(future, d)
	return nil
}

// LogDir is what DescribeLogDirs tells of a log directory.
type LogDir struct {
	Name          string
	Offline       bool // and nothing else is known
	Err           error
	Cordoned      bool
	Total, Usable int64 // bytes, of the disk
	Logs          []LogInfo
}

// LogInfo is one log in a directory.
type LogInfo struct {
	Partition kafka.TopicPartition
	Size      int64        // bytes
	Lag       kafka.Offset // how far the log's end is behind the high watermark or, of a future one, behind the current log's end; -1 if that isn't known
	Future    bool         // the log of a replica on its way into the directory
}

// LogDirs describes all log directories in the order of log.dirs, with the logs that want names.
func (s *Set) LogDirs(want func(kafka.TopicPartition) bool) []LogDir {
	out := make([]LogDir, 0, len(s.opts.Dirs)+len(s.opts.Lost))
	for _, d := range s.opts.Dirs {
		e := LogDir{Name: d.Name, Offline: !d.online()}
		if !e.Offline {
			e.Cordoned = s.cordoned(d)
			e.Total, e.Usable, e.Err = d.Space()
			for _, l := range d.Logs() {
				if want(l.Partition()) {
					e.Logs = append(e.Logs, LogInfo{l.Partition(), l.Size(), max(l.HighWatermark()-l.EndOffset(), 0), false})
				}
			}
			for _, l := range d.Futures() {
				if want(l.Partition()) {
					lag := kafka.NoOffset
					if r, err := s.Lookup(l.Partition().Topic, l.Partition().Partition); err == nil && r.role.Load().offline == nil {
						lag = r.Log().EndOffset() - l.EndOffset()
					}
					e.Logs = append(e.Logs, LogInfo{l.Partition(), l.Size(), lag, true})
				}
			}
		}
		out = append(out, e)
	}
	for _, name := range s.opts.Lost {
		out = append(out, LogDir{Name: name, Offline: true})
	}
	return out
}

// DirFailed takes everything in a log directory out of service because the disk refused something. What lies elsewhere serves on.
func (s *Set) DirFailed(failed *storage.Dir, why error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	for _, r := range s.All() {
		if to := r.movesTo(); to != nil && to.Dir == failed {
			s.endMove(r, true)
		}
		if l := r.Log(); l.Dir() == failed {
			if to := r.movesTo(); to != nil {
				s.abandonMove(r)
			}
			r.Fail(why)
			failed.Drop(l)
		}
	}
}

// assign tells the controller where a replica lies, unless the metadata say so, or know nothing of directories.
func (s *Set) assign(r *Replica, d *Dir, p *metadata.Partition) {
	if d.ID.IsZero() || p.Directory(s.opts.ID) == d.ID || !s.Image().MetadataVersion().Facts().DirectoryAssignmentSupported {
		return
	}
	s.opts.Assigned(kafka.TopicIDPartition{TopicID: r.topicID, Partition: r.partition.Partition}, d.ID, nil)
}
