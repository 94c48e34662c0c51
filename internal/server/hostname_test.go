package server

import (
	"net"
	"testing"
)

// The name is never empty and, if it is an address, a whole one.
func TestHostName(t *testing.T) {
	name, err := HostName(t.Context())
	if err != nil || name == "" {
		t.Fatalf("%q %v", name, err)
	}
	if addrs, err := net.LookupHost(name); err != nil || len(addrs) == 0 {
		t.Logf("%s does not resolve here: %v", name, err) // a machine without a resolver
	}
}
