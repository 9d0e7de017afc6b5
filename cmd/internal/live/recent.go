package live

import (
	"context"
	"fmt"
	"slices"
)

const (
	recentFirst = 128     // sequences that are looked at first; each further look is at twice as many
	recentMost  = 4096    // sequences that are looked at in all
	recentBytes = 8 << 20 // after which there is no further look
)

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
	name := h.prefix.EventsStream()
	stream, err := h.js.Stream(ctx, name)
	if err != nil {
		return nil, 0, fmt.Errorf("look up the stream %s: %w", name, err)
	}
	state, bytes := stream.CachedInfo().State, 0
	end := state.LastSeq // all behind it was looked at
	for look := uint64(recentFirst); len(messages) < n && bytes < recentBytes; look *= 2 {
		begin := max(state.FirstSeq, end-min(end, look)+1)
		if begin > end || state.LastSeq-begin >= recentMost {
			break
		}
		found, err := h.between(ctx, req.topic(), begin, end)
		if err != nil {
			return nil, 0, err
		}
		slices.Reverse(found)
		messages = append(messages, found...)
		for _, m := range found {
			bytes += len(m.Data)
		}
		end = begin - 1
	}
	return messages[:min(n, len(messages))], state.LastSeq, nil
}

// Find returns the message of a sequence; ok = false if the stream does not have it, or it is
// lapse's own.
func (h *Hub) Find(ctx context.Context, seq uint64) (m Message, ok bool, err error) {
	found, err := h.find(ctx, query{Seq: seq})
	if err != nil || found == nil {
		return m, false, err
	}
	m, ok = read(h.prefix, *found)
	return m, ok, nil
}

// between reads the messages of a topic from one sequence to another.
func (h *Hub) between(ctx context.Context, t topic, begin, end uint64) (found []Message, err error) {
	for begin <= end {
		some, last, err := h.batch(ctx, t, begin)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
		if last == 0 {
			break
		}
		begin = last + 1
	}
	return slices.DeleteFunc(found, func(m Message) bool { return m.Seq > end }), nil
}
