package controller

import (
	"slices"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// script draws what Kafka drew.
type script struct {
	t     *testing.T
	draws [][2]int
}

func (s *script) IntN(n int) int {
	if len(s.draws) == 0 || s.draws[0][0] != n {
		s.t.Fatalf("draws below %d, Kafka: %v", n, s.draws)
	}
	v := s.draws[0][1]
	s.draws = s.draws[1:]
	return v
}

func (s *script) Uint64() uint64 { s.t.Fatal("placement draws no numbers of 64 bits"); return 0 }

// Given Kafka's random draws the placement is Kafka's, draw by draw.
func TestPlacementIsKafkas(t *testing.T) {
	for i, c := range fixture.Lines[struct {
		Brokers []struct {
			ID     int32
			Fenced bool
			Rack   *string
		}
		Partitions, ReplicationFactor int
		Random                        [][2]int
		Result                        [][]int32
		Error, Message                string
	}](t, "vectors/placement.jsonl.gz") {
		var brokers []usable
		for _, b := range c.Brokers {
			brokers = append(brokers, usable{kafka.BrokerID(b.ID), b.Rack, b.Fenced})
		}
		s := &script{t, c.Random}
		p := newPlacer(s, brokers)
		err := p.check(c.ReplicationFactor)
		if c.Error != "" {
			if err == nil || err.(*kerr.Error).Name != c.Error || err.(*kerr.Error).Message() != c.Message {
				t.Errorf("case %d: %v, Kafka: %s %s", i, err, c.Error, c.Message)
			}
			continue
		}
		if err != nil {
			t.Errorf("case %d: %v", i, err)
			continue
		}
		for j := range c.Partitions {
			if got := p.place(c.ReplicationFactor); !slices.Equal(int32s(got), c.Result[j]) {
				t.Errorf("case %d, partition %d: %v, Kafka %v", i, j, got, c.Result[j])
			}
		}
		if len(s.draws) != 0 {
			t.Errorf("case %d: draws left: %v", i, s.draws)
		}
	}
}
