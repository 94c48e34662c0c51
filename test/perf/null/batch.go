package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// valid checks a batch: size, CRC and, if it is compressed or -walk is set, every record.
func valid(batch []byte) bool {
	be := binary.BigEndian
	if len(batch) < 61 || int(be.Uint32(batch[8:]))+12 != len(batch) || crc32.Checksum(batch[21:], castagnoli) != be.Uint32(batch[17:]) {
		return false
	}
	count := int(be.Uint32(batch[57:]))
	if batch[22]&7 == 0 {
		return !*walk || records(batch[61:], count)
	}
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	body, ok := d.unpack(batch[61:], batch[22]&7)
	return ok && records(body, count)
}

type decoder struct {
	zstd *zstd.Decoder
	lz4  *lz4.Reader
	in   bytes.Reader
	buf  []byte
}

var decoders = sync.Pool{New: func() any {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return &decoder{zstd: z, lz4: lz4.NewReader(nil), buf: make([]byte, 0, 2<<20)}
}}

func (d *decoder) unpack(b []byte, codec byte) ([]byte, bool) {
	switch codec {
	case 3:
		d.in.Reset(b)
		d.lz4.Reset(&d.in)
		n, err := io.ReadFull(d.lz4, d.buf[:cap(d.buf)])
		return d.buf[:n], err == io.ErrUnexpectedEOF || err == io.EOF
	case 4:
		out, err := d.zstd.DecodeAll(b, d.buf[:0])
		return out, err == nil
	}
	return nil, false
}

// records walks all records: lengths, offset deltas, keys, values, headers' count.
func records(b []byte, count int) bool {
	for i := range count {
		size, k := binary.Varint(b)
		if k <= 0 || size < 1 || int(size) > len(b)-k {
			return false
		}
		r := b[k+1 : k+int(size)]
		b = b[k+int(size):]
		next := func() (v int64) {
			v, k := binary.Varint(r)
			if k <= 0 {
				return -99
			}
			r = r[k:]
			return v
		}
		next() // timestamp
		if next() != int64(i) {
			return false
		}
		for range 2 {
			switch n := next(); {
			case n < -1 || n > int64(len(r)):
				return false
			case n > 0:
				r = r[n:]
			}
		}
		if next() < 0 {
			return false
		}
	}
	return len(b) == 0
}
