package live

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	heartbeatEvery = 15 * time.Second
	sendWithin     = 20 * time.Second // a client that takes nothing for so long is dropped
	sendBytes      = 256 << 10        // about the most that is sent at a time
	streamHeld     = 16 << 10         // bytes that a client holds at least: the buffers of its connection
	reconnectAfter = "1000"           // milliseconds, for the client
	settleWithin   = 2 * time.Second  // a new leader of the stream knows its end by then
	settleEvery    = 100 * time.Millisecond
)

// Request says what a client follows.
type Request struct {
	Kind       Kind       // Expired if empty
	Collection string     // all if empty
	ID         string     // of a document whose changes to follow; all if empty
	After      *uint64    // begin behind this sequence
	Since      *time.Time // or with what was stored from then on; with what is new if both are nil
}

func (r Request) topic() topic { return topic{cmp.Or(r.Kind, Expired), r.Collection, r.ID} }

// Reason is why a client's connection has ended.
type Reason string

// The reasons.
const (
	Left     Reason = "left"     // the client closed it
	Slow     Reason = "slow"     // the client fell behind
	Failed   Reason = "failed"   // the stream could not be read
	Stopping Reason = "stopping" // the process ends
)

// Reasons lists every reason.
var Reasons = []Reason{Left, Slow, Failed, Stopping}

var (
	errSlow = errors.New("the client took nothing, or less than was published")
	errLeft = errors.New("the client has left")
)

// Serve sends what a client follows until the connection ends, and says why it did. It
// returns an error only if nothing was sent. The client holds what it reads by itself. The messages of the ring
// are there once for all: what slow clients keep of them is at most a ring, and what is published until they are
// dropped.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, req Request, hold *access.Hold) (Reason, error) {
	s := &stream{hub: h, topic: req.topic(), hold: hold, w: w, rc: http.NewResponseController(w)}
	return s.serve(r, func(ctx context.Context) error { return s.begin(ctx, req) })
}

// serve follows the end of the stream, once begin has found the position.
func (s *stream) serve(r *http.Request, begin func(context.Context) error) (Reason, error) {
	h := s.hub
	if err := s.hold.Bytes(streamHeld); err != nil {
		return Failed, err
	}
	t, err := h.join(r.Context())
	if err != nil {
		return Failed, err
	}
	defer h.leave()
	s.tail = t
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.closed, cancel)()
	defer context.AfterFunc(t.done, cancel)()
	if err = begin(ctx); err == nil {
		err = s.run(ctx)
	}
	if !s.opened {
		return Failed, err
	}
	reason := h.reason(err, r.Context())
	switch reason {
	case Slow:
		_ = s.send([][]byte{notice("dropped", err.Error()+": connect again, with the id of the last message")})
	case Failed:
		if err == nil || errors.Is(err, context.Canceled) {
			err = errors.New("the reading has ended")
		}
		_ = s.send([][]byte{notice("dropped", "the stream of events could not be read ("+err.Error()+"): connect again, "+
			"with the id of the last message")})
	}
	return reason, nil
}

// reason finds out why a stream has ended. When a write has failed, net/http ends the context of
// the request, also that of a client that is slow and has not left.
func (h *Hub) reason(err error, request context.Context) Reason {
	switch {
	case errors.Is(err, errSlow):
		return Slow
	case errors.Is(err, errLeft), request.Err() != nil:
		return Left
	case h.closed.Err() != nil:
		return Stopping
	}
	return Failed
}

// stream is one client.
type stream struct {
	hub      *Hub
	tail     *tail
	topic    topic
	position uint64        // all messages up to it were sent
	state    *client.State // with which changes began; nil if there is none, or no longer
	opened   bool          // the header was sent
	hold     *access.Hold
	w        http.ResponseWriter
	rc       *http.ResponseController
}

// begin finds the position at which the client begins, and sends the header.
func (s *stream) begin(ctx context.Context, req Request) error {
	_, s.position = s.tail.ring.bounds()
	var greeting []byte
	switch {
	case req.After != nil:
		s.position = *req.After
		lost, err := s.lost(ctx)
		if err != nil {
			return err
		}
		greeting = lost
	case req.Since != nil:
		found, err := s.hub.find(ctx, query{Start: req.Since, NextFor: s.hub.filter(s.topic)})
		if err != nil {
			return err
		}
		if found != nil {
			s.position = min(s.position, found.Sequence-1)
		}
	}
	return s.open(greeting)
}

// open sends the header, and a greeting behind the time after which the client connects again.
func (s *stream) open(greeting []byte) error {
	// The server's limits are for requests that end.
	if err := errors.Join(s.rc.SetReadDeadline(time.Time{}), s.rc.SetWriteDeadline(time.Time{})); err != nil {
		return err
	}
	s.opened = true
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no") // nginx would hold events back
	s.w.WriteHeader(http.StatusOK)
	return s.send([][]byte{[]byte("retry: " + reconnectAfter + "\n\n"), greeting})
}

// lost is a notice if the stream does not have all that followed the position: it no longer
// reaches back to it, or it ends before it, because somebody has restored an older backup. In
// the latter case the client goes on from the end.
func (s *stream) lost(ctx context.Context) ([]byte, error) {
	if from, last := s.tail.ring.bounds(); s.position >= from && s.position <= last {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	for began := time.Now(); ; {
		found, err := s.hub.js.Stream(ctx, s.hub.prefix.EventsStream())
		if err != nil {
			return nil, err
		}
		info := found.CachedInfo()
		switch {
		case s.position+1 < info.State.FirstSeq:
			return notice("gap", "the stream of events no longer reaches back to this id: some messages after it may be "+
				"missing"), nil
		case s.position <= info.State.LastSeq:
			return nil, nil
		case info.Config.Replicas <= 1 || time.Since(began) > settleWithin:
			s.position = info.State.LastSeq
			return notice("gap", "the stream of events ends before this id, perhaps after a restore: some messages may be "+
				"missing"), nil
		}
		// A leader that was elected just now may be behind what the client has seen.
		select {
		case <-time.After(settleEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// run sends until ctx is done, the client is slow or the stream cannot be read.
func (s *stream) run(ctx context.Context) error {
	if from, _ := s.tail.ring.bounds(); s.position < from {
		if err := s.catchUp(ctx); err != nil {
			return err
		}
	}
	heartbeat := time.NewTicker(heartbeatEvery)
	defer heartbeat.Stop()
	for ctx.Err() == nil {
		s.forget()
		frames, position, wait, ok := s.tail.ring.read(s.topic, s.position, sendBytes, s.state)
		switch {
		case !ok:
			return errSlow
		case wait == nil:
			if err := s.send(frames); err != nil {
				return err
			}
			s.position = position
			continue
		}
		select {
		case <-wait.come:
			s.position = max(position, wait.first-1)
		case <-heartbeat.C:
			s.tail.ring.leave(s.topic, wait)
			s.position = position
			if err := s.send([][]byte{[]byte(":\n\n")}); err != nil {
				return err
			}
		case <-ctx.Done():
			s.tail.ring.leave(s.topic, wait)
		}
	}
	return ctx.Err()
}

// held is how many bytes the client holds while it waits.
func (s *stream) held() int64 {
	if s.state == nil {
		return streamHeld
	}
	return streamHeld + s.state.Held()
}

// forget gives the state back with which changes began, once only later messages come.
func (s *stream) forget() {
	if s.state != nil && s.position >= s.state.End {
		s.state = nil
		_ = s.hold.Bytes(s.held()) // to give back cannot fail
	}
}

// send sends frames to the client.
func (s *stream) send(frames [][]byte) error {
	if len(frames) == 0 {
		return nil
	}
	deadline := time.Now().Add(sendWithin)
	if s.rc.SetWriteDeadline(deadline) != nil {
		return errLeft
	}
	var err error
	for _, f := range frames {
		if _, err = s.w.Write(f); err != nil {
			break
		}
	}
	if err == nil {
		err = s.rc.Flush()
	}
	switch {
	case err == nil:
		return nil
	case time.Now().Before(deadline):
		return errLeft
	}
	return errSlow
}

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
