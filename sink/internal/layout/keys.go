package layout

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/seed18712806/lapse/sink/wire"
)

// ShardsField is the field of a state that holds the number of shards.
const ShardsField = "shards"

// ParseShards reads the field shards of a state.
func ParseShards(value any) (shards int, ok bool) {
	text, _ := value.(string)
	n, _ := strconv.Atoi(text)
	return n, n >= 1 && n <= wire.MaxShards
}

// Keys names the keys of one shard.
type Keys struct{ base string }

// NewKeys names the keys of one of so many shards. It picks a hash tag whose slot falls in the shard's range of
// as many equal ranges of slots, so that the shards spread evenly over a cluster.
func NewKeys(prefix wire.Prefix, shard, shards int) Keys {
	for k := 0; ; k++ {
		if tag := tagOf(shard, k); slotOf(tag)*shards/slots == shard {
			return taggedKeys(prefix, tag)
		}
	}
}

// FirstKeys are the keys that shard 0 can have, whatever the number of shards is.
func FirstKeys(prefix wire.Prefix) []Keys {
	tags := firstTags()
	keys := make([]Keys, len(tags))
	for i, tag := range tags {
		keys[i] = taggedKeys(prefix, tag)
	}
	return keys
}

// Base is what all keys of the shard begin with.
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

// By is the key of the entries of one of a collection's indexes ([PropertyIndex]): members with a value and an id, all
// of score 0. Package entries has their form.
func (k Keys) By(slot int, collection string) string {
	return k.base + "by" + strconv.Itoa(slot) + ":" + collection
}

// slots is the number of slots of a Redis Cluster.
const slots = 16384

func tagOf(shard, k int) string { return strconv.Itoa(shard) + "." + strconv.Itoa(k) }

func slotOf(tag string) int { return int(crc16(tag)) % slots }

func taggedKeys(prefix wire.Prefix, tag string) Keys {
	return Keys{base: fmt.Sprintf("%s:{%s}:", prefix, tag)}
}

// firstTags are the tags that shard 0 can have. The more shards there are, the lower
// its slot must be. So only a tag with a lower slot than all tags before it is a candidate.
var firstTags = sync.OnceValue(func() (tags []string) {
	for k, lowest := 0, slots; lowest*wire.MaxShards >= slots; k++ {
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
