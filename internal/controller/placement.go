package controller

import (
	"cmp"
	"slices"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// usable is a broker that may get replicas.
type usable struct {
	id     kafka.BrokerID
	rack   *string
	fenced bool
}

// A placer spreads replicas as Kafka's StripedReplicaPlacer does: over racks first, then over the brokers of each, so
// that leaders and replicas are even and no rack has two replicas of a partition while another has none.
//
// Every rack has a ring of its live brokers and one of its fenced ones, each beginning at a random place. The racks are a
// ring too. The leader of the next partition is the next live broker of the next rack; each further replica comes from
// the following racks, and a rack gives its fenced brokers only when it has no live one left. When as many partitions
// were placed as there are live brokers the pattern would repeat, so all rings are shuffled.
type placer struct {
	random Rand
	racks  []*rack // in the order in which they are used
	// hashed is the racks in the order in which Java goes through a hash map of their names: the order of random draws.
	hashed []*rack
	total  int
	live   int
	epoch  int
	offset int
}

type rack struct {
	name         *string
	live, fenced ring
}

type ring struct {
	brokers              []kafka.BrokerID
	index, offset, epoch int
}

func (r *ring) begin(random Rand) {
	if len(r.brokers) > 0 {
		slices.Sort(r.brokers)
		r.offset = random.IntN(len(r.brokers))
	}
}

// next gives each broker once in an epoch; each new epoch begins one further.
func (r *ring) next(epoch int) (kafka.BrokerID, bool) {
	if len(r.brokers) == 0 {
		return 0, false
	}
	if r.epoch != epoch {
		r.epoch, r.index = epoch, 0
		r.offset = (r.offset + 1) % len(r.brokers)
	}
	if r.index >= len(r.brokers) {
		return 0, false
	}
	b := r.brokers[(r.index+r.offset)%len(r.brokers)]
	r.index++
	return b, true
}

func newPlacer(random Rand, brokers []usable) *placer {
	p := &placer{random: random}
	for _, b := range brokers {
		i := slices.IndexFunc(p.hashed, func(r *rack) bool { return sameText(r.name, b.rack) })
		if i < 0 {
			i = len(p.hashed)
			p.hashed = append(p.hashed, &rack{name: b.rack})
		}
		r := p.hashed[i]
		if b.fenced {
			r.fenced.brokers = append(r.fenced.brokers, b.id)
		} else {
			r.live.brokers = append(r.live.brokers, b.id)
			p.live++
		}
		p.total++
	}
	p.racks = slices.Clone(p.hashed)
	buckets := uint32(16)
	for uint32(len(p.hashed))*4 > buckets*3 {
		buckets *= 2
	}
	slices.SortStableFunc(p.hashed, func(a, b *rack) int { return cmp.Compare(a.bucket(buckets), b.bucket(buckets)) })
	for _, r := range p.hashed {
		r.fenced.begin(random)
		r.live.begin(random)
	}
	slices.SortFunc(p.racks, func(a, b *rack) int {
		switch {
		case a.name == nil:
			return -1
		case b.name == nil:
			return 1
		}
		return cmp.Compare(*a.name, *b.name)
	})
	if len(p.racks) > 0 {
		p.offset = random.IntN(len(p.racks))
	}
	return p
}

func sameText(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// bucket is where java.util.HashMap keeps the name.
func (r *rack) bucket(buckets uint32) uint32 {
	if r.name == nil {
		return 0
	}
	h := uint32(kafka.JavaStringHash(*r.name))
	return (h ^ h>>16) & (buckets - 1)
}

// check says why a replication factor is impossible.
func (p *placer) check(factor int) error {
	switch {
	case factor <= 0:
		return kerr.InvalidReplicationFactor.With("Invalid replication factor %d: the replication factor must be positive.", factor)
	case p.live == 0:
		return kerr.InvalidReplicationFactor.With("All brokers are currently fenced, or have all their log directories cordoned.")
	case factor > p.total:
		return kerr.InvalidReplicationFactor.With("The target replication factor of %d cannot be reached because only %d broker(s) are registered or some brokers have all their log directories cordoned.", factor, p.total)
	}
	return nil
}

// place gives the replicas of the next partition. check must have passed.
func (p *placer) place(factor int) []kafka.BrokerID {
	if p.epoch == p.live && p.live > 1 {
		p.shuffle()
		p.epoch = 0
	}
	if p.offset == len(p.racks) {
		p.offset = 0
	}
	out := make([]kafka.BrokerID, 0, factor)
	first := p.offset
	for {
		if b, ok := p.racks[first].live.next(p.epoch); ok {
			out = append(out, b)
			break
		}
		first = (first + 1) % len(p.racks)
	}
	at := p.offset
	for len(out) < factor {
		if at == first {
			first = -1 // it gave the leader; later rounds count it again
		} else if b, ok := p.racks[at].next(p.epoch); ok {
			out = append(out, b)
		}
		at = (at + 1) % len(p.racks)
	}
	p.epoch++
	p.offset++
	return out
}

func (r *rack) next(epoch int) (kafka.BrokerID, bool) {
	if b, ok := r.live.next(epoch); ok {
		return b, true
	}
	return r.fenced.next(epoch)
}

func (p *placer) shuffle() {
	shuffle(p.random, p.racks)
	for _, r := range p.hashed {
		shuffle(p.random, r.fenced.brokers)
		shuffle(p.random, r.live.brokers)
	}
}

// shuffle draws as java.util.Collections.shuffle does.
func shuffle[T any](random Rand, list []T) {
	for i := len(list); i > 1; i-- {
		j := random.IntN(i)
		list[i-1], list[j] = list[j], list[i-1]
	}
}

// usableBrokers are the brokers that may get replicas: not shutting down, and with a directory that isn't cordoned.
func (c *Controller) usableBrokers() []usable {
	var out []usable
	for b := range c.Image().Brokers() {
		if c.heart.shuttingDown(b.ID) || allCordoned(b.LogDirs, b.CordonedDirs) {
			continue
		}
		out = append(out, usable{b.ID, b.Rack, b.Fenced})
	}
	return out
}

func allCordoned(dirs, cordoned []kafka.DirectoryID) bool {
	if len(dirs) == 0 {
		return false
	}
	for _, d := range dirs {
		if !slices.Contains(cordoned, d) {
			return false
		}
	}
	return true
}
