package node

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/peer"
	"github.com/highwater/highwater/internal/raft"
)

// peers sends requests to controllers, by package peer.
type peers struct {
	client   *peer.Client
	protocol peer.Protocol
}

// Send implements raftloop.Peer. A request that says something which older versions can't goes in no older one.
func (p *peers) Send(to raft.Node, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error)) {
	versions := peer.Range{Min: raft.MinVersion(req), Max: req.MaxVersion()}
	p.client.SendVersion(peer.Endpoint{Host: to.Host, Port: to.Port, Protocol: p.protocol}, req, versions, timeout, done)
}

// peers is made when it is first needed: by the quorum.
func (n *Node) peers() *peers {
	if n.controllers == nil {
		n.controllers = &peers{client: peer.New(peer.Config{
			ClientID: n.idText(), ConnectTimeout: n.static.Millis("socket.connection.setup.timeout.ms"),
		}, n.log)}
		if name := n.controllerListener(); name != "" {
			n.controllers.protocol = peer.Protocol(protocolNumbers[n.static.Protocols[name]])
		}
	}
	return n.controllers
}

func (n *Node) closePeers() { n.controllers.client.Close() }
