package takeover

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/test/peer"
)

// directory is an unpacked copy of one of Kafka's data directories: below root one home for each node, named by its id.
type directory struct {
	root  string
	homes map[int]*home
}

// home is one node's part of a directory.
type home struct {
	path       string
	id         int
	properties string // as the archive has them, with paths and ports filled in
	broker     int    // ports; 0 if the node has no such role
	controller int
	node       peer.Node // the one that was started last
}

// ports is a range below those that the kernel gives to outgoing connections: a node must find its port free again when it is
// started once more.
const firstPort, lastPort = 12000, 30000

var portOf = regexp.MustCompile(`127\.0\.0\.1:(\d+)`)

// freshPort finds a port that nobody listens on.
func freshPort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		p := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			continue
		}
		l.Close()
		return p
	}
	t.Fatal("no free port")
	return 0
}

// unpack makes a copy of testdata/data/NAME.tar.gz. keepPorts leaves the ports as they are: they are inside the metadata log where
// the voters are dynamic.
func unpack(t *testing.T, name string, keepPorts bool) *directory {
	t.Helper()
	d := &directory{root: t.TempDir(), homes: map[int]*home{}}
	extract(t, fixture.Path("data/"+name+".tar.gz"), d.root)
	moved := map[string]string{}
	files, err := filepath.Glob(filepath.Join(d.root, "*", "server.properties"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no server.properties (%v)", name, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(b), "{DIR}", d.root)
		if !keepPorts {
			text = portOf.ReplaceAllStringFunc(text, func(old string) string {
				if moved[old] == "" {
					moved[old] = fmt.Sprintf("127.0.0.1:%d", freshPort(t))
				}
				return moved[old]
			})
		}
		h := newHome(t, filepath.Dir(f), text)
		d.homes[h.id] = h
	}
	return d
}

// newHome is a node's part by its properties.
func newHome(t *testing.T, path, properties string) *home {
	t.Helper()
	h := &home{path: path, properties: properties}
	id := property(properties, "node.id")
	if id == "" {
		id = property(properties, "broker.id")
	}
	var err error
	if h.id, err = strconv.Atoi(id); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for l := range strings.SplitSeq(property(properties, "listeners"), ",") {
		_, port, _ := strings.Cut(l, "127.0.0.1:")
		switch n, err := strconv.Atoi(port); {
		case err != nil:
			t.Fatalf("%s: listener %q", path, l)
		case strings.HasPrefix(l, "PLAINTEXT:"):
			h.broker = n
		case strings.HasPrefix(l, "CONTROLLER:"):
			h.controller = n
		}
	}
	return h
}

// format makes an empty directory with Kafka's tool, of one node.
func format(t *testing.T, more ...string) *directory {
	t.Helper()
	d := &directory{root: t.TempDir(), homes: map[int]*home{}}
	n, err := peer.Create(peer.Options{Software: peer.Kafka, Home: filepath.Join(d.root, "1"), Properties: more})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(n.Config())
	if err != nil {
		t.Fatal(err)
	}
	moved := strings.NewReplacer(n.Addr(), fmt.Sprintf("127.0.0.1:%d", freshPort(t)), n.Controller(), fmt.Sprintf("127.0.0.1:%d", freshPort(t)))
	h := newHome(t, n.Home(), moved.Replace(string(b)))
	d.homes[h.id] = h
	return d
}

// extract unpacks a tar.gz with the modes that it names.
func extract(t *testing.T, archive, to string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
		if !filepath.IsLocal(h.Name) {
			t.Fatalf("%s: path %q", archive, h.Name)
		}
		path := filepath.Join(to, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			var w *os.File
			if w, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(h.Mode).Perm()); err == nil {
				_, err = io.Copy(w, r)
				err = errors.Join(err, w.Close())
			}
		}
		if err != nil {
			t.Fatalf("unpack %s: %v", h.Name, err)
		}
	}
}

// property is the value of a key in a properties file's text, or nothing.
func property(text, key string) string {
	for l := range strings.SplitSeq(text, "\n") {
		if v, ok := strings.CutPrefix(l, key+"="); ok {
			return v
		}
	}
	return ""
}

// plain is what of a properties file Highwater can do: without the SASL listener and the authorizer that it does not have yet.
func plain(text string) string {
	var out []string
	for l := range strings.SplitSeq(text, "\n") {
		key, value, _ := strings.Cut(l, "=")
		switch {
		case key == "authorizer.class.name", key == "super.users", strings.Contains(key, "sasl."), strings.HasPrefix(key, "delegation.token."):
			continue
		case key == "listeners", key == "advertised.listeners", key == "listener.security.protocol.map":
			var keep []string
			for part := range strings.SplitSeq(value, ",") {
				if !strings.HasPrefix(part, "SASL:") {
					keep = append(keep, part)
				}
			}
			l = key + "=" + strings.Join(keep, ",")
		}
		out = append(out, l)
	}
	return strings.Join(out, "\n")
}

// start runs the node of a home, with the version of Kafka given or Highwater's binary, and with more properties.
func (h *home) start(t *testing.T, s peer.Software, version string, more ...string) peer.Node {
	t.Helper()
	h.open(t, s, version, more...)
	n := h.node
	t.Cleanup(func() {
		if t.Failed() && h.node == n {
			t.Logf("%s printed at last:\n%s", n.Software(), tail(n.Output(), 3000))
		}
	})
	took, err := h.node.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s %s node %d serves after %v", s, version, h.id, took.Round(1e6))
	return h.node
}

// open is start without running anything.
func (h *home) open(t *testing.T, s peer.Software, version string, more ...string) {
	t.Helper()
	text := h.properties
	if s == peer.Highwater {
		text = plain(text)
	}
	text += "\n" + strings.Join(more, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(h.path, "server.properties"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h.node = peer.Open(t, peer.Existing{Software: s, Version: version, ID: h.id, Home: h.path, Broker: h.broker, Controller: h.controller})
}

// start runs all nodes of a directory, controllers first, and gives the one that clients talk to.
func (d *directory) start(t *testing.T, s peer.Software, version string, more ...string) peer.Node {
	t.Helper()
	var broker peer.Node
	for _, h := range d.ordered() {
		if n := h.start(t, s, version, more...); h.broker > 0 {
			broker = n
		}
	}
	return broker
}

// ordered are the homes, controllers before brokers.
func (d *directory) ordered() []*home {
	return slices.SortedFunc(maps.Values(d.homes), func(a, b *home) int { return cmp.Or(cmp.Compare(a.broker, b.broker), cmp.Compare(a.id, b.id)) })
}

// stop ends all nodes by TERM, brokers first.
func (d *directory) stop(t *testing.T) {
	t.Helper()
	for _, h := range slices.Backward(d.ordered()) {
		h.stop(t)
	}
}

// kill ends all nodes by KILL.
func (d *directory) kill(t *testing.T) {
	t.Helper()
	for _, h := range d.homes {
		if err := h.node.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// stop ends the node by TERM, and Highwater by two: the second must not break off what the first began.
func (h *home) stop(t *testing.T) {
	t.Helper()
	if h.node.Software() == peer.Highwater {
		if err := syscall.Kill(h.node.PID(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.node.Stop(); err != nil {
		t.Fatal(err)
	}
}

// logDirs are the node's log directories.
func (h *home) logDirs() []string {
	return strings.Split(property(h.properties, "log.dirs"), ",")
}

// logDirs are those of all nodes.
func (d *directory) logDirs() []string {
	var out []string
	for _, h := range d.ordered() {
		out = append(out, h.logDirs()...)
	}
	return out
}

// files is every file below the log directories, by its path below the directory's root.
func (d *directory) files(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, l := range d.logDirs() {
		err := filepath.WalkDir(l, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(d.root, path)
			out[name] = b
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// replaceRoot gives a text that names the directory the archive's {DIR}.
func (d *directory) replaceRoot(b []byte) []byte {
	return bytes.ReplaceAll(b, []byte(d.root), []byte("{DIR}"))
}
