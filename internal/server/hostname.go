package server

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// lookupTime bounds the questions to the resolver.
const lookupTime = 10 * time.Second

// HostName is the name under which others reach this machine, as far as it knows: what a listener without a host
// advertises. It is what Java calls the canonical host name: the name that the resolver has for the address of the
// host's own name; the address if it has none; the plain host name if that does not resolve.
func HostName(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	addrs, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil || len(addrs) == 0 {
		return name, nil
	}
	names, err := net.DefaultResolver.LookupAddr(ctx, addrs[0])
	if err != nil || len(names) == 0 {
		return addrs[0], nil
	}
	canonical := strings.TrimSuffix(names[0], ".")
	if back, err := net.DefaultResolver.LookupHost(ctx, canonical); err != nil || !slices.Contains(back, addrs[0]) {
		return addrs[0], nil
	}
	return canonical, nil
}
