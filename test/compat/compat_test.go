package compat

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/highwater/highwater/test/peer"
)

var (
	brokerFlag = flag.String("broker", "highwater", "who is judged: highwater or kafka")
	record     = flag.Bool("record", false, "write to testdata what the broker does; only with -broker=kafka")
)

func software() peer.Software { return peer.Software(*brokerFlag) }

// keep lets records of any age stay: those of the tests bear times that are the same in each run.
const keep = "log.retention.ms=-1"

// shared is what the tests of one run have in common: a node with a topic's worth of settings, the JVM and the Python clients.
// The node serves the client tests; those that need a node in a known state start their own.
var (
	node  = sync.OnceValues(startNode)
	tools = sync.OnceValues(func() (*peer.Tools, error) {
		return peer.StartTools(filepath.Join("java", "Client.java"), filepath.Join("java", "Compact.java"))
	})
	atEnd []func()
)

func startNode() (peer.Node, error) {
	home, err := os.MkdirTemp("", "compat-")
	if err != nil {
		return nil, err
	}
	atEnd = append(atEnd, func() { os.RemoveAll(home) })
	n, err := peer.Create(peer.Options{Software: software(), Home: home, Properties: []string{"auto.create.topics.enable=false", keep}})
	if err != nil {
		return nil, err
	}
	if _, err = n.Start(); err != nil {
		return nil, err
	}
	atEnd = append(atEnd, func() { n.Kill() })
	return n, nil
}

func TestMain(m *testing.M) {
	flag.Parse()
	if s := software(); s != peer.Kafka && s != peer.Highwater || *record && s != peer.Kafka {
		fmt.Fprintln(os.Stderr, "compat: -broker is highwater or kafka, and -record wants kafka")
		os.Exit(2)
	}
	code := m.Run()
	for i := len(atEnd) - 1; i >= 0; i-- {
		atEnd[i]()
	}
	os.Exit(code)
}

// broker is the address of the common node.
func broker(t *testing.T) string {
	t.Helper()
	n, err := node()
	if err != nil {
		t.Fatal(err)
	}
	return n.Addr()
}

func jvm(t *testing.T) *peer.Tools {
	t.Helper()
	j, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	return j
}
