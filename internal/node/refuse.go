package node

import (
	"fmt"

	"github.com/highwater/highwater/internal/config"
)

// refuse holds a configuration, valid as it may be, against what this program serves. What would be less safe than it was
// asked for, were it passed over, is refused.
func refuse(c *config.Broker) error {
	if v := c.Value("authorizer.class.name"); v.Str != "" {
		return &StartError{
			Class: config.ConfigException,
			Text:  fmt.Sprintf("Invalid value %s for configuration authorizer.class.name: this version has no authorizer", v.Str),
			Hint:  "Remove authorizer.class.name: the listeners then serve everybody who reaches them.",
		}
	}
	for _, e := range c.Listeners {
		if e.Protocol != "PLAINTEXT" {
			return &StartError{
				Class: config.ConfigException,
				Text:  fmt.Sprintf("Invalid value %s for configuration listeners: the listener has the security protocol %s, which this version does not serve", e, e.Protocol),
				Hint:  fmt.Sprintf("Give %s the protocol PLAINTEXT in listener.security.protocol.map, or take it out of listeners.", e.Listener),
			}
		}
	}
	return nil
}
