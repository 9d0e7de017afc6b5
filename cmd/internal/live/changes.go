package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	changesHeld = 4 << 20 // a page of documents, and the messages that NATS has sent ahead
	idHeld      = 64      // of a document at the beginning, beside its id
)

// Changes sends the changes of a collection, which a client watches, until the connection ends, and says why
// it did. It returns an error only if nothing was sent. Each connection has a consumer of its own, because it
// begins with the documents as they are. So it holds what that has read ahead, and the ids of the documents.
func (h *Hub) Changes(w http.ResponseWriter, r *http.Request, c *client.Client, opts client.WatchOptions, hold *access.Hold) (Reason, error) {
	if h.closed.Err() != nil {
		return Stopping, ErrClosed
	}
	if err := hold.Bytes(changesHeld); err != nil {
		return Failed, err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer context.AfterFunc(h.closed, cancel)()
	frames, ended := make(chan []byte), make(chan error, 1)
	deliver := func(frame []byte) error {
		select {
		case frames <- frame:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	opts.Watching = func([]string) { _ = deliver(nil) }
	watched, held := make(chan struct{}), int64(changesHeld)
	go func() {
		defer close(watched)
		ended <- c.Watch(ctx, opts, func(n client.Notification) error {
			if n.Document != nil {
				held += int64(len(n.Document.ID)) + idHeld
				if err := hold.Bytes(held); err != nil {
					return err
				}
			}
			return deliver(changeFrame(n))
		})
	}()
	s := &stream{hub: h, w: w, rc: http.NewResponseController(w)}
	begun, err := s.relay(frames, ended)
	cancel()
	<-watched // it uses the hold
	reason := h.reason(err, r.Context())
	switch {
	case !begun:
		return reason, err
	case reason == Slow:
		_ = s.send([][]byte{notice("dropped", err.Error()+": connect again, with the id of the last message")})
	case reason == Failed && err != nil:
		_ = s.send([][]byte{notice("dropped", "the changes could not be read ("+err.Error()+"): connect again, with the id of the last message")})
	}
	return reason, nil
}

// relay sends what comes until the watch has ended, or the client takes nothing any more. begun reports
// whether anything was sent.
func (s *stream) relay(frames <-chan []byte, ended <-chan error) (begun bool, err error) {
	heartbeat := time.NewTicker(heartbeatEvery)
	defer heartbeat.Stop()
	for {
		var next []byte
		select {
		case next = <-frames:
		case err := <-ended:
			return begun, err
		case <-heartbeat.C:
			if !begun {
				continue
			}
			next = []byte(":\n\n")
		}
		if !begun {
			if err := s.open(nil); err != nil {
				return false, errors.Join(err, errLeft)
			}
			begun = true
		}
		if err := s.send([][]byte{next}); err != nil {
			return begun, err
		}
	}
}

// changeFrame writes a notification of a watch for the client. Its name is what it is.
func changeFrame(n client.Notification) []byte {
	id := strconv.FormatUint(n.Seq, 10)
	switch {
	case n.Current:
		return frame("current", id, []byte("{}"))
	case n.Document != nil:
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(n.Document) // the document is valid JSON
		return frame("stored", "", bytes.TrimSpace(b.Bytes()))
	case n.Expired != nil:
		return frame(string(Expired), id, n.Expired.Encode())
	case n.Due != nil:
		return frame(string(Due), id, n.Due.Encode())
	}
	kind := n.Changed.Kind()
	if n.Changed.Type == wire.TypeDropped {
		kind = "collection-dropped" // "dropped" is what every stream calls the end of a connection
	}
	return frame(kind, id, n.Changed.Encode())
}
