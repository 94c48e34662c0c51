package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/test/peer"
)

// beside runs a trial on a node of its own with these properties, of the same software as r, and ends it.
func beside(r *rival, o *options, name string, properties []string, trial func(n *rival) error) error {
	home := filepath.Join(o.dir, strings.ReplaceAll(name, " ", "-")+"-"+r.name)
	n, err := startNode(peer.Software(r.name), home, properties...)
	if err != nil {
		return err
	}
	err = trial(n)
	return errors.Join(err, n.node.Kill(), os.RemoveAll(home))
}

// makeTopic makes a topic of one partition with these configs, and waits for its leader.
func makeTopic(addr, topic string, configs ...string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	create := peer.CreateTopics(peer.NewTopic(topic, 1, 1, configs...))
	create.Version = 4
	a, err := c.call(create)
	if err != nil {
		return err
	}
	if code := a.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		return fmt.Errorf("create %s: error code %d", topic, code)
	}
	_, err = ready(addr, topic, 1)
	return err
}

// alterTopic sets a config of a topic.
func alterTopic(addr, topic, key, value string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	q := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: key, Value: &value}}
	q.Resources = append(q.Resources, r)
	a, err := c.call(q)
	if err != nil {
		return err
	}
	if code := a.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode; code != 0 {
		return fmt.Errorf("alter %s of %s: error code %d", key, topic, code)
	}
	return nil
}

// taken is the error of an answer to produceFrame.
func taken(answer []byte, topic string) error {
	if code := int16(binary.BigEndian.Uint16(answer[4+4+2+len(topic)+4+4:])); code != 0 {
		return fmt.Errorf("produce to %s: error code %d", topic, code)
	}
	return nil
}

// segments are the base offsets of the segments of partition 0 of a topic, ascending, and the sizes of their .log files.
func segments(n *rival, topic string) (bases, sizes []int64, err error) {
	logs, err := filepath.Glob(filepath.Join(n.node.Data(), topic+"-0", "*.log"))
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(logs) // names sort as offsets do
	for _, name := range logs {
		base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(name), ".log"), 10, 64)
		if err != nil {
			return nil, nil, err
		}
		st, err := os.Stat(name)
		if err != nil {
			return nil, nil, err
		}
		bases, sizes = append(bases, base), append(sizes, st.Size())
	}
	if len(bases) == 0 {
		return nil, nil, fmt.Errorf("%s has no segments", topic)
	}
	return bases, sizes, nil
}

// poll asks every few milliseconds, for some minutes, whether something is so.
func poll(what string, so func() (bool, error)) error {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for begin := time.Now(); time.Since(begin) < 5*time.Minute; <-t.C {
		if ok, err := so(); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: not within five minutes", what)
}
