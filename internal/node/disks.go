package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
)

// disks is interim: replaced by storageloop.
type disks struct{ n *Node }

func (d *disks) Load(ctx context.Context, conf func(kafka.TopicPartition) storage.Config) error {
	for _, dir := range d.n.brokerDirs() {
		parts, err := dir.Partitions()
		if err != nil {
			return err
		}
		if err := dir.Begin(); err != nil {
			return err
		}
		work := make(chan storage.PartitionDir)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var first error
		for range 2 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for p := range work {
					if _, _, err := dir.Open(p, conf(p.Partition), time.Now()); err != nil {
						mu.Lock()
						first = fmt.Errorf("open %s: %w", p.Name, err)
						mu.Unlock()
					}
				}
			}()
		}
		for _, p := range parts {
			if p.Kind == storage.Current {
				work <- p
			}
		}
		close(work)
		wg.Wait()
		if first != nil {
			return first
		}
	}
	return nil
}
func (d *disks) Start()      {}
func (d *disks) Stop() error { return nil }
func (d *disks) RemovePartition(dir *storage.Dir, name string, delay time.Duration) {
	time.AfterFunc(delay, func() { _ = dir.RemovePartition(name) })
}
