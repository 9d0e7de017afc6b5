package live

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed18712806/lapse/cmd/internal/access"
)

const (
	recentFirst = 16      // sequences that are looked at first; each further look is at twice as many
	recentMost  = 4096    // sequences that are looked at in all
	recentBytes = 8 << 20 // of messages, after which there is no further look
	recentHeld  = 4 << 20 // that a look holds: two batches, as they have come and as they are read
)

// Recent returns what keep makes of the last messages of a topic, the newest first, n at most, and the last sequence
// of the stream. It looks only at the end of the stream, and at some MiB of it, so it may miss messages that are further
// back. A client that then follows from that sequence on misses nothing.
//
// keep must not keep the data of a message: only what it returns stays in memory. Before it reads, Recent has the client
// hold the bytes of what it reads at a time.
func Recent[T any](ctx context.Context, h *Hub, req Request, n int, hold *access.Hold, keep func(Message) (T, bool)) (kept []T, last uint64, err error) {
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
