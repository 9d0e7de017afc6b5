package lease

import (
	"hash/fnv"
	"strconv"
)

// rank is the number of members that take a shard over before me, by rendezvous hashing.
// All members that see the same list agree, and each shard has its own order. The former
// owner does not count.
func rank(shard int, me, former string, members []string) (before int) {
	mine := weight(shard, me)
	for _, id := range members {
		if id == me || id == former {
			continue
		}
		if w := weight(shard, id); w > mine || w == mine && id > me {
			before++
		}
	}
	return before
}

// weight is a hash of shard and member. It is mixed, so that ids that differ in one
// character are far apart.
func weight(shard int, id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.Itoa(shard) + "/" + id))
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
