package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// storageFormatter formats the directories of a node as Kafka's does, with its messages. The first checkpoint is in place before
// the meta.properties that make a directory count as formatted: a run that is interrupted can be repeated.
type storageFormatter struct {
	fs     vfs.FS
	now    time.Time
	random func() (kafka.UUID, error)
	out    io.Writer

	nodeID          int32
	clusterID       string
	dirs            []string // sorted
	metadataDir     string
	writeSnapshot   bool // the node is a controller
	ignoreFormatted bool
	unstable        bool             // levels that are not for production, too
	release         metadata.Version // 0: the newest for production
	features        []metadata.FeatureSetting
	dynamicQuorum   bool             // controller.quorum.voters is empty
	voters          []metadata.Voter // the dynamic quorum's first; none if that isn't said
	scram           []string
}

// run formats. Errors are terse ones, but for Kafka's exceptions that nobody foresaw.
func (f *storageFormatter) run() error {
	if f.nodeID < 0 {
		return &JavaError{Class: "java.lang.RuntimeException", Text: "You must specify a valid non-negative node ID."}
	}
	if err := f.effectiveRelease(); err != nil {
		return err
	}
	kraft, err := f.effectiveFeatures()
	if err != nil {
		return err
	}
	o := metadata.BootstrapOptions{Version: f.release, Features: f.features}
	if len(f.scram) > 0 {
		if !f.release.Facts().ScramSupported {
			return tersef("SCRAM is only supported in metadata.version %s or later.", firstScramVersion())
		}
		if o.Scram, err = parseScrams(f.scram); err != nil {
			return err
		}
	}
	return f.format(metadata.Bootstrap(o), kraft)
}

func firstScramVersion() metadata.Version {
	for _, v := range metadata.Versions() {
		if v.Facts().ScramSupported {
			return v
		}
	}
	return 0
}

func (f *storageFormatter) effectiveRelease() error {
	for _, s := range f.features {
		if s.Name != metadata.MetadataVersionFeature {
			continue
		}
		if f.release != 0 {
			return terse("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
		}
		v := metadata.Version(s.Level)
		if !v.Known() {
			return illegalArgument(fmt.Sprintf("No MetadataVersion with feature level %d. Valid feature levels are from %d to %d.",
				s.Level, metadata.MinVersion, metadata.LatestVersion))
		}
		f.release = v
	}
	if f.release == 0 {
		f.release = metadata.LatestProductionVersion
		if f.unstable {
			f.release = metadata.LatestVersion
		}
	}
	if !f.unstable && !f.release.Facts().Production {
		return tersef("metadata.version %s is not yet stable.", f.release)
	}
	return nil
}

// effectiveFeatures checks the levels that were asked for against each other, and gives the one of kraft.version.
func (f *storageFormatter) effectiveFeatures() (kraft int16, err error) {
	names := slices.Sorted(slices.Values(metadata.FeatureNames()))
	levels := make(map[string]int16)
	for _, s := range slices.SortedFunc(slices.Values(f.features), func(a, b metadata.FeatureSetting) int { return strings.Compare(a.Name, b.Name) }) {
		if s.Name != metadata.MetadataVersionFeature && !slices.Contains(names, s.Name) {
			return 0, tersef("Unsupported feature: %s. Supported features are: %s", s.Name, strings.Join(names, ", "))
		}
		levels[s.Name] = s.Level
	}
	kraft, asked := levels[metadata.KRaftVersionFeature]
	switch {
	case asked && kraft == 0 && f.dynamicQuorum:
		return 0, terse("Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags --standalone, " +
			"--initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try removing the --feature flag for kraft.version.")
	case asked && kraft != 0 && !f.dynamicQuorum:
		return 0, tersef("Cannot set kraft.version to %d unless controller.quorum.voters is empty and one of the flags --standalone, "+
			"--initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try using one of --standalone, "+
			"--initial-controllers, or --no-initial-controllers and removing controller.quorum.voters.", kraft)
	case !asked && f.dynamicQuorum:
		kraft = 1
	}
	levels[metadata.KRaftVersionFeature] = kraft
	levels[metadata.MetadataVersionFeature] = int16(f.release)
	for _, name := range names {
		if _, ok := levels[name]; !ok {
			levels[name] = metadata.DefaultLevel(name, f.release)
		}
	}
	for _, name := range names {
		level := levels[name]
		known := slices.ContainsFunc(metadata.LevelsOf(name), func(l metadata.FeatureLevel) bool { return l.Level == level && (l.Production || f.unstable) })
		if !known {
			return 0, illegalArgument(fmt.Sprintf("No feature:%s with feature level %d", name, level))
		}
		if err := metadata.CheckDependencies(name, level, func(other string) int16 { return levels[other] }); err != nil {
			return 0, illegalArgument(err.Error())
		}
	}
	return kraft, nil
}

// format looks what is there and writes what is missing.
func (f *storageFormatter) format(records []schema.Record, kraft int16) error {
	var empty, there, unreadable []string
	for _, dir := range f.dirs {
		m, err := storage.ReadMeta(f.fs, dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			empty = append(empty, dir)
		case err != nil && isCorrupt(err):
			return &JavaError{Class: "java.lang.RuntimeException", Text: err.Error()}
		case err != nil:
			fmt.Fprintf(f.out, "I/O error trying to read log directory %s. Ignoring...\n", dir)
			unreadable = append(unreadable, dir)
		default:
			there = append(there, dir)
			name := dir + "/meta.properties"
			if !f.ignoreFormatted {
				return tersef("Log directory %s is already formatted. Use --ignore-formatted to ignore this directory and format the others.", dir)
			}
			if m.ClusterID != f.clusterID {
				return &JavaError{Class: "java.lang.RuntimeException",
					Text: fmt.Sprintf("Invalid cluster.id in: %s. Expected %s, but read %s", name, f.clusterID, m.ClusterID)}
			}
			if m.NodeID != kafka.BrokerID(f.nodeID) {
				return &JavaError{Class: "java.lang.RuntimeException",
					Text: fmt.Sprintf("Stored node id %d doesn't match previous node id %d in %s. If you moved your data, make sure your configured node id matches. "+
						"If you intend to create a new node, you should remove all data in your data directories.", f.nodeID, m.NodeID, name)}
			}
		}
	}
	switch {
	case slices.Contains(unreadable, f.metadataDir):
		return &JavaError{Class: "java.lang.RuntimeException",
			Text: fmt.Sprintf("Encountered I/O error in metadata log directory %s. Cannot continue.", f.metadataDir)}
	case len(empty) == 0 && len(there) == 0:
		return terse("No available log directories to format.")
	case len(empty) == 0:
		fmt.Fprintln(f.out, "All of the log directories are already formatted.")
		return nil
	}
	fmt.Fprintf(f.out, "Bootstrap metadata: %s\n", showBootstrap(records, f.release))
	for _, dir := range empty {
		id, err := f.directoryID(dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(f.out, "Formatting %s %s with metadata.version %s.\n", f.kindOf(dir), dir, f.release)
		if err := f.fs.MkdirAll(dir); err != nil {
			return fmt.Errorf("make directory %s: %w", dir, err)
		}
		if dir == f.metadataDir && f.writeSnapshot {
			if err := f.writeCheckpoint(records, kraft); err != nil {
				return err
			}
		}
		m := storage.Meta{Version: 1, ClusterID: f.clusterID, NodeID: kafka.BrokerID(f.nodeID), DirectoryID: id}
		if err := storage.WriteMetaDated(f.fs, dir, m, f.now); err != nil {
			return &JavaError{Class: "java.lang.RuntimeException", Text: fmt.Sprintf("Error while writing meta.properties file %s: %v", dir, err)}
		}
	}
	return nil
}

func isCorrupt(err error) bool {
	var p *fs.PathError
	return !errors.As(err, &p)
}

func (f *storageFormatter) self() *metadata.Voter {
	for i := range f.voters {
		if f.voters[i].ID == f.nodeID {
			return &f.voters[i]
		}
	}
	return nil
}

// directoryID is the voter's for the metadata directory of a first voter, else a new one.
func (f *storageFormatter) directoryID(dir string) (kafka.DirectoryID, error) {
	if v := f.self(); v != nil && dir == f.metadataDir {
		return v.DirectoryID, nil
	}
	return f.random()
}

func (f *storageFormatter) kindOf(dir string) string {
	switch {
	case dir != f.metadataDir:
		return "data directory"
	case len(f.voters) == 0:
		return "metadata directory"
	case f.self() == nil:
		return "dynamic metadata directory"
	}
	return "dynamic metadata voter directory"
}

// checkpointName is the snapshot at offset 0, epoch 0.
const checkpointName = "00000000000000000000-0000000000.checkpoint"

// writeCheckpoint writes the first snapshot of the metadata log: a control batch, a batch of records, the footer.
func (f *storageFormatter) writeCheckpoint(records []schema.Record, kraft int16) error {
	dir := f.metadataDir + "/__cluster_metadata-0"
	if err := f.fs.MkdirAll(dir); err != nil {
		return fmt.Errorf("make directory %s: %w", dir, err)
	}
	now := f.now.UnixMilli()
	var file []byte
	next := kafka.Offset(0)
	batch := func(control bool, put func(b *record.Builder) error) error {
		o := record.DefaultBatchOptions(next)
		o.LeaderEpoch, o.Control = 0, control
		b := record.NewBuilder(o)
		if err := put(b); err != nil {
			return err
		}
		next += kafka.Offset(b.Len())
		var err error
		file, err = b.AppendTo(file)
		return err
	}
	kinds := []record.ControlType{record.SnapshotHeader, record.KRaftVersion, record.KRaftVoters}
	err := batch(true, func(b *record.Builder) error {
		for i, r := range metadata.BootstrapControl(now, kraft, f.voters) {
			v, err := r.AppendTo(nil, 0)
			if err != nil {
				return err
			}
			b.Append(now, kinds[i].Key(), v)
		}
		return nil
	})
	if err == nil {
		err = batch(false, func(b *record.Builder) error {
			for _, r := range records {
				v, err := schema.AppendFrame(nil, r, 0)
				if err != nil {
					return err
				}
				b.Append(now, nil, v)
			}
			return nil
		})
	}
	if err == nil {
		err = batch(true, func(b *record.Builder) error {
			v, err := schema.NewSnapshotFooterRecord().AppendTo(nil, 0)
			if err == nil {
				b.Append(now, record.SnapshotFooter.Key(), v)
			}
			return err
		})
	}
	if err == nil {
		err = vfs.WriteFileAtomic(f.fs, dir, checkpointName, file)
	}
	if err != nil {
		return fmt.Errorf("write %s/%s: %w", dir, checkpointName, err)
	}
	// Snapshots are read-only, so that nobody changes one by accident.
	if err := os.Chmod(dir+"/"+checkpointName, 0o400); err != nil {
		return fmt.Errorf("make snapshot read-only: %w", err)
	}
	if err := f.fs.SyncDir(f.metadataDir); err != nil {
		return fmt.Errorf("sync %s: %w", f.metadataDir, err)
	}
	return nil
}

// showBootstrap prints the records as Java's toString does.
func showBootstrap(records []schema.Record, v metadata.Version) string {
	var parts []string
	for _, r := range records {
		text := ""
		switch r := r.(type) {
		case *schema.FeatureLevelRecord:
			text = fmt.Sprintf("FeatureLevelRecord(name='%s', featureLevel=%d)", r.Name, r.FeatureLevel)
		case *schema.UserScramCredentialRecord:
			text = fmt.Sprintf("UserScramCredentialRecord(name='%s', mechanism=%d, salt=%s, storedKey=%s, serverKey=%s, iterations=%d)",
				r.Name, r.Mechanism, javaBytes(r.Salt), javaBytes(r.StoredKey), javaBytes(r.ServerKey), r.Iterations)
		}
		parts = append(parts, "ApiMessageAndVersion("+text+" at version 0)")
	}
	return fmt.Sprintf("BootstrapMetadata(records=[%s], metadataVersionLevel=%d, source=format command)", strings.Join(parts, ", "), v)
}

func javaBytes(b []byte) string {
	s := make([]string, len(b))
	for i, x := range b {
		s[i] = strconv.Itoa(int(int8(x)))
	}
	return "[" + strings.Join(s, ", ") + "]"
}

// drawUUID draws an id.
func drawUUID() (kafka.UUID, error) {
	for {
		var b [16]byte
		if _, err := rand.Read(b[:]); err != nil {
			return kafka.UUID{}, fmt.Errorf("draw random bytes: %w", err)
		}
		if u, ok := kafka.RandomUUID(b); ok {
			return u, nil
		}
	}
}

// parseVoters reads id@host:port:directory, with commas between.
func parseVoters(text, listener string) ([]metadata.Voter, error) {
	var out []metadata.Voter
	for _, s := range strings.Split(text, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		v, err := parseVoter(s, listener)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o metadata.Voter) bool { return o.ID == v.ID }) {
			return nil, illegalArgument(fmt.Sprintf("Node id %d was specified more than once.", v.ID))
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		return nil, illegalArgument("No voters given.")
	}
	return out, nil
}

func parseVoter(s, listener string) (v metadata.Voter, err error) {
	fail := func(format string, args ...any) (metadata.Voter, error) {
		return v, illegalArgument(fmt.Sprintf(format, args...))
	}
	id, rest, ok := strings.Cut(s, "@")
	switch {
	case !ok:
		return fail("No @ found in dynamic voter string.")
	case id == "":
		return fail("Invalid @ at beginning of dynamic voter string.")
	}
	n, err := strconv.ParseInt(id, 10, 32)
	switch {
	case err != nil:
		return fail("Failed to parse node id in dynamic voter string.")
	case n < 0:
		return fail("Invalid negative node id %d in dynamic voter string.", n)
	case rest == "":
		return fail("No hostname found after node id.")
	}
	var host string
	if strings.HasPrefix(rest, "[") {
		end := strings.Index(rest, "]")
		if end < 0 {
			return fail("Hostname began with left bracket, but no right bracket was found.")
		}
		host, rest = rest[1:end], rest[end+1:]
	} else {
		end := strings.Index(rest, ":")
		if end < 0 {
			return fail("No colon following hostname could be found.")
		}
		host, rest = rest[:end], rest[end:]
	}
	if !strings.HasPrefix(rest, ":") {
		return fail("Port section must start with a colon.")
	}
	port, dir, ok := strings.Cut(rest[1:], ":")
	if !ok {
		return fail("No colon following port could be found.")
	}
	p, err := strconv.ParseInt(port, 10, 32)
	switch {
	case err != nil:
		return fail("Failed to parse port in dynamic voter string.")
	case p < 0 || p > 65535:
		return fail("Invalid port %d in dynamic voter string.", p)
	}
	u, err := kafka.ParseUUID(dir)
	if err != nil {
		return fail("Failed to parse directory ID in dynamic voter string.")
	}
	return metadata.Voter{ID: int32(n), DirectoryID: u, Endpoints: []metadata.Endpoint{{Name: listener, Host: host, Port: uint16(p)}}}, nil
}
