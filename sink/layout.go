package sink

import (
	"fmt"
	"strconv"

	"github.com/seed18712806/lapse/sink/wire"
)

// DefaultPartitions is how many partitions a log has unless it is created with
// another number.
const DefaultPartitions = 16

// MaxPartitions is the most that a log may have.
const MaxPartitions = 1024

// format is the version of everything that is stored; another one is refused.
const format = "1"

// keyspace names the keys of one partition. All share a hash tag, so that a
// partition lives in one slot of a Redis Cluster.
type keyspace struct{ base string }

// newKeyspace picks the tag such that the slots of n partitions are spread
// evenly: partition p falls in the p-th of n equal ranges of slots.
func newKeyspace(prefix wire.Prefix, p, n int) keyspace {
	const slots = 16384
	for k := 0; ; k++ {
		tag := strconv.Itoa(p) + "." + strconv.Itoa(k)
		if int(crc16(tag))%slots*n/slots == p {
			return keyspace{base: fmt.Sprintf("%s:{%s}:", prefix, tag)}
		}
	}
}

func (k keyspace) state() string                    { return k.base + "state" }
func (k keyspace) config() string                   { return k.base + "config" }
func (k keyspace) docs(collection string) string    { return k.base + "docs:" + collection }
func (k keyspace) inherit(collection string) string { return k.base + "inherit:" + collection }
func (k keyspace) own(collection string) string     { return k.base + "own:" + collection }

// crc16 is the CRC16-CCITT (XMODEM) by which Redis Cluster finds a key's slot,
// as its cluster specification defines it.
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
