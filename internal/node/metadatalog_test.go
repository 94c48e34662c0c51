package node_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/node"
	"github.com/highwater/highwater/internal/vfs"
)

// TestMetadataLost: a metadata log of which nothing is left is not begun anew in silence. Whoever is the only voter has lost all; one of
// several may fetch it, which the way out says, and then does.
func TestMetadataLost(t *testing.T) {
	for _, test := range []struct {
		name, voters, checkpoint, partition string
		says, hint                          string // "" if it is no such start
	}{
		{"new, alone", "", "", "", "", ""},
		{"synced, alone", "", "0\n1\n__cluster_metadata 0 40\n", "", "m/one/__cluster_metadata-0 has no record, but everything below offset 40 was synced there", "no other controller"},
		{"partitions, alone", "", "", "t-0", "m/one/__cluster_metadata-0 has no record, but there are partitions, such as m/two/t-0", "no other controller"},
		{"strays, alone", "", "", "t-0.0123456789abcdef0123456789abcdef-stray", "", ""},
		{"synced, one of three", ",2@127.0.0.1:1,3@127.0.0.1:1", "0\n1\n__cluster_metadata 0 40\n", "", "everything below offset 40 was synced there", "take the line of __cluster_metadata out of m/one/recovery-point-offset-checkpoint"},
		{"partitions, a broker alone", "", "", "t-0", "", ""}, // the metadata log's disk may have been replaced
	} {
		c, wait := configure(t, "m", "log.dirs=m/one,m/two"), 20*time.Second
		if test.voters != "" {
			c = configure(t, "m", "log.dirs=m/one,m/two", "controller.quorum.voters="+c.Text("controller.quorum.voters")+test.voters)
		}
		if strings.Contains(test.name, "a broker") {
			own, _, _ := strings.Cut(c.Text("listeners"), ",")
			c = configure(t, "m", "log.dirs=m/one,m/two", "process.roles=broker", "listeners="+own, "controller.quorum.voters=2@127.0.0.1:1")
			wait = 200 * time.Millisecond // for a quorum that never comes
		}
		fsys := vfs.NewMem()
		formatOn(t, fsys, c)
		if test.checkpoint != "" {
			if err := vfs.WriteFileAtomic(fsys, "m/one", "recovery-point-offset-checkpoint", []byte(test.checkpoint)); err != nil {
				t.Fatal(err)
			}
		}
		if test.partition != "" {
			if err := fsys.MkdirAll("m/two/" + test.partition); err != nil {
				t.Fatal(err)
			}
		}
		err := tryStart(t, c, fsys, wait)
		var s *node.StartError
		if test.says == "" {
			if errors.As(err, &s) {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		if !errors.As(err, &s) || !strings.Contains(s.Text, test.says) || !strings.Contains(s.Hint, test.hint) {
			t.Errorf("%s: %v, %+v", test.name, err, s)
		}
		if _, err := fsys.Stat("m/one/__cluster_metadata-0/00000000000000000000.log"); err == nil {
			t.Errorf("%s: a log was made", test.name)
		}
	}
}

// tryStart starts a node and stops it again; without a quorum the start ends soon.
func tryStart(t *testing.T, c *config.Broker, fsys vfs.FS, wait time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	n, err := node.Start(ctx, node.Options{Config: c, FS: fsys, OpenFiles: 100, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		stop(t, n)
	}
	return err
}
