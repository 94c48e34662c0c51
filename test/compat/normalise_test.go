package compat

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// moment are fields that depend on the moment, the port, or how far the metadata log is: only whether they are set is kept.
var moment = map[string]bool{
	"BrokerEpoch": true, "SessionID": true, "FinalizedFeaturesEpoch": true, "LastFetchTimestamp": true, "LastCaughtUpTimestamp": true, "ProducerID": true,
}

// quorum are further such fields, of DescribeQuorum only.
var quorum = map[string]bool{"LeaderEpoch": true, "HighWatermark": true, "LogEndOffset": true}

// inOrder are lists of structs whose order means something; that of any other with a name or an id is a hash table's in Kafka.
var inOrder = map[string]bool{"FetchResponseTopic": true, "FetchResponseTopicPartition": true, "DescribeConfigsResponseResourceConfigConfigSynonym": true}

// sortKey is what a list's element is sorted by, "" if the list stays as it is.
func sortKey(m map[string]any) string {
	var b strings.Builder
	for _, field := range []string{"Topic", "TopicID", "ResourceType", "ResourceName", "Name", "Partition"} {
		if x, ok := m[field]; ok {
			if p, ok := x.(*string); ok && p != nil {
				x = *p
			}
			fmt.Fprint(&b, field, x, "|")
		}
	}
	return b.String()
}

// normalise turns an answer into what must be equal from run to run: names for topic ids, "#" for what depends on the moment.
func (s *scene) normalise(a kmsg.Response) any {
	s.learn(reflect.ValueOf(a))
	return s.plain(reflect.ValueOf(a).Elem(), a)
}

// learn remembers which topic has which id.
func (s *scene) learn(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			s.learn(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			for i := range v.Len() {
				s.learn(v.Index(i))
			}
		}
	case reflect.Struct:
		name, id := v.FieldByName("Topic"), v.FieldByName("TopicID")
		if name.IsValid() && id.IsValid() {
			if name.Kind() == reflect.Pointer {
				name = name.Elem()
			}
			if name.IsValid() && name.String() != "" && !id.IsZero() {
				s.topics[id.Interface().([16]byte)] = name.String()
				s.ids[name.String()] = id.Interface().([16]byte)
			}
		}
		for i := range v.NumField() {
			s.learn(v.Field(i))
		}
	}
}

func (s *scene) plain(v reflect.Value, a kmsg.Response) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return s.plain(v.Elem(), a)
	case reflect.Struct:
		m := map[string]any{}
		for i := range v.NumField() {
			name, f := v.Type().Field(i).Name, v.Field(i)
			switch {
			case name == "Version" || name == "UnknownTags" || name == "ThrottleMillis":
			case name == "ApiKeys": // TestAdvertised
			case name == "Documentation" || name == "ConfigDocumentation":
				m[name] = !f.IsZero() && !f.IsNil() && f.Elem().String() != "" // Kafka's prose is its own
			case moment[name] || a.Key() == 55 && quorum[name]:
				m[name] = "#"
				if f.Kind() == reflect.Int32 || f.Kind() == reflect.Int64 {
					if f.Int() < 0 || f.Int() == 0 && name != "ProducerID" {
						m[name] = f.Int()
					}
				}
			case name == "ReplicaDirectoryID":
				m[name] = !f.IsZero()
			case name == "Host" || name == "Topic" && f.Kind() == reflect.String:
				m[name] = f.String()
			case name == "LogAppendTime" || name == "Timestamp":
				m[name] = s.stamp(f)
			default:
				m[name] = s.plain(f, a)
			}
		}
		return m
	case reflect.Slice:
		if v.IsNil() {
			return nil
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b := v.Bytes()
			if len(b) > 400 {
				return fmt.Sprintf("%d bytes, sha256 %x", len(b), sha256.Sum256(b))
			}
			return hex.EncodeToString(b)
		}
		out := []any{}
		for i := range v.Len() {
			out = append(out, s.plain(v.Index(i), a))
		}
		if !inOrder[v.Type().Elem().Name()] {
			slices.SortStableFunc(out, func(a, b any) int {
				m, ok1 := a.(map[string]any)
				n, ok2 := b.(map[string]any)
				if !ok1 || !ok2 {
					return 0
				}
				return strings.Compare(sortKey(m), sortKey(n))
			})
		}
		return out
	case reflect.Array: // a UUID
		id := v.Interface().([16]byte)
		switch name, known := s.topics[id]; {
		case id == [16]byte{}:
			return ""
		case known:
			return "id of " + name
		case id == unknownID:
			return "the unknown id"
		}
		return "an id"
	case reflect.String:
		return s.places(v.String())
	case reflect.Int32, reflect.Uint16:
		n := fmt.Sprint(v.Interface())
		if strings.HasSuffix(s.node.Addr(), ":"+n) {
			return "port of the broker"
		}
		if strings.HasSuffix(s.node.Controller(), ":"+n) {
			return "port of the controller"
		}
	}
	return v.Interface()
}

func (s *scene) places(x string) string {
	for id, name := range s.topics {
		x = strings.ReplaceAll(x, uuid(id), "{id of "+name+"}")
	}
	return places(s.node, x)
}

// stamp keeps timestamps that are no current time.
func (s *scene) stamp(f reflect.Value) any {
	if t := time.UnixMilli(f.Int()); time.Since(t).Abs() < time.Hour {
		return "now"
	}
	return f.Int()
}

const base64url = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// uuid is an id as Kafka prints it.
func uuid(id [16]byte) string {
	var b strings.Builder
	for i := 0; i < 16*8; i += 6 {
		n := 0
		for j := i; j < i+6; j++ {
			n <<= 1
			if j < 128 && id[j/8]&(0x80>>(j%8)) != 0 {
				n |= 1
			}
		}
		b.WriteByte(base64url[n])
	}
	return b.String()
}
