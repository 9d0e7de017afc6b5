package layout

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/seed18712806/lapse/sink/wire"
)

// DefaultPartitions is how many partitions the log of each shard has unless it is created with
// another number: 8 of one shard. The more shards there are, the fewer messages a step of each
// has, so they share the partitions; but what holds one partition up must not hold up a shard.
func DefaultPartitions(shards int) int { return max(2, 8/max(1, shards)) }

// MaxPartitions is the most partitions that all logs of a prefix may have.
const MaxPartitions = 1024

// ShardsField is the field of a state that holds the number of shards, if there are several.
const ShardsField = "shards"

// ParseShape reads the fields partitions and shards of a state; the latter is absent if there is
// one shard.
func ParseShape(values []any) (s wire.Shape, ok bool) {
	number := func(v any) int {
		text, _ := v.(string)
		n, _ := strconv.Atoi(text)
		return n
	}
	s = wire.Shape{Shards: 1, Partitions: number(values[0])}
	if values[1] != nil {
		s.Shards = number(values[1])
	}
	return s, s.Shards >= 1 && s.Partitions >= 1 && s.All() <= MaxPartitions
}

// Keys names the keys of one partition.
type Keys struct{ base string }

// NewKeys names the keys of partition p of n. It picks a hash tag whose slot falls in the
// p-th of n equal ranges of slots, so that the partitions spread evenly over a cluster.
func NewKeys(prefix wire.Prefix, p, n int) Keys {
	for k := 0; ; k++ {
		if tag := tagOf(p, k); slotOf(tag)*n/slots == p {
			return taggedKeys(prefix, tag)
		}
	}
}

// FirstKeys are the keys that partition 0 can have, whatever the number of partitions is.
func FirstKeys(prefix wire.Prefix) []Keys {
	tags := firstTags()
	keys := make([]Keys, len(tags))
	for i, tag := range tags {
		keys[i] = taggedKeys(prefix, tag)
	}
	return keys
}

// Base is what all keys of the partition begin with.
func (k Keys) Base() string { return k.base }

// State is the key of the state.
func (k Keys) State() string { return k.base + "state" }

// Config is the key of the configurations.
func (k Keys) Config() string { return k.base + "config" }

// Docs is the key of a collection's documents.
func (k Keys) Docs(collection string) string { return k.base + "docs:" + collection }

// Inherit is the key of a collection's documents that inherit the default TTL.
func (k Keys) Inherit(collection string) string { return k.base + "inherit:" + collection }

// Own is the key of a collection's documents that have a TTL of their own.
func (k Keys) Own(collection string) string { return k.base + "own:" + collection }

// Aside names the keys under which the partition is kept after it was set aside.
func (k Keys) Aside() Keys {
	prefix, tag, _ := strings.Cut(k.base, ":")
	return Keys{base: prefix + ":before:" + tag}
}

// slots is the number of slots of a Redis Cluster.
const slots = 16384

func tagOf(p, k int) string { return strconv.Itoa(p) + "." + strconv.Itoa(k) }

func slotOf(tag string) int { return int(crc16(tag)) % slots }

func taggedKeys(prefix wire.Prefix, tag string) Keys {
	return Keys{base: fmt.Sprintf("%s:{%s}:", prefix, tag)}
}

// firstTags are the tags that partition 0 can have. The more partitions there are, the lower
// its slot must be. So only a tag with a lower slot than all tags before it is a candidate.
var firstTags = sync.OnceValue(func() (tags []string) {
	for k, lowest := 0, slots; lowest*MaxPartitions >= slots; k++ {
		if tag := tagOf(0, k); slotOf(tag) < lowest {
			lowest = slotOf(tag)
			tags = append(tags, tag)
		}
	}
	return tags
})

// crc16 is the CRC16-CCITT (XMODEM) from which Redis Cluster computes a key's slot, as the
// cluster specification defines it.
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
