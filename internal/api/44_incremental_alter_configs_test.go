package api

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
)

// What a broker says to a change of its own, or the cluster's, dynamic configs is what Kafka's said, recorded in
// testdata/dynamic-configs.tsv (a validate-only request each).
func TestDynamicConfigsAreJudgedAsKafkaJudgesThem(t *testing.T) {
	text, err := os.ReadFile("testdata/dynamic-configs.tsv")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.NewBroker(config.NewProperties(map[string]string{
		"process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@127.0.0.1:9093",
		"listeners":            "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
		"advertised.listeners": "PLAINTEXT://127.0.0.1:9092", "controller.listener.names": "CONTROLLER",
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT", "log.dirs": "/data",
		"log.retention.ms": "333", "log.retention.hours": "24", "min.insync.replicas": "1",
	}))
	if err != nil {
		t.Fatal(err)
	}
	b := &Broker{ID: 1, Image: metadata.Empty, Config: func() *config.Broker { return c }}
	// We refuse what we could not serve.
	ours := map[string]string{"SSL://127.0.0.1:27391": "has the security protocol SSL, which this version does not serve"}
	n := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		req := kmsg.NewIncrementalAlterConfigsRequestResource()
		req.ResourceType, req.ResourceName = kmsg.ConfigResourceTypeBroker, f[1]
		for _, op := range strings.Split(f[2], "|") {
			key, value, set := strings.Cut(op[2:], "=")
			change := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			change.Name, change.Op = key, kmsg.IncrementalAlterConfigOp(strings.IndexByte("sdax", op[0]))
			if set {
				change.Value = &value
			}
			req.Configs = append(req.Configs, change)
		}
		_, err := b.checkIncremental(&req, false, true)
		code, message := strconv.Itoa(int(kerr.Code(err))), "-"
		if err != nil {
			message = *kerr.Message(err)
		}
		want := f[4]
		for ask, text := range ours {
			if strings.Contains(f[2], ask) && code == "42" && strings.Contains(message, text) {
				code, message = f[3], want
			}
		}
		// The order of a set of names is Java's.
		if strings.HasPrefix(want, "Cannot update these configs dynamically: [node.id, log.dirs]") {
			want = "Cannot update these configs dynamically: [log.dirs, node.id]"
		}
		if code != f[3] || message != want {
			t.Errorf("%s %s:\n got %s %s\nwant %s %s", f[1], f[2], code, message, f[3], want)
		}
		n++
	}
	if n < 140 {
		t.Errorf("only %d cases", n)
	}
}
