package codec

import (
	"bytes"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

type gzipReader struct {
	src bytes.Reader
	z   gzip.Reader
}

var gzipReaders = sync.Pool{New: func() any { return new(gzipReader) }}

func (g *gzipReader) release() {
	g.src.Reset(nil)
	gzipReaders.Put(g)
}

// gzipPiece is how much is unpacked at once if dst has no more room: the size of deflate's window.
const gzipPiece = 32 << 10

// gzipMinMember is what header and trailer take; with no more than that left Java looks for no further member.
const gzipMinMember = 18

func (r *Reader) moreGzip(dst []byte) ([]byte, error) {
	if r.gzip == nil {
		r.gzip = gzipReaders.Get().(*gzipReader)
		r.gzip.src.Reset(r.rest)
		if err := r.gzip.z.Reset(&r.gzip.src); err != nil {
			return dst, corrupt(Gzip, "%v", err)
		}
		r.gzip.z.Multistream(false)
	}
	g := r.gzip
	if cap(dst)-len(dst) < gzipPiece/4 {
		dst = grow(dst, gzipPiece)
	}
	for empty := 0; ; empty++ {
		n, err := g.z.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case err == nil && n > 0:
			return dst, nil
		case err == nil && empty < 100:
			continue
		case err == nil:
			return dst, corrupt(Gzip, "no progress")
		case err != io.EOF:
			return dst, corrupt(Gzip, "%v", err)
		}
		// A member ended. Java goes on with another one if there is room for it, and ignores what doesn't begin like one.
		if g.src.Len() <= gzipMinMember || g.z.Reset(&g.src) != nil {
			return dst, io.EOF
		}
		g.z.Multistream(false)
		if n > 0 {
			return dst, nil
		}
		empty = 0
	}
}

// gzipWriters has a pool for each level from -1 on.
var gzipWriters [11]sync.Pool

func gzipCompress(dst []byte, level int, src []byte) ([]byte, error) {
	pool := &gzipWriters[level+1]
	out := bytes.NewBuffer(dst)
	z, _ := pool.Get().(*gzip.Writer)
	if z == nil {
		var err error
		if z, err = gzip.NewWriterLevel(out, level); err != nil {
			return dst, err
		}
	} else {
		z.Reset(out)
	}
	_, err := z.Write(src)
	if cerr := z.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return dst, err
	}
	z.Reset(nil)
	pool.Put(z)
	return out.Bytes(), nil
}
