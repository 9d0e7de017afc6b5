package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/seed18712806/lapse/cmd/internal/ndjson"
)

// line is one line of an input without its end, or the reason why it cannot be read.
type line struct {
	number int // from 1
	text   []byte
	err    error
}

// lines sends the lines of an input that are not empty, until the input ends or ctx is
// done. A line of more than longest bytes comes as an error, and is not kept in memory.
// An error of the input itself comes last, with number 0.
func lines(ctx context.Context, r io.Reader, longest int) <-chan line {
	out := make(chan line)
	// A read of a terminal or a pipe cannot be interrupted: this goroutine may end only
	// with the process.
	go func() {
		defer close(out)
		in := ndjson.NewReader(r, longest)
		for {
			next, err := in.Next()
			l := line{number: next.Number, text: next.Text}
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				l = line{err: err}
			case next.TooLong:
				l.err = fmt.Errorf("the line has %d bytes: use at most %d", next.Size, longest)
			}
			select {
			case out <- l:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}
