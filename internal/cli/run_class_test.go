package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
)

// Classes lead to tools, old names of theirs too; what is no tool here is said so, and nothing that is none is taken for one.
func TestRunClass(t *testing.T) {
	f := func(wantStatus int, wantOut, wantErr string, args ...string) {
		t.Helper()
		status, out, errs := call(t, runClass, args...)
		if status != wantStatus || !strings.Contains(out, wantOut) || !strings.Contains(errs, wantErr) || (wantErr == "" && errs != "") {
			t.Errorf("%q: %d\n%s\n%s", args, status, out, errs)
		}
	}
	f(0, KafkaVersion, "", "kafka.Kafka", "--version")
	f(0, KafkaVersion, "", "-name", "x", "-loggc", "-Xmx1G", "-Dlog4j.configuration=file:x", "-cp", "a.jar", "kafka.admin.TopicCommand", "--version")
	f(0, "metadata.version=33 (4.4-IV2)", "", "kafka.tools.StorageTool", "version-mapping")
	f(1, "USAGE: kafka-test.sh [-daemon] [-name servicename] [-loggc] classname [opts]", "")
	f(1, "", "Caused by: java.lang.ClassNotFoundException: no.such.Class", "no.such.Class")
	f(1, "", "Could not find or load main class topics", "topics")
	f(1, "", "needs a Java virtual machine", "org.apache.kafka.connect.cli.ConnectDistributed", "worker.properties")
	f(1, "", "(kafka-consumer-groups) is not part of this version", "kafka.admin.ConsumerGroupCommand", "--list")
	f(1, "", "--bootstrap-server must be specified", "org.apache.kafka.tools.TopicCommand", "--list") // a tool's own words
}

// Every class that a script of Kafka 4.4 runs is known.
func TestRunClassKnowsEveryScript(t *testing.T) {
	text := string(readTree(t, "test/peer/kafka"))
	n := 0
	for _, l := range strings.Split(text, "\n") {
		tool, rest, ok := strings.Cut(strings.TrimSpace(l), ")")
		_, class, both := strings.Cut(rest, "class=")
		if !ok || !both || strings.ContainsAny(tool, "* ;[") || tool == "zookeeper-start" {
			continue
		}
		class = strings.NewReplacer("$t", "org.apache.kafka.tools").Replace(strings.FieldsFunc(class, func(r rune) bool { return r == ' ' || r == ';' })[0])
		n++
		if strings.HasPrefix(tool, "connect-") {
			continue // Connect's workers run other people's Java code
		}
		if got := toolClasses[class]; got != tool {
			t.Errorf("%s is %q, want %s", class, got, tool)
		}
	}
	if n < 35 {
		t.Errorf("only %d scripts were found", n)
	}
}

func readTree(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(fixture.Path("../" + name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
