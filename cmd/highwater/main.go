// Command highwater is Apache Kafka's replicated log and KRaft quorum in one binary, and every kafka-*.sh tool: it looks at
// its own name or at its first word and hands over to package cli.
package main

import (
	"os"

	"github.com/highwater/highwater/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
