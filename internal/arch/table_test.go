package arch

// class is how much of the world a package may see.
type class string

const (
	pure          class = "P" // no I/O, goroutine, lock, clock or global random
	deterministic class = "D" // the disk through an injected vfs.FS, a mutex; no goroutine, no clock
	live          class = "L" // goroutines, sockets, timers, the OS
	tool          class = "T" // a program or a test's helper that is no part of the node
)

// row is one package below the module's root: its class and which packages it may import. "a < b" is transitive: who may
// import a may import what a may, as far as the classes allow (no P imports a D or an L, no D an L). A name that ends in /...
// means a package and all below it.
type row struct {
	path  string
	class class
	from  string // space-separated
}

// ground is what every package may import, itself in the order given.
const ground = "internal/invariant internal/kafka internal/kerr internal/codec internal/config internal/vfs"

// packages is the tree. A package that does not exist yet may stand here; one that exists must.
var packages = []row{
	{"internal/invariant", pure, ""},
	{"internal/kafka", pure, "internal/invariant"},
	{"internal/kerr", pure, "internal/kafka"},
	{"internal/codec", deterministic, "internal/invariant"},
	{"internal/config", pure, "internal/kerr"},
	{"internal/vfs", deterministic, "internal/invariant"},
	{"internal/vfs/osfs", live, ""},

	{"internal/schema", pure, ""},
	{"internal/rpc", deterministic, ""},
	{"internal/record", deterministic, "internal/schema"},
	{"internal/peer", live, "internal/rpc internal/schema"},

	{"internal/storage", deterministic, "internal/record"},
	{"internal/replication", pure, "internal/schema"},
	{"internal/raft", pure, "internal/schema"},
	{"internal/metadata", pure, "internal/schema"},
	{"internal/lifecycle", pure, "internal/schema"},
	{"internal/sasl", pure, "internal/schema"},
	{"internal/controller", pure, "internal/metadata"},
	{"internal/auth", pure, "internal/metadata"},
	{"internal/quota", pure, "internal/metadata"},
	{"internal/coordinator", pure, "internal/metadata"},
	{"internal/coordinator/group", pure, "internal/coordinator"},
	{"internal/coordinator/txn", pure, "internal/coordinator"},
	{"internal/coordinator/share", pure, "internal/coordinator"},
	{"internal/mirror", pure, "internal/metadata"},
	{"internal/replica", deterministic, "internal/storage internal/replication internal/metadata"},
	{"internal/api", deterministic, "internal/replica internal/metadata internal/auth internal/quota internal/rpc"},

	{"internal/storageloop", live, "internal/replica internal/storage"},
	{"internal/fetchloop", live, "internal/replica internal/peer"},
	{"internal/raftloop", live, "internal/raft internal/storage internal/peer"},
	{"internal/controllerloop", live, "internal/controller"},
	{"internal/uplink", live, "internal/lifecycle internal/peer"},
	{"internal/coordloop", live, "internal/coordinator/... internal/replica"},
	{"internal/mirrorloop", live, "internal/mirror"},
	{"internal/server", live, "internal/rpc internal/sasl internal/auth"},
	{"internal/ops", live, ""},
	{"internal/ops/console", live, ""},

	{"internal/node", live, "internal/api internal/storageloop internal/fetchloop internal/raftloop internal/controllerloop internal/uplink " +
		"internal/coordloop internal/mirrorloop internal/server internal/ops/... internal/vfs/osfs internal/sasl"},
	{"internal/cli", live, "internal/node"},
	{"cmd/highwater", live, "internal/cli"},
	// The simulator runs the P and D packages; it sees several loops' Apply, never node.
	{"internal/sim", tool, "internal/api internal/controller internal/raft internal/lifecycle internal/coordinator/... internal/mirror " +
		"internal/storageloop internal/fetchloop internal/raftloop internal/controllerloop internal/uplink internal/coordloop internal/mirrorloop"},

	{"internal/fixture", tool, ""},
	{"internal/arch", tool, ""},
	{"internal/vfs/vfstest", tool, ""},
	{"internal/schema/gen", tool, ""},
	{"internal/config/gen", tool, ""},
	{"internal/cli/gentables", tool, ""},
	{"internal/metadata/gen", tool, ""},
	// Black-box tests know the node only from outside.
	{"test/peer", tool, ""},
	{"test/golden", tool, "test/peer internal/fixture"},
	{"test/compat", tool, "test/peer internal/fixture"},
	{"test/chaos", tool, "test/peer internal/fixture"},
	{"test/takeover", tool, "test/peer internal/fixture"},
	{"test/upgrade", tool, "test/peer internal/fixture"},
	{"test/perf", tool, "test/peer"},
	{"test/perf/null", tool, ""},
}

// seesWorld lists the packages that may import os, net, syscall and golang.org/x/sys. T packages may too.
var seesWorld = []string{"internal/vfs/osfs", "internal/server", "internal/peer", "internal/ops", "internal/ops/console", "internal/cli", "cmd/highwater"}

// outside says which dependencies only some packages may import; every other one is open to all.
var outside = map[string][]string{
	"github.com/twmb/franz-go/pkg/kgo":        {"internal/cli", "internal/mirrorloop"},
	"github.com/twmb/franz-go/pkg/kadm":       {"internal/cli", "internal/mirrorloop"},
	"github.com/prometheus/client_golang":     {"internal/ops"},
	"github.com/tidwall/btree":                {"internal/metadata", "internal/auth", "internal/controller", "internal/coordinator"},
	"github.com/HdrHistogram/hdrhistogram-go": {"internal/cli", "internal/ops"},
	"github.com/twmb/franz-go/pkg/kerr":       {"internal/kerr", "internal/cli", "internal/mirrorloop"},
	"github.com/anishathalye/porcupine":       {"internal/sim"},
	"github.com/klauspost/compress":           {"internal/codec"},
	"github.com/pierrec/lz4/v4":               {"internal/codec"},
}

// platformFiles may end in _linux.go and the like: there the platform is meant.
var platformFiles = []string{"internal/vfs/osfs", "internal/server", "internal/ops", "internal/cli", "test/peer", "test/perf", "test/perf/null"}
