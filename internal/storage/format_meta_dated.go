package storage

import (
	"time"

	"github.com/highwater/highwater/internal/vfs"
)

// WriteMetaDated writes meta.properties atomically, with the time in a comment, as Kafka's own tools do.
func WriteMetaDated(fsys vfs.FS, dir string, m Meta, now time.Time) error {
	const head = "#\n"
	b := append([]byte(head+"#"+now.Format("Mon Jan 02 15:04:05 MST 2006")+"\n"), encodeMeta(m)[len(head):]...)
	return vfs.WriteFileAtomic(fsys, dir, metaName, b)
}
