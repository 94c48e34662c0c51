package cli

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// fsckCheck is the check of all directories of a node. It only reads.
type fsckCheck struct {
	fs      vfs.FS
	paths   []string // of log directories, or of single partitions' directories
	workers int
	deep    bool // look into the records
	live    bool // a broker may be at work
	locked  map[string]bool

	// Of server.properties, if it was given: then paths are all directories of the node.
	config   bool
	nodeID   kafka.BrokerID // kafka.NoBroker if it isn't known
	metaDir  string         // metadata.log.dir
	policy   string         // log.cleanup.policy
	done     atomic.Int64   // bytes read
	parts    atomic.Int64   // partitions finished
	total    atomic.Int64   // partitions
	dirs     []*fsckDir
	image    *metadata.Image // nil without a metadata log
	findings fsckFindings
}

// run makes the check. The error is about the directories as such: they cannot be listed.
func (c *fsckCheck) run() (*fsckReport, error) {
	for _, path := range c.paths {
		d, err := c.open(path)
		if err != nil {
			return nil, err
		}
		c.dirs = append(c.dirs, d)
	}
	c.agree()
	for _, d := range c.dirs {
		for _, p := range d.dirs {
			k := d.partition(p)
			k.deep, k.live = c.deep, c.live
			d.checks = append(d.checks, k)
		}
		c.total.Add(int64(len(d.dirs)))
	}
	c.metadata()
	c.partitions()
	c.cross()
	return c.report(), nil
}

// open reads the top of a log directory, or of the one above a partition's.
func (c *fsckCheck) open(path string) (*fsckDir, error) {
	d := &fsckDir{fs: c.fs, path: path, state: fsckDirState{Locked: c.locked[path]}}
	slash := strings.LastIndexByte(path, '/')
	name := path[slash+1:]
	if _, ok := storage.ParsePartitionDirName(name); ok && slash > 0 {
		if _, err := c.fs.Stat(path + "/" + storage.MetaFile); err != nil {
			d.path, d.only = path[:slash], name
		}
	}
	if err := d.read(); err != nil {
		return nil, err
	}
	return d, nil
}

// agree compares the directories' meta.properties, as Kafka does at its start.
func (c *fsckCheck) agree() {
	var first *fsckDir
	for i, d := range c.dirs {
		if !d.hasMeta || d.only != "" {
			continue
		}
		name := d.name(storage.MetaFile)
		const ends = "ends at its start."
		if c.nodeID != kafka.NoBroker && d.meta.NodeID != kafka.NoBroker && d.meta.NodeID != c.nodeID {
			c.findings.add(fsckError, name, "meta-properties", ends, "node id %d, and the configuration says %d", d.meta.NodeID, c.nodeID).
				WayOut = "the directory is another node's: correct log.dirs or node.id."
		}
		for _, o := range c.dirs[:i] {
			if o.hasMeta && o.only == "" && o.meta.DirectoryID == d.meta.DirectoryID && !d.meta.DirectoryID.IsZero() {
				c.findings.add(fsckError, name, "meta-properties", ends, "directory.id %s is also that of %s", d.meta.DirectoryID, o.path).
					WayOut = "one is a copy: remove it from log.dirs."
			}
		}
		if first == nil {
			first = d
			continue
		}
		if first.meta.ClusterID != d.meta.ClusterID && first.meta.ClusterID != "" && d.meta.ClusterID != "" {
			c.findings.add(fsckError, name, "meta-properties", ends, "cluster.id %s, and in %s it is %s", d.meta.ClusterID, first.path, first.meta.ClusterID).
				WayOut = "the directories belong to different clusters: correct log.dirs."
		}
		if first.meta.NodeID != d.meta.NodeID && first.meta.NodeID != kafka.NoBroker && d.meta.NodeID != kafka.NoBroker && c.nodeID == kafka.NoBroker {
			c.findings.add(fsckError, name, "meta-properties", ends, "node id %d, and in %s it is %d", d.meta.NodeID, first.path, first.meta.NodeID).
				WayOut = "the directories belong to different nodes: correct log.dirs."
		}
	}
	if first != nil && c.nodeID == kafka.NoBroker {
		c.nodeID = first.meta.NodeID
	}
}

// metadata checks the metadata log before everything else, for the image that the partitions are compared with.
func (c *fsckCheck) metadata() {
	var found *fsckPartition
	for _, d := range c.dirs {
		for _, p := range d.checks {
			if !p.meta {
				continue
			}
			if found != nil || c.config && c.metaDir != "" && d.path != c.metaDir {
				p.findings.add(fsckError, p.path, "metadata-place", "ends at its start.", "a metadata log outside of the metadata directory").
					WayOut = "move it elsewhere, or let metadata.log.dir name this directory."
				p.run()
				c.parts.Add(1)
				continue
			}
			found = p
			m := &fsckMetadata{fs: c.fs, dir: p.path, p: p}
			m.begin()
			p.run()
			m.finish()
			c.parts.Add(1)
			if !m.failed {
				c.image = m.image
			}
		}
	}
	if found == nil {
		c.lost()
	}
}

// lost tells of a metadata log that is not there, where there must have been one.
func (c *fsckCheck) lost() {
	for _, d := range c.dirs {
		synced := d.offset(storage.RecoveryPointsFile, kafka.TopicPartition{Topic: kafka.ClusterMetadataTopic})
		begun := c.config && d.path == c.metaDir && d.meta.Version == 1 && slices.ContainsFunc(c.dirs, func(d *fsckDir) bool {
			return slices.ContainsFunc(d.dirs, func(p storage.PartitionDir) bool { return p.Kind == storage.Current })
		})
		if d.only != "" || synced <= 0 && !begun {
			continue
		}
		text := "it is missing, and there are partitions"
		if synced > 0 {
			text = fmt.Sprintf("it is missing, and was synced up to offset %d", synced)
		}
		f := c.findings.add(fsckError, d.name(fsckMetadataDir), "metadata-lost", "begins an empty metadata log; if it is the only controller it knows no topic then, and renames the directories of all partitions to …-stray.", "%s", text)
		f.Highwater = "does not start, if it has written the log or is the only controller."
		f.WayOut = "restore the directory before the start; a node that is one of several controllers, or only a broker, fetches it from the leader."
	}
}

// partitions checks all other partitions, several at a time.
func (c *fsckCheck) partitions() {
	work := make(chan *fsckPartition)
	var wg sync.WaitGroup
	for range max(c.workers, 1) {
		wg.Add(1)
		go func() { // ends when work is closed, below
			defer wg.Done()
			scan := fsckScan{progress: func(n int64) { c.done.Add(n) }}
			for p := range work {
				p.scan = scan
				p.policy = c.policyOf(p.dir.Partition.Topic)
				p.run()
				scan = p.scan // its buffer is used again
				p.scan, p.walk, p.segments = fsckScan{}, fsckWalk{}, nil
				c.parts.Add(1)
			}
		}()
	}
	for _, d := range c.dirs {
		for _, p := range d.checks {
			if !p.meta {
				work <- p
			}
		}
	}
	close(work)
	wg.Wait()
}

// policyOf is whether a topic is compacted, as far as the metadata or the configuration say.
func (c *fsckCheck) policyOf(topic string) fsckPolicy {
	policy, ok := c.policy, c.policy != ""
	if c.image != nil {
		if c.image.Topic(topic) == nil {
			return fsckPolicyUnknown
		}
		const key = "cleanup.policy"
		for _, r := range []metadata.Resource{
			{Type: metadata.ResourceTopic, Name: topic},
			{Type: metadata.ResourceBroker, Name: fmt.Sprint(c.nodeID)},
			{Type: metadata.ResourceBroker},
		} {
			k := key
			if r.Type == metadata.ResourceBroker {
				k = "log." + key
			}
			if v, set := c.image.ConfigValue(r, k); set {
				policy, ok = v, true
				break
			}
		}
	}
	switch {
	case !ok && c.image != nil:
		return fsckPolicyUnset
	case !ok:
		return fsckPolicyUnknown
	case strings.Contains(policy, "compact"):
		return fsckCompacted
	}
	return fsckNotCompacted
}

// cross compares the partitions with each other and with the metadata.
func (c *fsckCheck) cross() {
	current := map[kafka.TopicPartition]*fsckPartition{}
	future := map[kafka.TopicPartition]*fsckPartition{}
	kraft := true
	byID := map[kafka.DirectoryID]bool{}
	whole := true
	for _, d := range c.dirs {
		kraft = kraft && d.hasMeta && d.meta.Version == 1
		whole = whole && d.only == ""
		if d.hasMeta && d.only == "" && !d.meta.DirectoryID.IsZero() {
			byID[d.meta.DirectoryID] = true
		}
		for _, p := range d.checks {
			in := current
			switch {
			case p.meta || p.dir.Kind == storage.Deleted:
				continue
			case p.dir.Kind == storage.Stray:
				p.findings.add(fsckNote, p.path, "stray-dir", "loads it, does not serve it, and never removes it.", "a partition that the metadata did not know: offsets %d to %d", p.forecast.StartOffset, p.forecast.EndOffset).
					WayOut = "remove it if nobody misses its records."
				continue
			case p.dir.Kind == storage.Future:
				in = future
			}
			stray := kraft && c.image != nil && c.stray(p)
			p.forecast.Stray = stray
			if o := in[p.dir.Partition]; o != nil && !stray && !o.forecast.Stray {
				f := p.findings.add(fsckError, p.path, "duplicate", "ends at its start.", "the partition is also in %s, there with offsets %d to %d, here %d to %d", o.path, o.forecast.StartOffset, o.forecast.EndOffset, p.forecast.StartOffset, p.forecast.EndOffset)
				f.WayOut = "move one of the two elsewhere: the one in the directory that failed last."
			}
			in[p.dir.Partition] = p
			if c.image != nil && kraft && !stray && p.dir.Kind == storage.Current {
				c.place(d, p)
			}
		}
	}
	for tp, p := range future {
		f := p.findings.add(fsckNote, p.path, "future-dir", "goes on copying the partition into this directory, and then lets it take the place of the one that it has now.", "a replica on its way into this directory")
		if current[tp] == nil && whole && c.config {
			f.Text += "; the one that it is to replace is not there"
		}
	}
	if c.image != nil && whole && kraft && c.nodeID != kafka.NoBroker {
		c.absent(current, byID)
	}
}

// stray tells whether Kafka renames a partition's directory to …-stray, and says so.
func (c *fsckCheck) stray(p *fsckPartition) bool {
	const kafka = "takes it for a stray one: renames its directory to …-stray, serves it no more, and never removes it."
	if p.topicID.IsZero() {
		return c.image.Topic(p.dir.Partition.Topic) != nil // that it has no id was said
	}
	t := c.image.TopicByID(p.topicID)
	if t == nil {
		text := "the metadata has no topic with its id " + p.topicID.String()
		if o := c.image.Topic(p.dir.Partition.Topic); o != nil {
			text += fmt.Sprintf(": the topic %s has the id %s, so it was deleted and made again", o.Name, o.ID)
		}
		p.findings.add(fsckWarning, p.path, "stray", kafka, "%s", text)
		return true
	}
	s, ok := t.Partition(p.dir.Partition.Partition)
	switch {
	case !ok:
		p.findings.add(fsckWarning, p.path, "stray", kafka, "the metadata has the topic, but no such partition")
	case c.nodeID >= 0 && !s.HasReplica(c.nodeID):
		p.findings.add(fsckWarning, p.path, "stray", kafka, "the metadata has the replicas of the partition on %v, and this is node %d", s.Replicas, c.nodeID)
	case t.Name != p.dir.Partition.Topic:
		p.findings.add(fsckError, p.path, "topic-id", "serves it under the directory's name, and refuses it to those who ask by id.", "its id is that of the topic %s", t.Name).
			WayOut = "a directory was renamed: give it its name back."
		return false
	default:
		return false
	}
	return true
}

// place compares where a partition is with where the metadata has it.
func (c *fsckCheck) place(d *fsckDir, p *fsckPartition) {
	t := c.image.TopicByID(p.topicID)
	if t == nil {
		return
	}
	s, ok := t.Partition(p.dir.Partition.Partition)
	id := s.Directory(c.nodeID)
	if ok && d.hasMeta && !d.meta.DirectoryID.IsZero() && !id.IsReserved() && !id.IsZero() && id != d.meta.DirectoryID {
		p.findings.add(fsckNote, p.path, "directory", "tells the controller where it is.", "the metadata has the partition in the log directory with id %s, and this one is %s", id, d.meta.DirectoryID)
	}
}

// absent looks for partitions that the metadata has on this node and that are in none of the directories.
func (c *fsckCheck) absent(current map[kafka.TopicPartition]*fsckPartition, byID map[kafka.DirectoryID]bool) {
	if c.image.Broker(c.nodeID) == nil {
		return
	}
	for t := range c.image.Topics() {
		for n, s := range t.Partitions() {
			tp := kafka.TopicPartition{Topic: t.Name, Partition: n}
			if !s.HasReplica(c.nodeID) || current[tp] != nil {
				continue
			}
			id := s.Directory(c.nodeID)
			if !byID[id] && !c.config {
				continue // it may be in a directory that was not named
			}
			severity, does := fsckWarning, "makes an empty one, and copies the partition from its leader."
			// A broker alone that stops in order leaves the ISR for the ELR.
			if !slices.ContainsFunc(slices.Concat(s.ISR, s.ELR, s.LastKnownELR), func(id kafka.BrokerID) bool { return id != c.nodeID }) {
				severity, does = fsckError, "makes an empty one, and leads the partition with it: what was there is lost."
				if s.LeaderEpoch == 0 && !c.known(tp) {
					severity, does = fsckWarning, "makes an empty one, and leads the partition with it, which is right if it was created just before the node was killed."
				}
			}
			f := c.findings.add(severity, c.dirOf(id), "absent", does, "the metadata has a replica of %s on this node (leader epoch %d), and there is no directory %s", tp, s.LeaderEpoch, tp)
			f.WayOut = "if the partition had records, restore its directory before the start."
		}
	}
}

// known tells whether a directory was stopped cleanly, and so had all its partitions, or a checkpoint has records of this one.
func (c *fsckCheck) known(tp kafka.TopicPartition) bool {
	return slices.ContainsFunc(c.dirs, func(d *fsckDir) bool {
		return d.state.Clean || d.offset(storage.RecoveryPointsFile, tp) > 0 || d.offset(storage.HighWatermarksFile, tp) > 0
	})
}

func (c *fsckCheck) dirOf(id kafka.DirectoryID) string {
	for _, d := range c.dirs {
		if d.hasMeta && d.meta.DirectoryID == id {
			return d.path
		}
	}
	return c.dirs[0].path
}

func (c *fsckCheck) report() *fsckReport {
	r := &fsckReport{Live: c.live}
	for _, d := range c.dirs {
		for _, p := range d.checks {
			d.state.add(p.counts)
			r.Findings = append(r.Findings, p.findings.closed()...)
			if p.dir.Kind != storage.Deleted {
				r.Partitions = append(r.Partitions, &p.forecast)
			}
		}
		r.Findings = append(r.Findings, d.findings.closed()...)
		if i := slices.IndexFunc(r.Dirs, func(o *fsckDirState) bool { return o.Path == d.path }); i >= 0 {
			r.Dirs[i].add(d.state.fsckCounts)
		} else {
			r.Dirs = append(r.Dirs, &d.state)
		}
	}
	r.Findings = append(r.Findings, c.findings.closed()...)
	r.finish()
	return r
}
