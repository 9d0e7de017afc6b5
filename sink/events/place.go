package events

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// Key names a message of the stream of events among those of one log. The log determines it, so
// two messages with one key are one output that was published twice.
type Key struct {
	Kind byte
	Seq  uint64
}

// The kinds of keys, and their sequences.
const (
	keyExpired  = 'e' // the etag of the version that has expired
	keyRejected = 'r' // the log sequence of the message that was rejected
	keyFence    = 'f' // a random number
)

// String writes a key as parseKey reads it.
func (k Key) String() string { return string(k.Kind) + strconv.FormatUint(k.Seq, 10) }

// Place is a sequence of the stream of events, and the message that was stored there. If the stream
// has lost its end and has grown again, it has another message at that sequence.
type Place struct {
	Seq uint64 // 0 if nothing is known
	Key Key
}

// String writes a place as ParsePlace reads it; "" if nothing is known.
func (p Place) String() string {
	if p.Seq == 0 {
		return ""
	}
	return strconv.FormatUint(p.Seq, 10) + ":" + p.Key.String()
}

// ParsePlace reads what String wrote.
func ParsePlace(text string) (p Place, err error) {
	if text == "" {
		return p, nil
	}
	seq, key, _ := strings.Cut(text, ":")
	if len(key) < 2 {
		return p, fmt.Errorf("place %q in the stream of events is not valid", text)
	}
	p.Key.Kind = key[0]
	if p.Seq, err = strconv.ParseUint(seq, 10, 64); err == nil {
		p.Key.Seq, err = strconv.ParseUint(key[1:], 10, 64)
	}
	if err != nil {
		return Place{}, fmt.Errorf("place %q in the stream of events is not valid: %w", text, err)
	}
	return p, nil
}

// MarshalText implements [encoding.TextMarshaler].
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Place) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePlace(string(b))
	return err
}

// Output is the place of a stored message. ok is false if that is no output of the log.
func (s Source) Output(seq uint64, subject string, h nats.Header) (at Place, ok bool) {
	key, ok := s.keyOf(subject, h)
	return Place{seq, key}, ok && key.Kind != keyFence
}

// keyOf is the key of a stored message. ok is false if the message is neither an output of the log
// nor a fence.
func (s Source) keyOf(subject string, h nats.Header) (k Key, ok bool) {
	rest, _ := strings.CutPrefix(subject, string(s.prefix)+".")
	kind, _, _ := strings.Cut(rest, ".")
	var number string
	switch kind {
	case "expired":
		collection, ours := strings.CutPrefix(h.Get(ceSource), s.uri)
		if shard, _ := s.shape.Place(collection, h.Get(ceSubject)); !ours || shard != s.shard {
			return k, false
		}
		id := h.Get(ceID)
		k.Kind, number = keyExpired, id[strings.LastIndexByte(id, '/')+1:]
	case "rejected":
		if h.Get(wire.HeaderStream) != s.stream {
			return k, false
		}
		k.Kind, number = keyRejected, h.Get(wire.HeaderSeq)
	case "fence":
		k.Kind, number = keyFence, h.Get(headerFence)
	}
	var err error
	k.Seq, err = strconv.ParseUint(number, 10, 64)
	return k, err == nil
}
