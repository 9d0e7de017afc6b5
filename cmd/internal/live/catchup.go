package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/events"
)

const (
	mostCatchingUp = 32 // batches that are read for clients at a time; others wait
	catchUpBatch   = 256
	catchUpBytes   = 1 << 20
	catchUpHeld    = 3 * catchUpBytes // as it has come, and as it is sent, with a message beyond the limit
	requestWithin  = 5 * time.Second
)

// filter is the subject that matches all messages of a topic. Rejections of configurations have a
// subject of another form, and due messages have no collection there, so the filter matches those of all
// collections, and next picks. Changes have messages of several kinds, so it matches the whole stream.
func (h *Hub) filter(t topic) string {
	if t.kind == Changed {
		return string(h.prefix) + ".>"
	}
	if t.collection == "" || t.kind == Rejected || t.kind == Due {
		return h.all(t.kind)
	}
	return string(h.prefix) + "." + string(t.kind) + "." + t.collection + ".>"
}

// all is the subject that matches all messages of a kind.
func (h *Hub) all(kind Kind) string { return string(h.prefix) + "." + string(kind) + ".>" }

// catchUp sends what the client's topic has behind its position, until the ring has all that follows. The client holds
// a batch, from before it is read until it is sent.
func (s *stream) catchUp(ctx context.Context) error {
	defer func() { _ = s.hold.Bytes(s.held()) }() // to give back cannot fail
	for {
		if err := s.hold.Expect(ctx, s.held()+catchUpHeld); err != nil {
			return err
		}
		frames, last, err := s.next(ctx)
		if err != nil {
			return err
		}
		if err := s.send(frames); err != nil {
			return err
		}
		from, end := s.tail.ring.bounds()
		if last > s.position {
			if s.position = last; last >= from {
				return nil
			}
			continue
		}
		// A replica answers these requests, and it may be behind what the ring has. The leader
		// knows whether there is more.
		found, err := s.hub.find(ctx, query{Seq: s.position + 1, NextFor: s.hub.filter(s.topic)})
		switch {
		case err != nil:
			return err
		case found == nil:
			s.position = max(s.position, end)
			return nil
		}
		if m, ok := read(s.hub.prefix, found); ok && s.topic.covers(m.About) && !s.state.Has(m.Seq, m.About) {
			if err := s.send(m.message().frames(s.topic)); err != nil {
				return err
			}
		}
		s.position = found.Sequence
	}
}

// next reads a batch behind the position. It returns the frames, and the sequence of the last
// message.
func (s *stream) next(ctx context.Context) (frames [][]byte, last uint64, err error) {
	h := s.hub
	select {
	case h.catching <- struct{}{}:
		defer func() { <-h.catching }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	messages, last, err := h.batch(ctx, s.topic, s.position+1)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range messages {
		if !s.state.Has(m.Seq, m.About) {
			frames = append(frames, m.message().frames(s.topic)...)
		}
	}
	return frames, last, nil
}

// batch reads messages from a sequence on. It returns those of the topic, and the sequence of the
// last one that it has read; 0 if there is none.
func (h *Hub) batch(ctx context.Context, t topic, from uint64) (messages []Message, last uint64, err error) {
	batch, err := jetstreamext.GetBatch(ctx, h.js, h.prefix.EventsStream(), catchUpBatch,
		jetstreamext.GetBatchSubject(h.filter(t)), jetstreamext.GetBatchSeq(from),
		jetstreamext.GetBatchMaxBytes(catchUpBytes))
	if err != nil {
		return nil, 0, err
	}
	for msg, err := range batch {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			break
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read the stream: %w", err)
		}
		last = msg.Sequence
		if m, ok := read(h.prefix, msg); ok && t.covers(m.About) {
			messages = append(messages, m)
		}
	}
	return messages, last, nil
}

// query asks for the first message of a subject from a sequence or an instant on; without a
// subject, for the message of the sequence.
type query struct {
	Seq     uint64     `json:"seq,omitempty"`
	Start   *time.Time `json:"start_time,omitempty"`
	NextFor string     `json:"next_by_subj,omitempty"`
}

// find asks the leader of the stream; nil if there is no such message.
func (h *Hub) find(ctx context.Context, q query) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	m, err := events.GetMessage(ctx, h.client.Conn(), h.prefix.EventsStream(), q)
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	if m == nil {
		return nil, nil
	}
	header := nats.Header{}
	if len(m.Header) > 0 {
		if header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return nil, fmt.Errorf("read the stream: %w", err)
		}
	}
	return &jetstream.RawStreamMsg{Sequence: m.Seq, Time: m.Time, Subject: m.Subject, Header: header, Data: m.Data}, nil
}

const (
	recentFirst = 16      // sequences that are looked at first; each further look is at twice as many
	recentMost  = 4096    // sequences that are looked at in all
	recentBytes = 8 << 20 // of messages, after which there is no further look
	recentHeld  = 4 << 20 // that a look holds: two batches, as they have come and as they are read
)

// Recent returns what keep makes of the last messages of a topic, the newest first, n at most, and the last sequence
// of the stream. It looks only at the end of the stream, and at some MiB of it, so it may miss messages that are
// further back. A client that then follows from that sequence on misses nothing.
//
// keep must not keep the data of a message: only what it returns stays in memory. Before it reads, Recent has the
// client hold the bytes of what it reads at a time.
func Recent[T any](
	ctx context.Context, h *Hub, req Request, n int, hold *access.Hold, keep func(Message) (T, bool),
) (kept []T, last uint64, err error) {
	select {
	case h.catching <- struct{}{}:
		defer func() { <-h.catching }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if err := hold.Expect(ctx, recentHeld); err != nil {
		return nil, 0, err
	}
	name := h.prefix.EventsStream()
	stream, err := h.js.Stream(ctx, name)
	if err != nil {
		return nil, 0, fmt.Errorf("look up the stream %s: %w", name, err)
	}
	state, size := stream.CachedInfo().State, 0
	end := state.LastSeq // all behind it was looked at
	for look := uint64(recentFirst); len(kept) < n && size < recentBytes; look *= 2 {
		begin := max(state.FirstSeq, end-min(end, look)+1)
		if begin > end || state.LastSeq-begin >= recentMost {
			break
		}
		var found []T
		for from := begin; from <= end; { // a batch at a time
			some, next, err := h.batch(ctx, req.topic(), from)
			if err != nil {
				return nil, 0, err
			}
			for _, m := range some {
				if m.Seq > end {
					continue
				}
				size += len(m.Data)
				if one, ok := keep(m); ok {
					found = append(found, one)
				}
			}
			if next == 0 {
				break
			}
			from = next + 1
		}
		slices.Reverse(found)
		kept = append(kept, found...)
		end = begin - 1
		if size > recentBytes/4 { // what is left has room for as many as there were, and no more
			look /= 2
		}
	}
	return kept[:min(n, len(kept))], state.LastSeq, nil
}

// findHeld is what Find holds: a message as it has come, and as it is read.
const findHeld = 4 << 20

// Find returns the message of a sequence; ok = false if the stream does not have it, or it is
// lapse's own.
func (h *Hub) Find(ctx context.Context, seq uint64, hold *access.Hold) (m Message, ok bool, err error) {
	if err := hold.Expect(ctx, findHeld); err != nil {
		return m, false, err
	}
	found, err := h.find(ctx, query{Seq: seq})
	if err != nil || found == nil {
		return m, false, err
	}
	m, ok = read(h.prefix, found)
	return m, ok, nil
}
