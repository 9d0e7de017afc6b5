package access

import (
	"net/http"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
)

// compress keeps no state between two writes: a client that is slow to take its answer holds no
// compressor. The padding hides the size of an answer from somebody who listens, and could otherwise
// guess, by documents of their own, what else is in it (BREACH).
var compress = func() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.StatelessCompression), gzhttp.EnableZstd(false), gzhttp.RandomJitter(32, 0, false))
	if err != nil {
		panic(err) // the options are fixed
	}
	return wrap
}()

// Compressed compresses the answers of a handler, from 1 KiB on, for clients that accept gzip. It is not
// for answers with an ETag: a strong one names bytes, and clients send it back in If-Match.
func Compressed(h http.Handler) http.Handler { return compress(h) }
