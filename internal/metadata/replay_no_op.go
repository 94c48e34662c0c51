package metadata

import "github.com/highwater/highwater/internal/schema"

// NoOpRecord: the active controller shows that time passes (metadata.max.idle.interval.ms).
func (d *Delta) replayNoOp(*schema.NoOpRecord) error { return nil }
