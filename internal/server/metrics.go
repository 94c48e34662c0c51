package server

import (
	"sync/atomic"

	"github.com/highwater/highwater/internal/rpc"
)

// Metrics are the plain counters of one listener. Whoever shows them reads them; nothing here knows of names.
type Metrics struct {
	Connections      atomic.Int64 // open now
	Accepted         atomic.Int64 // connections ever taken
	Rejected         atomic.Int64 // closed at once: too many from one address
	ExpiredIdle      atomic.Int64 // closed after IdleTime
	Refused          atomic.Int64 // closed for a frame or request that cannot be served
	BytesIn          atomic.Int64 // of the network, lengths and headers included
	BytesOut         atomic.Int64
	Requests         [rpc.MaxKey + 1]atomic.Int64 // by API key
	Flushes          atomic.Int64                 // writes of gathered answers; Requests/Flushes tells how well they gather
	FileBytesOut     atomic.Int64                 // of BytesOut, what was sent from files without being copied
	FailedHandshakes atomic.Int64                 // Wrap or the gate refused
}
