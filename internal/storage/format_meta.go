package storage

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/vfs"
)

// meta.properties, in every log directory, is a Java properties file. Version 1 (KRaft) has node.id, cluster.id and, since
// Kafka 3.7, directory.id; version 0 (ZooKeeper) has broker.id and may lack cluster.id.
//
// partition.metadata, in every partition's directory, is "version: 0" and "topic_id: <id>" on two lines, without a line
// feed at the end.

const maxMetaSize = 1 << 20

// Meta is meta.properties. Version 0 is ZooKeeper's, 1 KRaft's.
type Meta struct {
	Version     int
	ClusterID   string            // "" if it isn't there
	NodeID      kafka.BrokerID    // kafka.NoBroker if it isn't there
	DirectoryID kafka.DirectoryID // zero before Kafka 3.7
}

func encodeMeta(m Meta) []byte {
	var b strings.Builder
	b.WriteString("#\n")
	if m.NodeID != kafka.NoBroker {
		key := "node.id"
		if m.Version == 0 {
			key = "broker.id"
		}
		fmt.Fprintf(&b, "%s=%d\n", key, m.NodeID)
	}
	if m.DirectoryID != kafka.ZeroUUID {
		fmt.Fprintf(&b, "directory.id=%s\n", m.DirectoryID)
	}
	fmt.Fprintf(&b, "version=%d\n", m.Version)
	if m.ClusterID != "" {
		fmt.Fprintf(&b, "cluster.id=%s\n", m.ClusterID)
	}
	return []byte(b.String())
}

func decodeMeta(b []byte) (Meta, error) {
	m := Meta{NodeID: kafka.NoBroker}
	p, err := config.ParseProperties(b)
	if err != nil {
		return m, err
	}
	// Kafka takes a file without a version for one of ZooKeeper's.
	if v, ok := p.Get("version"); ok {
		if m.Version, err = strconv.Atoi(strings.TrimSpace(v)); err != nil || m.Version < 0 || m.Version > 1 {
			return m, &VersionError{v}
		}
	}
	m.ClusterID, _ = p.Get("cluster.id")
	key := "node.id"
	if m.Version == 0 {
		key = "broker.id"
	}
	if v, ok := p.Get(key); ok {
		id, err := strconv.ParseInt(strings.TrimSpace(v), 10, 32)
		if err != nil {
			return m, fmt.Errorf("%s %q is not a number", key, v)
		}
		m.NodeID = kafka.BrokerID(id)
	} else if m.Version == 1 {
		return m, fmt.Errorf("node.id is missing")
	}
	if m.Version == 1 && m.ClusterID == "" {
		return m, fmt.Errorf("cluster.id is missing")
	}
	if v, ok := p.Get("directory.id"); ok {
		if m.DirectoryID, err = kafka.ParseUUID(v); err != nil {
			return m, fmt.Errorf("directory.id: %w", err)
		}
	}
	return m, nil
}

// ReadMeta reads meta.properties of a directory; fs.ErrNotExist if it isn't formatted. It needs no lock.
func ReadMeta(fsys vfs.FS, dir string) (Meta, error) {
	name := dir + "/" + metaName
	b, err := fsys.ReadFile(name, maxMetaSize)
	if err != nil {
		return Meta{}, err
	}
	m, err := decodeMeta(b)
	if err != nil {
		return m, Corrupt(name, err)
	}
	return m, nil
}

// WriteMeta writes meta.properties atomically.
func WriteMeta(fsys vfs.FS, dir string, m Meta) error {
	return vfs.WriteFileAtomic(fsys, dir, metaName, encodeMeta(m))
}

func encodePartitionMetadata(id kafka.TopicID) []byte {
	return []byte("version: 0\ntopic_id: " + id.String())
}

func decodePartitionMetadata(b []byte) (kafka.TopicID, error) {
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	if len(lines) < 2 {
		return kafka.TopicID{}, fmt.Errorf("%d lines instead of two", len(lines))
	}
	version, ok := strings.CutPrefix(lines[0], "version: ")
	version = strings.TrimSpace(version)
	if _, err := strconv.ParseUint(version, 10, 15); ok && err == nil && version != "0" {
		return kafka.TopicID{}, &VersionError{version}
	}
	if !ok || version != "0" {
		return kafka.TopicID{}, fmt.Errorf("malformed line %q", clip([]byte(lines[0])))
	}
	id, ok := strings.CutPrefix(lines[1], "topic_id: ")
	if !ok {
		return kafka.TopicID{}, fmt.Errorf("malformed line %q", clip([]byte(lines[1])))
	}
	u, err := kafka.ParseUUID(strings.TrimSpace(id))
	if err == nil && u.IsZero() {
		err = fmt.Errorf("the zero id is no topic's")
	}
	return u, err
}
