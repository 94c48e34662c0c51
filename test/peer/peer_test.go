package peer

import (
	"strings"
	"testing"
)

// TestKafka runs one real Kafka node through a whole life and asks Kafka's own tools about it, so that the tests that are
// built on this package can trust it.
func TestKafka(t *testing.T) {
	n := Started(t, Options{Software: Kafka})
	tools, err := StartTools()
	if err != nil {
		t.Fatal(err)
	}
	defer tools.Close()
	if r := tools.Must(t, "topics", "", "--bootstrap-server", n.Addr(), "--create", "--topic", "life"); r.Exit != 0 || r.Stdout != "Created topic life.\n" {
		t.Fatalf("create topic: %+v", r)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if n.PID() != 0 || Answers(n.Addr()) {
		t.Fatal("the node still runs after Stop")
	}
	if _, err := n.Start(); err != nil {
		t.Fatal(err)
	}
	if r := tools.Must(t, "topics", "", "--bootstrap-server", n.Addr(), "--list"); strings.TrimSpace(r.Stdout) != "life" {
		t.Fatalf("list topics after a restart: %+v", r)
	}
	if r := tools.Must(t, "topics", "", "--nonsense"); r.Exit != 1 || !strings.Contains(r.Stderr, "nonsense") {
		t.Fatalf("a wrong option: %+v", r)
	}
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	if Answers(n.Addr()) {
		t.Fatal("the node still answers after Kill")
	}
}
