package controller

import (
	"slices"
	"strings"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
)

// collisions finds the topics whose metrics would have the same name as a new topic's: "." becomes "_" there.
type collisions struct {
	names map[string][]string // by the name with underscores; each list sorted
}

func (n *collisions) begin(base *metadata.Image) {
	n.names = make(map[string][]string)
	for t := range base.Topics() {
		n.add(t.Name)
	}
}

func collides(name string) bool { return strings.ContainsAny(name, "._") }

func (n *collisions) add(name string) {
	if !collides(name) {
		return
	}
	key := kafka.CollisionName(name)
	list := n.names[key]
	if i, found := slices.BinarySearch(list, name); !found {
		n.names[key] = slices.Insert(list, i, name)
	}
}

func (n *collisions) remove(t *metadata.Topic) {
	if t == nil || !collides(t.Name) {
		return
	}
	key := kafka.CollisionName(t.Name)
	list := n.names[key]
	if i, found := slices.BinarySearch(list, t.Name); found {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(n.names, key)
	} else {
		n.names[key] = list
	}
}

// collision is a topic that a new one would collide with.
func (n *collisions) collision(name string) (string, bool) {
	if !collides(name) {
		return "", false
	}
	list := n.names[kafka.CollisionName(name)]
	if len(list) == 0 {
		return "", false
	}
	return list[0], true
}
