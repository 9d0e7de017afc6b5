package layout

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed18712806/lapse/ttlrules"
)

// Header is stored in front of a document's body:
//
//	byte  0      length of the header, h (17 or more)
//	bytes 1-6    _ts, Unix milliseconds, big endian
//	bytes 7-12   etag, big endian
//	bytes 13-16  item TTL in seconds, big endian; 0 inherit, -1 never
//	bytes 17-h   traceparent of the write, if it had one
//
// It is binary and short because every document has one. The scripts due.lua, read.lua,
// commit.lua and scan.lua read its first byte, and scan.lua reads the timestamps too.
type Header struct {
	Ts    int64        // instant of the last write, Unix milliseconds
	Etag  uint64       // log sequence of the last write
	TTL   ttlrules.TTL // the item's own; Inherit where the stored one is not valid
	Trace string       // traceparent, "" if none; at most MaxTrace bytes
}

const (
	// HeaderLen is the length of a header without a traceparent.
	HeaderLen = 17
	// MaxTrace is the longest traceparent that is stored.
	MaxTrace = 255 - HeaderLen
)

// ErrHeader reports a stored value that does not begin with a valid header.
var ErrHeader = errors.New("not a document of lapse")

// Append appends the header's bytes to b.
func (h Header) Append(b []byte) []byte {
	b = append(b, byte(HeaderLen+len(h.Trace)))
	b = binary.BigEndian.AppendUint16(b, uint16(h.Ts>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(h.Ts))
	b = binary.BigEndian.AppendUint16(b, uint16(h.Etag>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(h.Etag))
	b = binary.BigEndian.AppendUint32(b, uint32(h.TTL))
	return append(b, h.Trace...)
}

// ParseDocument splits a stored value into its header and its body.
func ParseDocument(v string) (h Header, body string, err error) {
	if len(v) < HeaderLen || int(v[0]) > len(v) {
		return Header{}, "", fmt.Errorf("%w: a value of %d bytes has no valid header", ErrHeader, len(v))
	}
	if h, err = ParseHeader(v); err != nil {
		return Header{}, "", err
	}
	h.Trace = v[HeaderLen:v[0]]
	return h, v[v[0]:], nil
}

// ParseHeader reads a header without its traceparent, which may be cut off.
func ParseHeader(v string) (h Header, err error) {
	if len(v) < HeaderLen || int(v[0]) < HeaderLen {
		return Header{}, fmt.Errorf("%w: %d bytes are no valid header", ErrHeader, len(v))
	}
	h.Ts = int64(uint48(v[1:7]))
	h.Etag = uint48(v[7:13])
	h.TTL = ttlrules.TTL(int32(uint32(v[13])<<24 | uint32(v[14])<<16 | uint32(v[15])<<8 | uint32(v[16])))
	if h.TTL < ttlrules.Never {
		return Header{}, fmt.Errorf("%w: its TTL is %d", ErrHeader, h.TTL)
	}
	return h, nil
}

// uint48 reads six bytes, big endian.
func uint48(s string) uint64 {
	return uint64(s[0])<<40 | uint64(s[1])<<32 | uint64(s[2])<<24 | uint64(s[3])<<16 | uint64(s[4])<<8 | uint64(s[5])
}

// Index names the sorted set that a document is in.
type Index int

const (
	// NotIndexed is for a document that does not exist, or whose collection has no index.
	NotIndexed Index = iota
	// ByInherit is for documents that inherit the default TTL. The score is _ts.
	ByInherit
	// ByOwn is for documents with a TTL of their own. The score is the deadline, or
	// [NeverScore] if the document never expires.
	ByOwn
)

// NeverScore is the score of documents that never expire, which no cut reaches: a list goes
// through the indexes, and so each document is in one. It is the greatest whole number up to
// which a score, a float, is exact.
const NeverScore = 1<<53 - 1

// Index returns the index that the document belongs in, and its score there.
func (h Header) Index() (in Index, score int64) {
	switch {
	case h.TTL == ttlrules.Never:
		return ByOwn, NeverScore
	case h.TTL == ttlrules.Inherit:
		return ByInherit, h.Ts
	default:
		return ByOwn, h.Ts + int64(h.TTL)*1000
	}
}
