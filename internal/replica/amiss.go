package replica

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/storage"
)

// What a start finds amiss between the metadata and the log directories. Each is told in one line, with the way out.

// strand sets a log aside as …-stray, and notes where it is then.
func (s *Set) strand(what string, d *Dir, l *storage.Log, why error) {
	name, err := d.Strand(l, s.opts.Unique())
	if err != nil {
		s.opts.Note(what+" could not be set aside", l.Partition(), fmt.Errorf("%w: %w", why, err))
		return
	}
	s.opts.Note(what+" set aside as stray", l.Partition(), fmt.Errorf("%w: it is %s/%s now", why, d.Path(), name))
}

// noteOffline tells of partitions that may lie in log directories that are offline.
func (s *Set) noteOffline() {
	var partitions []kafka.TopicPartition
	var why *offlineDirError
	s.mu.RLock()
	for tp, err := range s.absent {
		if errors.As(err, &why) {
			partitions = append(partitions, tp)
		}
	}
	s.mu.RUnlock()
	if len(partitions) > 0 {
		s.opts.Note("partition is offline", firstOf(slices.Values(partitions)), fmt.Errorf("%w%s", why, andMore(len(partitions))))
	}
}

// noteMissing tells of partitions that were made anew, empty, because their directory is gone.
func (s *Set) noteMissing() {
	for _, d := range s.opts.Dirs {
		missing := d.Missing()
		if !d.online() {
			continue
		}
		for tp := range missing {
			if r, err := s.Lookup(tp.Topic, tp.Partition); err != nil || r.Log().EndOffset() > 0 {
				delete(missing, tp) // deleted meanwhile, or moved into another directory by hand
			}
		}
		if len(missing) == 0 {
			continue
		}
		first := firstOf(maps.Keys(missing))
		s.opts.Note("partition's directory is missing: it begins anew, empty", first, fmt.Errorf("everything below offset %d of %s/%v was synced there%s: "+
			"if there is no other replica, stop this node and put the directory back", missing[first], d.Path(), first, andMore(len(missing))))
	}
}

// noteRenamed tells of partitions that the controller takes for offline, as the id of the directory where they lie has changed.
func (s *Set) noteRenamed(image *metadata.Image) {
	if len(s.offlineDirs()) > 0 {
		return // they may be meant to be there
	}
	type change struct {
		in  *Dir
		was kafka.DirectoryID
	}
	changed := map[change][]kafka.TopicPartition{}
	for _, r := range s.All() {
		t := image.Topic(r.partition.Topic)
		if t == nil {
			continue
		}
		p, ok := t.Partition(r.partition.Partition)
		was := p.Directory(s.opts.ID)
		if ok && p.Leader == kafka.NoBroker && !was.IsReserved() && !slices.ContainsFunc(s.opts.Dirs, func(d *Dir) bool { return d.ID == was }) {
			c := change{s.dirOf(r.Log()), was}
			changed[c] = append(changed[c], r.partition)
		}
	}
	for _, c := range slices.SortedFunc(maps.Keys(changed), func(a, b change) int {
		return cmp.Or(cmp.Compare(a.in.Path(), b.in.Path()), cmp.Compare(a.was.String(), b.was.String()))
	}) {
		partitions := changed[c]
		first := firstOf(slices.Values(partitions))
		s.opts.Note("partition has no leader: its log directory has lost its id", first, fmt.Errorf("the metadata has it in directory %v, and %s/meta.properties says %v%s: "+
			"put directory.id=%v back there, or start the node once more, when the controller has learnt the new id", c.was, c.in.Path(), c.in.ID, andMore(len(partitions)), c.was))
	}
}

// andMore tells of how many partitions besides the first a note is.
func andMore(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (as of %d more partitions)", n-1)
}

// firstOf is the least of some partitions.
func firstOf(partitions iter.Seq[kafka.TopicPartition]) kafka.TopicPartition {
	return slices.MinFunc(slices.Collect(partitions), func(a, b kafka.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}
