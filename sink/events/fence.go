package events

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// headerFence is a random number by which a fence is told from another.
const headerFence = "Lapse-Fence"

// ErrFenced: the shard has another fence by now, so another process may be publishing the
// outputs of its log.
var ErrFenced = errors.New("the shard has another fence in the stream of events")

// ErrLost: the stream does not have any more what it had stored, and its limits did not remove it. A
// NATS server that loses power may lose the end of a stream that it had acknowledged.
var ErrLost = errors.New("the stream of events has lost messages that it had stored")

// Fence is the last message on the fence subject of a shard. A message that carries it is
// stored only as long as it is the last one. So a process that publishes a new fence keeps
// out what others have sent and the stream has not stored yet, however late that arrives.
//
// The zero Fence keeps nobody out.
type Fence struct {
	subject, seq []string // values of the headers
	place        Place    // zero if the shard never had a fence
	made         time.Time
	losses       int    // of the Publisher, when it was made
	reconnects   uint64 // of the connection, when it was made
}

// errReconnected: a server that was away may have lost what it had stored, so the shard has to be taken
// over again before it publishes.
var errReconnected = errors.New("the connection to NATS was lost since the fence of this shard was stored")

// reconnects is how often the connection was made again.
func (p *Publisher) reconnects() uint64 {
	return p.js.Conn().Stats().Reconnects
}

// reconnectedSince reports whether the connection was made again since a fence that keeps others out was stored.
func (p *Publisher) reconnectedSince(f Fence) bool {
	return f.keepsOut() && f.reconnects != p.reconnects()
}

// Place is where the stream has the fence.
func (f *Fence) Place() Place { return f.place }

// Unfenced is the fence of a shard that never had one.
func (p *Publisher) Unfenced(shard int) Fence {
	return p.fence(shard, Place{})
}

// Fence publishes a new fence for a shard. When it returns, the fence is stored for good,
// and so is each message that a former owner has got past it. It expects nothing of the stream,
// so that no publication in process can refuse it. If the answer is lost, the stream may store
// the fence later: then all fences before it are former ones.
func (p *Publisher) Fence(ctx context.Context, shard int) (Fence, error) {
	key := Key{Kind: keyFence, Seq: rand.Uint64()}
	m := &nats.Msg{Subject: p.prefix.Fence(shard), Header: nats.Header{
		jetstream.ExpectedStreamHeader: {p.stream},
		headerFence:                    {strconv.FormatUint(key.Seq, 10)},
	}}
	before := p.Last().Seq
	ack, err := p.js.PublishMsg(ctx, m)
	if err != nil {
		return Fence{}, refusedBy(p.stream, m.Subject, err)
	}
	at := Place{ack.Sequence, key}
	_ = p.follows(before, at.Seq, at) // the takeover compares what is there, behind this fence
	f := p.fence(shard, at)
	f.made = time.Now()
	return f, nil
}

func (p *Publisher) fence(shard int, at Place) Fence {
	return Fence{subject: []string{p.prefix.Fence(shard)}, seq: []string{strconv.FormatUint(at.Seq, 10)}, place: at,
		losses: p.Losses(), reconnects: p.reconnects()}
}

// keepsOut reports whether messages with this fence are refused after a newer fence.
func (f *Fence) keepsOut() bool { return f.seq != nil }

// Stale reports whether the fence was published more than maxAge ago, so that the stream may
// have removed it; 0 means that the stream never does.
func (f *Fence) Stale(maxAge time.Duration) bool {
	return maxAge > 0 && !f.made.IsZero() && time.Since(f.made) > maxAge
}

// guard sets the headers with which a message carries the fence.
func (f *Fence) guard(m *nats.Msg) {
	if !f.keepsOut() {
		unguard(m)
		return
	}
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = f.seq
	m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = f.subject
}

// unguard removes the headers of a fence.
func unguard(m *nats.Msg) {
	delete(m.Header, jetstream.ExpectedLastSubjSeqHeader)
	delete(m.Header, jetstream.ExpectedLastSubjSeqSubjHeader)
}
