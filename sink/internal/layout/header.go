package layout

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed18712806/lapse/sink/wire"
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
// A version with a kept clock or an instant of its own has more, in front of the traceparent:
//
//	bytes 13-16  -2, or -3 if it has a NotAfter
//	bytes 17-20  item TTL, as above
//	bytes 21-26  where the clock began, Unix milliseconds, big endian; 0 if at _ts. The upper six bits are
//	             the band of the index, for which see ttlrules.Clock
//	bytes 27-32  absolute deadline, or NotAfter, Unix milliseconds, big endian; 0 if none
//
// So has a version with a target, and there behind these:
//
//	bytes 13-16  -4, or -5 if it has a NotAfter
//	byte  33     length of the target
//	bytes 34-    target
//
// A version that maxLife limits has as many as one with a kept clock, and behind them, in front of a target:
//
//	bytes 13-16  four less than above
//	bytes 33-38  when the document was created, Unix milliseconds, big endian
//	bytes 39-44  the limit, likewise. The upper six bits are 1 if the TTL is a default, else 0
//
// It is binary and short because every document has one. Scripts read its first byte alone.
type Header struct {
	Ts       int64        // instant of the last write, Unix milliseconds
	Etag     uint64       // log sequence of the last write
	TTL      ttlrules.TTL // the item's own; Inherit where the stored one is not valid
	Kept     int64        // see ttlrules.Clock
	Band     int          // likewise; 0 unless the clock was kept
	Absolute int64        // see ttlrules.Clock
	NotAfter int64        // see ttlrules.Clock
	// Limit is that of ttlrules.Clock, and ByDefault likewise. Created is when the document was created, Unix
	// milliseconds. All are zero unless maxLife limits the version.
	Limit     int64
	ByDefault bool
	Created   int64
	Target    string // of the message that its expiry delivers, "" if none; see wire.CheckTarget
	Trace     string // traceparent, "" if none; at most MaxTrace bytes, and MaxTraceWithTarget beside a target
}

const (
	// MaxHeader is the length of the longest header.
	MaxHeader = 255
	// HeaderLen is the length of a header without a traceparent, unless it is a long one.
	HeaderLen = 17
	// LongHeaderLen is that of a header with a kept clock or an instant of its own, without a target.
	LongHeaderLen = HeaderLen + 16
	// LifeHeaderLen is that of a header of a version that maxLife limits, without a target. No header has more in front
	// of a target and a traceparent.
	LifeHeaderLen = LongHeaderLen + 12
	// MaxTrace is the longest traceparent that is stored.
	MaxTrace = MaxHeader - LifeHeaderLen
	// MaxTraceWithTarget is the longest that is stored beside a target.
	MaxTraceWithTarget = MaxTrace - 1 - wire.MaxTarget

	// In place of the TTL:
	longHeader            ttlrules.TTL = -2
	limitedHeader         ttlrules.TTL = -3 // long, with a NotAfter
	targetedHeader        ttlrules.TTL = -4 // long, with a target
	targetedLimitedHeader ttlrules.TTL = -5 // with both
	lifeHeader            ttlrules.TTL = -4 // is added to these if maxLife limits the version
)

// ErrHeader reports a stored value that does not begin with a valid header.
var ErrHeader = errors.New("not a document of lapse")

// Clock is what the header brings to the rules.
func (h Header) Clock() ttlrules.Clock {
	return ttlrules.Clock{Ts: h.Ts, TTL: h.TTL, Kept: h.Kept, Band: h.Band, Absolute: h.Absolute, NotAfter: h.NotAfter,
		Limit: h.Limit, ByDefault: h.ByDefault, Seq: h.Etag}
}

// SetClock sets what Clock returns.
func (h *Header) SetClock(c ttlrules.Clock) {
	h.Ts, h.TTL, h.Kept, h.Band, h.Absolute, h.NotAfter = c.Ts, c.TTL, c.Kept, c.Band, c.Absolute, c.NotAfter
	h.Limit, h.ByDefault, h.Etag = c.Limit, c.ByDefault, c.Seq
}

// created is when the document was created, as far as its header tells.
func (h Header) created() int64 {
	at := min(h.Ts, h.Clock().Begin())
	if h.Created != 0 {
		at = min(at, h.Created)
	}
	return at
}

func (h Header) long() bool {
	return h.Kept != 0 || h.Absolute != 0 || h.NotAfter != 0 || h.Limit != 0 || h.Target != ""
}

// Len is the length of the header's bytes.
func (h Header) Len() int {
	n := h.clockLen() + len(h.Trace)
	if h.Target != "" {
		n += 1 + len(h.Target)
	}
	return n
}

// clockLen is the length of what is in front of a target and a traceparent.
func (h Header) clockLen() int {
	switch {
	case h.Limit != 0:
		return LifeHeaderLen
	case h.long():
		return LongHeaderLen
	}
	return HeaderLen
}

// mark is what a long header has in place of the TTL.
func (h Header) mark() (mark ttlrules.TTL) {
	switch {
	case h.Target != "" && h.NotAfter != 0:
		mark = targetedLimitedHeader
	case h.Target != "":
		mark = targetedHeader
	case h.NotAfter != 0:
		mark = limitedHeader
	default:
		mark = longHeader
	}
	if h.Limit != 0 {
		mark += lifeHeader
	}
	return mark
}

// Append appends the header's bytes to b.
func (h Header) Append(b []byte) []byte {
	b = append(b, byte(h.Len()))
	b = appendUint48(b, uint64(h.Ts))
	b = appendUint48(b, h.Etag)
	if h.long() {
		b = binary.BigEndian.AppendUint32(b, uint32(h.mark()))
	}
	b = binary.BigEndian.AppendUint32(b, uint32(h.TTL))
	if h.long() {
		b = appendUint48(b, uint64(h.Kept+int64(h.Band)*ttlrules.BandWidth))
		b = appendUint48(b, uint64(h.Absolute|h.NotAfter)) // it has one of them at most
	}
	if h.Limit != 0 {
		limit := uint64(h.Limit)
		if h.ByDefault {
			limit += ttlrules.BandWidth
		}
		b = appendUint48(appendUint48(b, uint64(h.Created)), limit)
	}
	if h.Target != "" {
		b = append(append(b, byte(len(h.Target))), h.Target...)
	}
	return append(b, h.Trace...)
}

// ParseDocument splits a stored value into its header and its body.
func ParseDocument(v string) (h Header, body string, err error) {
	if len(v) < HeaderLen || int(v[0]) > len(v) {
		return Header{}, "", fmt.Errorf("%w: a value of %d bytes has no valid header", ErrHeader, len(v))
	}
	h, targeted, err := parseHeader(v[:v[0]])
	if err != nil {
		return Header{}, "", err
	}
	if targeted {
		rest := v[max(h.clockLen(), LongHeaderLen):v[0]]
		if rest == "" || rest[0] == 0 || int(rest[0]) >= len(rest) {
			return Header{}, "", fmt.Errorf("%w: its target is not whole", ErrHeader)
		}
		h.Target = rest[1 : 1+int(rest[0])]
	}
	h.Trace = v[h.Len():v[0]]
	return h, v[v[0]:], nil
}

// ParseHeader reads a header without its target and its traceparent, which may be cut off.
func ParseHeader(v string) (h Header, err error) {
	h, _, err = parseHeader(v)
	return h, err
}

// parseHeader is ParseHeader, and reports whether the header has a target.
func parseHeader(v string) (h Header, targeted bool, err error) {
	if len(v) < HeaderLen || int(v[0]) < HeaderLen {
		return Header{}, false, fmt.Errorf("%w: %d bytes are no valid header", ErrHeader, len(v))
	}
	h.Ts = int64(uint48(v[1:7]))
	h.Etag = uint48(v[7:13])
	h.TTL = ttlrules.TTL(int32At(v[13:17]))
	if mark := h.TTL; mark <= longHeader && mark >= targetedLimitedHeader+lifeHeader {
		lives := mark < targetedLimitedHeader
		if lives {
			mark -= lifeHeader
		}
		targeted = mark == targetedHeader || mark == targetedLimitedHeader
		limited := mark == limitedHeader || mark == targetedLimitedHeader
		if len(v) < LongHeaderLen || int(v[0]) < LongHeaderLen {
			return Header{}, false, fmt.Errorf("%w: %d bytes are no valid long header", ErrHeader, len(v))
		}
		h.TTL = ttlrules.TTL(int32At(v[17:21]))
		kept := int64(uint48(v[21:27]))
		h.Band, h.Kept, h.Absolute = int(kept/ttlrules.BandWidth), kept%ttlrules.BandWidth, int64(uint48(v[27:33]))
		if limited {
			h.NotAfter, h.Absolute = h.Absolute, 0
		}
		if lives {
			if err := h.parseLife(v); err != nil {
				return Header{}, false, err
			}
		}
		if !h.long() && !targeted || limited && h.NotAfter == 0 || h.Kept == h.Ts && h.Kept != 0 || h.Band != 0 &&
			h.Kept == 0 {
			return Header{}, false, fmt.Errorf("%w: its clock of %d began at %d, and ends at %d", ErrHeader, h.Ts, h.Kept,
				h.Absolute|h.NotAfter)
		}
	}
	if h.TTL < ttlrules.Never {
		return Header{}, false, fmt.Errorf("%w: its TTL is %d", ErrHeader, h.TTL)
	}
	return h, targeted, nil
}

// parseLife reads what only the header of a version has that maxLife limits.
func (h *Header) parseLife(v string) error {
	if len(v) < LifeHeaderLen || int(v[0]) < LifeHeaderLen {
		return fmt.Errorf("%w: %d bytes are no valid header with a limit", ErrHeader, len(v))
	}
	limit := int64(uint48(v[39:45]))
	h.Created, h.Limit, h.ByDefault = int64(uint48(v[33:39])), limit%ttlrules.BandWidth, limit >= ttlrules.BandWidth
	if h.Limit == 0 || limit >= 2*ttlrules.BandWidth {
		return fmt.Errorf("%w: its limit is %d", ErrHeader, limit)
	}
	return nil
}

func appendUint48(b []byte, n uint64) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(n>>32))
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// uint48 reads six bytes, big endian.
func uint48(s string) uint64 {
	return uint64(s[0])<<40 | uint64(s[1])<<32 | uint64(s[2])<<24 | uint64(s[3])<<16 | uint64(s[4])<<8 | uint64(s[5])
}

// int32At reads four bytes, big endian.
func int32At(s string) int32 {
	return int32(uint32(s[0])<<24 | uint32(s[1])<<16 | uint32(s[2])<<8 | uint32(s[3]))
}

// Index names the sorted set that a document is in.
type Index = ttlrules.Index

// The sorted sets, and none.
const (
	NotIndexed = ttlrules.NotIndexed
	ByInherit  = ttlrules.ByInherit
	ByOwn      = ttlrules.ByOwn
)

// NeverScore is the score of documents that never expire, which no cut reaches: each document is in
// exactly one of the sorted sets, so that a list goes through them. It is the greatest whole number up to
// which a score, a float, is exact.
const NeverScore = 1<<53 - 1

// Index returns the index that the document belongs in, and its score there.
func (h Header) Index() (in Index, score int64) {
	if score, in = h.Clock().Score(); in == NotIndexed {
		return ByOwn, NeverScore
	}
	return in, score
}
