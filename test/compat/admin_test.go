package compat

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/test/peer"
)

// TestAdmin sends what an administrator asks, right or wrong: quotas, SCRAM credentials, features, configs of groups, client
// metrics and loggers, partitions; and compares the answers with Kafka's.
func TestAdmin(t *testing.T) {
	n := peer.Started(t, peer.Options{Software: software()})
	if !*record {
		var meant map[string]string
		if software() == peer.Highwater {
			meant = fixture.AdminDeviations
		}
		fixture.JudgeAdmin(t, n.Addr(), n.Controller(), meant)
		return
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	e := json.NewEncoder(z)
	e.SetEscapeHTML(false)
	var asked fixture.AdminAnswer
	var since time.Time
	fixture.AdminAnswers(t, n.Addr(), n.Controller(), func(a fixture.AdminAnswer, changes bool) bool {
		if a.API != asked.API || a.Name != asked.Name || a.Version != asked.Version {
			asked, since = a, time.Now()
		}
		if !changes && time.Since(since) < 300*time.Millisecond {
			return true // a broker takes in metadata a little after the controller has answered
		}
		if err := e.Encode(a); err != nil {
			t.Fatal(err)
		}
		return false
	})
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fixture.Path("admin/answers.jsonl.gz"), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
