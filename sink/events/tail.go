package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Tail is what the stream of events has stored of a log, behind some place.
type Tail struct {
	publisher *Publisher
	source    Source

	reading chan struct{} // has something while one reads

	mu      sync.Mutex
	holders int
	from    uint64 // it has what is stored behind from, up to end
	end     uint64
	endTime time.Time // of the message at end; zero if it has none
	stored  map[Key]output
	offsets []Named       // that outputs name beside their own messages
	changed chan struct{} // closed when something is added; nil if nobody waits for that
}

// output is where the stream has an output.
type output struct {
	at uint64
	ts int64 // when its message was stored, Unix milliseconds; of an event or a warning: by when; 0 if it does not tell
}

// Named is a message of the log, as an output in the stream of events names it.
type Named struct {
	Seq       uint64 // in the log
	At        uint64 // sequence of the output in the stream of events
	Since, By int64  // when the log has stored it, Unix nanoseconds
}

// NewTail makes the tail of a log.
func (p *Publisher) NewTail(source Source) *Tail {
	return &Tail{publisher: p, source: source, reading: make(chan struct{}, 1)}
}

// Hold keeps what the tail has, until Release was called as often.
func (t *Tail) Hold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holders++
}

// Release gives up what the tail has, when nobody holds it any more.
func (t *Tail) Release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holders--; t.holders == 0 {
		t.begin(0)
		t.stored, t.offsets = nil, nil
	}
}

// begin begins anew behind a sequence. The caller has locked the mutex.
func (t *Tail) begin(from uint64) {
	t.from, t.end, t.endTime, t.stored, t.offsets = from, from, time.Time{}, make(map[Key]output), nil
}

// Cover makes sure that the tail has all that is stored behind from, up to a sequence, and nothing that
// the stream has lost since it was read. It ends when nothing comes any more. The caller holds it.
func (t *Tail) Cover(ctx context.Context, from, upTo uint64) error {
	select {
	case t.reading <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for a read of stream %s: %w", t.publisher.stream, context.Cause(ctx))
	}
	defer func() { <-t.reading }()
	t.mu.Lock()
	if t.stored == nil {
		t.begin(from)
	}
	first, end, endTime := t.from, t.end, t.endTime
	t.mu.Unlock()
	holds := false
	if !endTime.IsZero() {
		var err error
		asking, cancel := context.WithTimeout(ctx, standsAfter)
		holds, err = t.publisher.holds(asking, end, func(m *Stored) bool { return m.Time.Equal(endTime) })
		cancel()
		if err != nil {
			return err
		}
	}
	if !holds { // the stream has lost its end, and what was read of it
		first = min(first, from)
		t.mu.Lock()
		t.begin(first)
		t.mu.Unlock()
		end = first
	}
	if from < first {
		if err := t.publisher.read(ctx, from, first, t.add); err != nil {
			return err
		}
		t.mu.Lock()
		t.from = from
		t.mu.Unlock()
	}
	return t.publisher.read(ctx, end, upTo, t.add)
}

// add adds a stored message, as a direct get returns it.
func (t *Tail) add(m *nats.Msg, seq uint64) {
	at, _ := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer)) // zero: it is read again
	t.note(m.Header.Get(jetstream.SubjectHeader), m.Header, seq, at)
}

// note adds a stored message.
func (t *Tail) note(subject string, h nats.Header, seq uint64, at time.Time) {
	key, ok := t.source.keyOf(subject, h)
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq > t.end {
		t.end, t.endTime = seq, at
	}
	if !ok || key.Kind == keyFence || t.stored == nil || t.source.lost(key.Seq, seq) {
		return
	}
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
	by := ceTime
	if key.Kind == keyRejected {
		by = wire.HeaderTs // when its message was stored
	}
	var ts wire.Time
	_ = ts.UnmarshalText([]byte(h.Get(by))) // 0 if somebody else has published it
	t.stored[key] = output{seq, int64(ts)}
	if offset, stamp, ok := named(h); ok && !t.source.lost(offset, seq) {
		t.offsets = append(t.offsets, Named{Seq: offset, At: seq, Since: stamp, By: stamp})
	}
}

// Find is the place of an output, if the tail has it.
func (t *Tail) Find(m Message) (at Place, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stored, found := t.stored[m.Key]
	return Place{stored.at, m.Key}, found
}

// Named are the messages of the log behind a sequence that the outputs in the tail name, in their order:
// the version that has expired or will, the message that was rejected, and what Message.Name has named. Outputs up
// to a sequence of the stream are left out.
func (t *Tail) Named(behind, upTo uint64) (all []Named) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, output := range t.stored {
		one := Named{Seq: key.Seq, At: output.at, By: math.MaxInt64}
		if output.ts != 0 {
			one.By = (output.ts+1)*1e6 - 1
			if key.Kind == keyRejected {
				one.Since = output.ts * 1e6
			}
		}
		all = append(all, one)
	}
	all = slices.DeleteFunc(append(all, t.offsets...), func(n Named) bool { return n.Seq <= behind || n.At <= upTo })
	slices.SortFunc(all, func(a, b Named) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.At, b.At), cmp.Compare(a.Since, b.Since))
	})
	return all
}

// Changed is closed when something is added to the tail.
func (t *Tail) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

// Forget gives up what the tail has up to a sequence.
func (t *Tail) Forget(upTo uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stored == nil || upTo <= t.from || upTo > t.end {
		return
	}
	t.from = upTo
	maps.DeleteFunc(t.stored, func(_ Key, o output) bool { return o.at <= upTo })
	t.offsets = slices.DeleteFunc(t.offsets, func(n Named) bool { return n.At <= upTo })
}

// Follow adds what the stream stores behind what the tail has, until ctx is done. It is for a stream that is a
// mirror, and holds the tail meanwhile.
func (t *Tail) Follow(ctx context.Context) error {
	t.Hold()
	defer t.Release()
	t.mu.Lock()
	if t.stored == nil {
		t.begin(0)
	}
	end := t.end
	t.mu.Unlock()
	consumer, err := t.publisher.js.CreateConsumer(ctx, t.publisher.stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: end + 1, AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true,
	})
	if err != nil {
		return fmt.Errorf("read stream %s: %w", t.publisher.stream, err)
	}
	// No ordered consumer: one that has lost its connection cannot be stopped for many seconds.
	for delivered := uint64(0); ; {
		before := delivered
		if err := t.fetch(ctx, consumer, &delivered); err != nil {
			return fmt.Errorf("read stream %s: %w", t.publisher.stream, err)
		}
		if delivered > before {
			continue
		}
		info, err := consumer.Info(ctx)
		if err != nil {
			return fmt.Errorf("read stream %s: %w", t.publisher.stream, err)
		}
		if info.Delivered.Consumer != delivered {
			return fmt.Errorf("read stream %s: %w", t.publisher.stream, errMissed)
		}
	}
}

const (
	fetchFor  = time.Second
	fetchMost = 256 // messages
)

var errMissed = errors.New("a message was lost on the way")

// fetch adds what comes within a while. delivered is the number of messages that have come so far.
func (t *Tail) fetch(ctx context.Context, consumer jetstream.Consumer, delivered *uint64) error {
	fetching, cancel := context.WithTimeout(ctx, fetchFor)
	defer cancel()
	batch, err := consumer.Fetch(fetchMost, jetstream.FetchContext(fetching))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if *delivered++; meta.Sequence.Consumer != *delivered {
			return errMissed
		}
		t.note(m.Subject(), m.Headers(), meta.Sequence.Stream, meta.Timestamp)
	}
	if err := batch.Error(); err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return err
	}
	return nil
}
