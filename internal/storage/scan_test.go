package storage

import (
	"testing"

	"github.com/highwater/highwater/internal/vfs"
)

// counted counts the bytes that are read of a file.
type counted struct {
	vfs.File
	read int64
}

func (c *counted) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.File.ReadAt(b, at)
	c.read += int64(n)
	return n, err
}

// TestScanReadsOnce: of batches smaller and larger than what is read at a time no byte is read twice.
func TestScanReadsOnce(t *testing.T) {
	for _, size := range []int{1000, 100_000, chunkSize, 700_000} {
		fsys := vfs.NewMem()
		_, l := faultLog(t, fsys, DefaultConfig())
		write(t, l, 7, size)
		f, err := fsys.Open("d/f-0/00000000000000000000.log", vfs.ReadOnly)
		if err != nil {
			t.Fatal(err)
		}
		c := &counted{File: f}
		scan := scanBatches(c, 0, l.Size())
		batches := 0
		for {
			_, _, ok, err := scan.next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			batches++
		}
		scan.close()
		if batches != 7 || c.read != l.Size() {
			t.Errorf("batches of %d bytes: %d of 7, %d bytes of %d were read", size, batches, c.read, l.Size())
		}
		f.Close()
	}
}
