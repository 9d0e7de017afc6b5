package events

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrFenced: the partition has another fence by now, so another process may be publishing the
// outputs of its log.
var ErrFenced = errors.New("the partition has another fence in the stream of events")

// Fence is the last message on the fence subject of a partition. A message that carries it is
// stored only as long as it is the last one. So a process that publishes a new fence keeps
// out what others have sent and the stream has not stored yet, however late that arrives.
//
// The zero Fence keeps nobody out.
type Fence struct {
	subject, seq []string  // values of the headers
	number       uint64    // seq; 0 if the partition never had a fence
	made         time.Time // zero if there is no message that the stream could remove
}

// Unfenced is the fence of a partition that never had one.
func (p *Publisher) Unfenced(partition int) Fence {
	return p.fence(partition, 0)
}

// Fence publishes a new fence for a partition. When it returns, the fence is stored for good,
// and so is each message that a former owner has got past it. It expects nothing of the stream,
// so that no publication in process can refuse it. If the answer is lost, the stream may store
// the fence later: then all fences before it are former ones.
func (p *Publisher) Fence(ctx context.Context, partition int) (Fence, error) {
	m := &nats.Msg{Subject: p.prefix.Fence(partition), Header: nats.Header{jetstream.ExpectedStreamHeader: {p.stream}}}
	ack, err := p.js.PublishMsg(ctx, m)
	if err != nil {
		return Fence{}, refusedBy(p.stream, m.Subject, err)
	}
	f := p.fence(partition, ack.Sequence)
	f.made = time.Now()
	return f, nil
}

func (p *Publisher) fence(partition int, seq uint64) Fence {
	return Fence{
		subject: []string{p.prefix.Fence(partition)},
		seq:     []string{strconv.FormatUint(seq, 10)},
		number:  seq,
	}
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
