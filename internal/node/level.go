package node

import (
	"fmt"

	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/vfs"
)

// level follows metadata.version through the records of a metadata log. A node must not begin on one whose last level it does not know:
// it would lead, write, and end at the first record that it cannot read.
type level struct {
	last metadata.Version // 0 before the first record
	from string           // where the records are from
}

// note takes in a record. What it cannot read it passes over: whoever replays the log tells of that.
func (l *level) note(value []byte) {
	id, version, body, err := schema.ReadFrameHeader(value)
	if err != nil || id != schema.IDFeatureLevelRecord {
		return
	}
	var r schema.FeatureLevelRecord
	if err := schema.ReadAll(&r, body, version); err == nil && r.Name == metadata.MetadataVersionFeature {
		l.last = metadata.Version(r.FeatureLevel)
	}
}

// check refuses a level that this software does not know.
func (l *level) check() error {
	if l.last == 0 || l.last.Known() {
		return nil
	}
	_, stable, _ := metadata.SupportedRange(metadata.MetadataVersionFeature, false)
	e := &StartError{
		Class: "java.lang.IllegalArgumentException",
		Text: fmt.Sprintf("No MetadataVersion with feature level %d. Valid feature levels are from %d to %d. It is that of %s",
			l.last, metadata.MinVersion, metadata.LatestVersion, l.from),
		Hint: fmt.Sprintf("A newer version wrote it; this one knows metadata.version %d (%s) to %d (%s). Start the version that wrote it, run `kafka-features.sh downgrade --metadata %s` there if it can, "+
			"or install a newer Highwater. Nothing was changed.", metadata.MinVersion, metadata.MinVersion, metadata.LatestVersion, metadata.LatestVersion, metadata.Version(stable)),
	}
	if l.last < metadata.MinVersion {
		e.Hint = fmt.Sprintf("A version before Kafka 3.3 wrote it; this one knows metadata.version %d (%s) to %d (%s). Raise it with the version that wrote it. Nothing was changed.",
			metadata.MinVersion, metadata.MinVersion, metadata.LatestVersion, metadata.LatestVersion)
	}
	return e
}

// checkBootstrap refuses the records with which a cluster would begin, as a newer kafka-storage writes them.
func checkBootstrap(fsys vfs.FS, metadataLogDir string) error {
	records, source, _, err := raftloop.ReadBootstrap(fsys, metadataLogDir)
	if err != nil {
		return err
	}
	l := level{from: source}
	for _, value := range records {
		l.note(value)
	}
	return l.check()
}
