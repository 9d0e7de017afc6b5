package access

import (
	"net/http"
	"slices"
	"time"
)

const (
	// piece is how much of an answer is sent at a time. What is not larger fits the buffers of the
	// connection, so that nobody waits for the client.
	piece = 64 << 10
	stall = 10 * time.Second // the longest that a client takes nothing
	whole = 30 * time.Second // and the longest that it takes for all
)

// Send sends an answer, whose header is set, in pieces. A client that takes none in time loses its connection.
// Until the end the request holds the bytes of an answer that does not fit the
// buffers of a connection. It returns an error only if nothing was sent.
func (h *Hold) Send(w http.ResponseWriter, status int, body []byte) error {
	if len(body) <= piece {
		if err := h.Bytes(0); err != nil {
			return err
		}
		w.WriteHeader(status)
		_, _ = w.Write(body) // it fails only if the client has left
		return nil
	}
	if err := h.Bytes(int64(len(body))); err != nil {
		return err
	}
	w.WriteHeader(status)
	rc, end := http.NewResponseController(w), time.Now().Add(whole)
	for part := range slices.Chunk(body, piece) {
		deadline := time.Now().Add(stall)
		if deadline.After(end) {
			deadline = end
		}
		_ = rc.SetWriteDeadline(deadline) // within the process there is no connection
		if _, err := w.Write(part); err != nil {
			return nil // the client has left
		}
	}
	return nil
}
