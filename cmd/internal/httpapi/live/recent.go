package live

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/synadia-io/orbit.go/jetstreamext"
)

const (
	recentFirst  = 128  // sequences that are looked at first; each further look is at twice as many
	recentMost   = 4096 // sequences that are looked at in all
	recentAtMost = 8 << 20
)

// Message is an event or a rejection, as clients get it.
type Message struct {
	Seq  uint64
	Data []byte
}

// Recent returns the last messages of a topic, the newest first, n at most, and the last sequence
// of the stream. It looks only at the end of the stream, so it may miss messages that are further
// back. A client that then follows from that sequence on misses nothing.
func (h *Hub) Recent(ctx context.Context, req Request, n int) (messages []Message, last uint64, err error) {
	select {
	case h.catching <- struct{}{}:
		defer func() { <-h.catching }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	stream, err := h.js.Stream(ctx, h.prefix.EventsStream())
	if err != nil {
		return nil, 0, fmt.Errorf("look up the stream %s: %w", h.prefix.EventsStream(), err)
	}
	state := stream.CachedInfo().State
	t := topic{req.Rejections, req.Collection}
	end, bytes := state.LastSeq, 0 // all behind end was looked at
	for look := uint64(recentFirst); end >= state.FirstSeq && end > 0 && len(messages) < n; look *= 2 {
		begin := max(state.FirstSeq, end-min(end-1, look-1))
		if state.LastSeq-begin >= recentMost {
			break
		}
		found, err := h.between(ctx, t, begin, end)
		if err != nil {
			return nil, 0, err
		}
		slices.Reverse(found)
		messages = append(messages, found...)
		for _, m := range found {
			bytes += len(m.Data)
		}
		if end = begin - 1; bytes > recentAtMost {
			break
		}
	}
	return messages[:min(n, len(messages))], state.LastSeq, nil
}

// between reads the messages of a topic from one sequence to another.
func (h *Hub) between(ctx context.Context, t topic, begin, end uint64) (found []Message, err error) {
	for begin <= end {
		batch, err := jetstreamext.GetBatch(ctx, h.js, h.prefix.EventsStream(), catchUpBatch,
			jetstreamext.GetBatchSubject(h.filter(t)), jetstreamext.GetBatchSeq(begin), jetstreamext.GetBatchMaxBytes(catchUpBytes))
		if err != nil {
			return nil, err
		}
		last := uint64(0)
		for msg, err := range batch {
			if errors.Is(err, jetstreamext.ErrNoMessages) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read the stream: %w", err)
			}
			if last = msg.Sequence; last > end {
				continue // to the end of the batch, or the library would wait for it
			}
			s := source{msg.Sequence, msg.Subject, msg.Header, msg.Data}
			if data, of, ok := content(h.prefix, s); ok && t.covers(of) {
				found = append(found, Message{s.seq, data})
			}
		}
		if last == 0 || last >= end {
			break
		}
		begin = last + 1
	}
	return found, nil
}
