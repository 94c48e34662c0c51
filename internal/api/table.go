package api

import (
	"fmt"

	"github.com/highwater/highwater/internal/rpc"
	"github.com/highwater/highwater/internal/schema"
)

// Listener is a kind of listener: it decides which APIs are served.
type Listener int

// The kinds of listener.
const (
	BrokerListener Listener = iota
	ControllerListener
)

func (l Listener) String() string {
	if l == ControllerListener {
		return "controller"
	}
	return "broker"
}

// serves tells whether Kafka serves an API on this kind of listener.
func (l Listener) serves(a *schema.API) bool {
	if l == ControllerListener {
		return a.Controller
	}
	return a.Broker
}

// Route gives an API its handler.
type Route struct {
	Key    int16
	Handle rpc.Handler
}

// NewTable makes the table of one kind of listener. Only what has a route is served and advertised, in the versions that
// Kafka 4.4 serves; unstable opens the newest ones too (unstable.api.versions.enable). A route for an API that Kafka does
// not serve on such a listener, or a second one for a key, is a mistake in the program and panics.
func NewTable(kind Listener, unstable bool, routes ...Route) *rpc.Table {
	t := new(rpc.Table)
	for _, r := range routes {
		a := schema.LookupAPI(r.Key)
		switch {
		case a == nil || !kind.serves(a):
			panic(fmt.Sprintf("API %d is not served by a %s's listener", r.Key, kind))
		case r.Handle == nil:
			panic(fmt.Sprintf("API %s has no handler", a.Name))
		case t.APIs[r.Key] != nil:
			panic(fmt.Sprintf("API %s has two handlers", a.Name))
		}
		highest := a.Max
		if unstable {
			highest = a.MaxUnstable
		}
		t.APIs[r.Key] = &rpc.API{
			Key: a.Key, Name: a.Name, Min: a.Min, Max: highest, Advertised: a.Advertised, Flexible: a.Flexible,
			Handle: r.Handle,
		}
	}
	return t
}
