package node_test

import (
	"testing"

	"github.com/highwater/highwater/internal/fixture"
)

// What an administrator asks, right or wrong, in every version: quotas, SCRAM credentials, features, configs of groups,
// client metrics and loggers, partitions. The answers are those that Kafka gave to the same requests.
func TestAdminAnswersAreKafkas(t *testing.T) {
	n := start(t, format(t))
	defer stop(t, n)
	fixture.JudgeAdmin(t, n.Addr("PLAINTEXT"), n.Addr("CONTROLLER"), fixture.AdminDeviations)
}
