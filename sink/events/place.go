package events

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// Key names a message of the stream of events among those of one log. The log determines it, so
// two messages with one key are one output that was published twice.
type Key struct {
	Kind    byte
	Seq     uint64
	Warning Warning // zero of other kinds
}

// Warning tells the warnings of a version apart: a change of the default TTL moves its deadline.
type Warning struct {
	Before    int32 // seconds
	ExpiresAt int64 // the deadline, Unix milliseconds
}

// String writes a warning as in its ce-id.
func (w Warning) String() string { return fmt.Sprintf("%d/%d", w.Before, w.ExpiresAt) }

// parseWarning reads what String wrote.
func parseWarning(text string) (w Warning, err error) {
	before, expiresAt, _ := strings.Cut(text, "/")
	seconds, err := strconv.ParseInt(before, 10, 32)
	if err == nil {
		w.ExpiresAt, err = strconv.ParseInt(expiresAt, 10, 64)
	}
	w.Before = int32(seconds)
	return w, err
}

// The kinds of keys, and their sequences.
const (
	keyExpired  = 'e' // the etag of the version that has expired; also of a due message, which is its event
	keyExpiring = 'w' // the etag of the version that will expire
	keyChanged  = 'c' // the log sequence of the write that has taken effect, or of the drop
	keyRejected = 'r' // the log sequence of the message that was rejected
	keyFence    = 'f' // a random number
)

// String writes a key as parseKey reads it.
func (k Key) String() string {
	text := string(k.Kind) + strconv.FormatUint(k.Seq, 10)
	if k.Kind == keyExpiring {
		text += "/" + k.Warning.String()
	}
	return text
}

// parseKey reads a key of a kind from the rest of its text.
func parseKey(kind byte, rest string) (k Key, err error) {
	k.Kind = kind
	number, warning, _ := strings.Cut(rest, "/")
	if kind == keyExpiring {
		if k.Warning, err = parseWarning(warning); err != nil {
			return k, err
		}
		rest = number
	}
	k.Seq, err = strconv.ParseUint(rest, 10, 64)
	return k, err
}

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
	if p.Seq, err = strconv.ParseUint(seq, 10, 64); err == nil {
		p.Key, err = parseKey(key[0], key[1:])
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

// kindKeys are the kinds of the keys of messages.
var kindKeys = map[wire.Kind]byte{
	wire.KindExpired: keyExpired, wire.KindDue: keyExpired, wire.KindExpiring: keyExpiring,
	wire.KindChanged: keyChanged, wire.KindRejected: keyRejected,
}

// keyOf is the key of a stored message. ok is false if the message is neither an output of the log
// nor a fence.
func (s Source) keyOf(subject string, h nats.Header) (k Key, ok bool) {
	if strings.HasPrefix(subject, string(s.prefix)+".fence.") {
		k, err := parseKey(keyFence, h.Get(headerFence))
		return k, err == nil
	}
	a, err := wire.ParseAbout(s.prefix, subject, h)
	if err != nil {
		return k, false
	}
	k = Key{Kind: kindKeys[a.Kind], Seq: a.Seq}
	switch {
	case a.Kind == wire.KindRejected:
		return k, a.Log == s.stream
	case a.Kind == wire.KindExpiring:
		k.Warning = Warning{a.Before, int64(a.ExpiresAt)}
	}
	shard := 0 // the first shard publishes drops
	if a.ID != "" {
		shard = wire.ShardOf(s.shards, a.Collection, wire.EscapeID(a.ID))
	}
	return k, shard == s.shard && k.Seq <= s.lastOf(a.Log)
}

// lastOf is the last sequence of a log whose outputs are of the source: 0 if that is another log than the source, and
// those that it continues. A region that was the first may go on publishing for a while, and what it publishes may come
// here.
func (s Source) lastOf(uri string) uint64 {
	if uri == s.uri {
		return math.MaxUint64
	}
	for _, f := range s.former {
		if uri == f.uri {
			return f.last
		}
	}
	return 0
}
