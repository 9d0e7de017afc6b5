package events

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrFenced: the partition has another fence by now, so somebody else may be
// publishing what follows from its log.
var ErrFenced = errors.New("the partition has another fence in the stream of events")

// FenceRoom is what a fence may add to the size of a message.
const FenceRoom = 192

// Fence is the last message on the fence subject of a partition. A publication that
// names it is stored only as long as it is the last: so whoever fences a partition
// anew keeps out what others have on their way, however long it was held up.
//
// The zero Fence bars nobody.
type Fence struct {
	subject, seq []string  // values of the headers
	made         time.Time // zero if there is no message to grow old
}

// Unfenced is the fence of a partition that never had one.
func (p *Publisher) Unfenced(partition int) Fence {
	return p.fence(partition, 0)
}

// Fence fences a partition anew.
func (p *Publisher) Fence(ctx context.Context, partition int) (Fence, error) {
	if p.replicas > 1 {
		// A stream that is replicated stores one such publication after the other,
		// and refuses those that come in between.
		return Fence{}, nil
	}
	m := &nats.Msg{Subject: p.prefix.Fence(partition), Header: nats.Header{jetstream.ExpectedStreamHeader: {p.stream}}}
	ack, err := p.js.PublishMsg(ctx, m)
	if err != nil {
		return Fence{}, fmt.Errorf("publish to %s: %w", m.Subject, err)
	}
	f := p.fence(partition, ack.Sequence)
	f.made = time.Now()
	return f, nil
}

func (p *Publisher) fence(partition int, seq uint64) Fence {
	if p.replicas > 1 {
		return Fence{}
	}
	return Fence{
		subject: []string{p.prefix.Fence(partition)},
		seq:     []string{strconv.FormatUint(seq, 10)},
	}
}

// bars says whether publications with the fence are refused once there is another.
func (f *Fence) bars() bool { return f.seq != nil }

// Stale says whether the fence was made more than maxAge ago; 0 is for ever.
func (f *Fence) Stale(maxAge time.Duration) bool {
	return maxAge > 0 && !f.made.IsZero() && time.Since(f.made) > maxAge
}

func (f *Fence) guard(m *nats.Msg) {
	if f.bars() {
		m.Header[jetstream.ExpectedLastSubjSeqHeader] = f.seq
		m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = f.subject
	}
}

// refused makes ErrFenced of the server's answer that says so.
func refused(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	return err
}
