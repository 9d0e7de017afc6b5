package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// pageHeld is what a page of documents takes, as it has come and as it is sent.
const pageHeld = 4 << 20

// Changes sends the changes of a collection until the connection ends, and says why it did. It returns an error only if
// nothing was sent. Unless the stream has all behind req.After, it begins with the documents as they are. While it
// reads them, the client holds a page of them.
func (h *Hub) Changes(w http.ResponseWriter, r *http.Request, req Request, hold *access.Hold) (Reason, error) {
	req.Kind = Changed
	s := &stream{hub: h, topic: req.topic(), hold: hold, w: w, rc: http.NewResponseController(w)}
	return s.serve(r, func(ctx context.Context) error { return s.beginChanges(ctx, req) })
}

// beginChanges sends the header and, unless the client goes on behind its position, the documents.
func (s *stream) beginChanges(ctx context.Context, req Request) error {
	goesOn, err := s.hub.reachesBack(ctx, req.After)
	if err != nil {
		return err
	}
	if goesOn {
		s.position = *req.After
		return s.open(nil)
	}
	if err := s.hold.Expect(ctx, streamHeld+pageHeld); err != nil {
		return err
	}
	base := s.hold.Size()
	state, err := s.hub.client.Documents(ctx, req.Collection, req.ID, func(page []wire.Document, held int64) error {
		if err := s.hold.Bytes(base + held); err != nil {
			return err
		}
		return s.sendPage(page)
	})
	if err != nil {
		return err
	}
	s.position, s.state = state.After, &state
	if err := s.hold.Bytes(s.held()); err != nil {
		return err
	}
	return s.sendAll(frame("current", strconv.FormatUint(state.After, 10), []byte("{}")))
}

// reachesBack reports whether the stream still has all behind a sequence, if there is one.
func (h *Hub) reachesBack(ctx context.Context, after *uint64) (bool, error) {
	if after == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	stream, err := h.js.Stream(ctx, h.prefix.EventsStream())
	if err != nil {
		return false, fmt.Errorf("look up the stream %s: %w", h.prefix.EventsStream(), err)
	}
	return client.ReachesBack(after, stream.CachedInfo().State), nil
}

// sendPage sends documents.
func (s *stream) sendPage(page []wire.Document) error {
	frames := make([][]byte, 0, len(page))
	for i := range page {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(page[i]) // the document is valid JSON
		frames = append(frames, frame("stored", "", bytes.TrimSpace(b.Bytes())))
	}
	return s.sendAll(frames...)
}

// sendAll sends frames, and the header before the first ones.
func (s *stream) sendAll(frames ...[]byte) error {
	if !s.opened {
		if err := s.open(nil); err != nil {
			return err
		}
	}
	return s.send(frames)
}
