package node

import (
	"errors"

	"github.com/highwater/highwater/internal/config"
)

// refuse holds a configuration, valid as it may be, against what this program serves.
func refuse(c *config.Broker) error {
	err := c.Refuse()
	var r *config.RefuseError
	if errors.As(err, &r) {
		return &StartError{Class: config.ConfigException, Text: r.Text, Hint: r.Hint, Err: err}
	}
	return err
}
