package codec

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// zstdWhole is up to what size of output data is unpacked in one go, which is faster than as a stream.
	zstdWhole = 1 << 20
	// zstdWindow is the largest window that any level below the "ultra" ones needs: what a pooled decoder may allocate.
	zstdWindow = 8 << 20
	// zstdMaxWindow is the reference decoder's limit (2^27), which is Kafka's. A frame can claim it in a few bytes, so only one decoder
	// with more than zstdWindow exists at a time.
	zstdMaxWindow = 128 << 20
	zstdPiece     = 64 << 10
)

type zstdReader struct {
	whole  *zstd.Decoder // for data that fits into zstdWhole
	stream *zstd.Decoder
	src    bytes.Reader

	streaming bool
	large     bool  // stream is the one large decoder, and we hold zstdLarge
	given     int64 // bytes that the stream gave out
}

// zstdLarge is held by the Reader that has a decoder with a large window.
var zstdLarge sync.Mutex

var zstdReaders = sync.Pool{New: func() any {
	// The options are constant and right, so NewReader cannot fail.
	d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(zstdWhole), zstd.WithDecoderMaxWindow(zstdMaxWindow))
	return &zstdReader{whole: d}
}}

func newZstdStream(window uint64) *zstd.Decoder {
	d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(window), zstd.WithDecoderMaxWindow(window), zstd.WithDecodeBuffersBelow(0))
	return d
}

func (z *zstdReader) release() {
	z.src.Reset(nil)
	if z.stream != nil {
		z.stream.Reset(nil)
	}
	if z.large {
		z.stream.Close()
		z.stream, z.large = nil, false
		zstdLarge.Unlock()
	}
	z.streaming, z.given = false, 0
	zstdReaders.Put(z)
}

func (r *Reader) moreZstd(dst []byte) ([]byte, error) {
	if r.zstd == nil {
		// As with Java's decoder no data is no error; the records will be missed.
		if len(r.rest) == 0 {
			return dst, io.EOF
		}
		r.zstd = zstdReaders.Get().(*zstdReader)
	}
	z := r.zstd
	if !z.streaming {
		start := len(dst)
		out, err := z.whole.DecodeAll(r.rest, dst)
		switch {
		case err == nil:
			return out, io.EOF
		case !errors.Is(err, zstd.ErrDecoderSizeExceeded) && !errors.Is(err, zstd.ErrWindowSizeExceeded):
			return dst[:start], corrupt(Zstd, "%v", err)
		}
		z.streaming = true
		if z.stream == nil {
			z.stream = newZstdStream(zstdWindow)
		}
		if err := z.restart(r.rest); err != nil {
			return dst[:start], corrupt(Zstd, "%v", err)
		}
	}
	if cap(dst)-len(dst) < zstdPiece/4 {
		dst = grow(dst, zstdPiece)
	}
	for {
		n, err := z.stream.Read(dst[len(dst):min(cap(dst), len(dst)+zstdPiece)])
		z.given += int64(n)
		dst = dst[:len(dst)+n]
		switch {
		case n > 0:
			// An error shows again with the next call.
			return dst, nil
		case err == io.EOF:
			return dst, io.EOF
		case err == nil:
			return dst, corrupt(Zstd, "no progress")
		case z.large || !errors.Is(err, zstd.ErrDecoderSizeExceeded) && !errors.Is(err, zstd.ErrWindowSizeExceeded):
			return dst, corrupt(Zstd, "%v", err)
		}
		// A frame with a large window: begin again with a decoder for that, and skip what was given out.
		zstdLarge.Lock()
		z.large = true
		z.stream = newZstdStream(zstdMaxWindow)
		if err := z.restart(r.rest); err != nil {
			return dst, corrupt(Zstd, "%v", err)
		}
		if _, err := io.CopyN(io.Discard, z.stream, z.given); err != nil {
			return dst, corrupt(Zstd, "%v", err)
		}
	}
}

func (z *zstdReader) restart(src []byte) error {
	z.src.Reset(src)
	return z.stream.Reset(&z.src)
}

// zstdWriters has a pool for each speed of the encoder; Kafka's 22 levels and the negative ones map to these.
var zstdWriters [5]sync.Pool

func zstdCompress(dst []byte, level int, src []byte) []byte {
	speed := zstd.EncoderLevelFromZstd(level)
	pool := &zstdWriters[speed]
	z, _ := pool.Get().(*zstd.Encoder)
	if z == nil {
		z, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(speed),
			zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true),
			zstd.WithWindowSize(2<<20), zstd.WithLowerEncoderMem(true))
	}
	dst = z.EncodeAll(src, dst)
	pool.Put(z)
	return dst
}
