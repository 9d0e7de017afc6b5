package access

import (
	"net/http"
	"slices"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
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

// compress keeps no state between two writes: a client that is slow to take its answer holds no
// compressor. The padding hides the size of an answer from somebody who listens, and could otherwise
// guess, by documents of their own, what else is in it (BREACH).
var compress = func() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.StatelessCompression), gzhttp.EnableZstd(false),
		gzhttp.RandomJitter(32, 0, false))
	if err != nil {
		panic(err) // the options are fixed
	}
	return wrap
}()

// Compressed compresses the answers of a handler, from 1 KiB on, for clients that accept gzip. It is not
// for answers with an ETag: a strong one names bytes, and clients send it back in If-Match.
func Compressed(h http.Handler) http.Handler { return compress(h) }
