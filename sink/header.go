package sink

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed18712806/lapse/ttlrules"
)

// Header is what is stored in front of a document's body:
//
//	byte  0      length of the header, h (17 or more)
//	bytes 1-6    _ts, Unix milliseconds, big endian
//	bytes 7-12   etag, big endian
//	bytes 13-16  item TTL in seconds, big endian; 0 inherit, -1 never
//	bytes 17-h   traceparent of the write, if it had one
//
// It is as short as it is because every document has one.
type Header struct {
	Ts    int64        // instant of the last write, Unix milliseconds
	Etag  uint64       // log sequence of the last write
	TTL   ttlrules.TTL // the item's own; Inherit where the stored one is not valid
	Trace string       // traceparent, "" if none; at most MaxTrace bytes
}

const (
	headerLen = 17
	// MaxTrace is the longest traceparent that is kept.
	MaxTrace = 255 - headerLen
)

var errHeader = errors.New("not a document of lapse")

// Append appends the header's bytes to b.
func (h Header) Append(b []byte) []byte {
	b = append(b, byte(headerLen+len(h.Trace)))
	b = binary.BigEndian.AppendUint16(b, uint16(h.Ts>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(h.Ts))
	b = binary.BigEndian.AppendUint16(b, uint16(h.Etag>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(h.Etag))
	b = binary.BigEndian.AppendUint32(b, uint32(h.TTL))
	return append(b, h.Trace...)
}

// parseValue splits a stored value into its header and its body.
func parseValue(v string) (h Header, body string, err error) {
	if len(v) < headerLen || int(v[0]) < headerLen || int(v[0]) > len(v) {
		return Header{}, "", fmt.Errorf("%w: a value of %d bytes has no valid header", errHeader, len(v))
	}
	h.Ts = int64(be48(v[1:7]))
	h.Etag = be48(v[7:13])
	h.TTL = ttlrules.TTL(int32(uint32(v[13])<<24 | uint32(v[14])<<16 | uint32(v[15])<<8 | uint32(v[16])))
	if h.TTL < ttlrules.Never {
		return Header{}, "", fmt.Errorf("%w: its TTL is %d", errHeader, h.TTL)
	}
	h.Trace = v[headerLen:v[0]]
	return h, v[v[0]:], nil
}

func be48(s string) uint64 {
	return uint64(s[0])<<40 | uint64(s[1])<<32 | uint64(s[2])<<24 | uint64(s[3])<<16 | uint64(s[4])<<8 | uint64(s[5])
}

// index says in which of the two sorted sets a document stands, and at what score.
type index int

const (
	notIndexed index = iota
	byInherit        // documents that inherit, by _ts
	byOwn            // documents with a TTL of their own, by deadline
)

func (h Header) index() (index, int64) {
	switch {
	case h.TTL == ttlrules.Never:
		return notIndexed, 0
	case h.TTL == ttlrules.Inherit:
		return byInherit, h.Ts
	default:
		return byOwn, h.Ts + int64(h.TTL)*1000
	}
}
