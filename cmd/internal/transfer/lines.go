package transfer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
		in := bufio.NewReaderSize(r, 64<<10)
		for number := 1; ; number++ {
			text, size, err := readLine(in, longest)
			if number == 1 {
				text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // a byte order mark
			}
			text = bytes.TrimSpace(text)
			l := line{number: number, text: text}
			switch {
			case err != nil && !errors.Is(err, io.EOF):
				l = line{err: err}
			case size > longest:
				l = line{number: number, err: fmt.Errorf("the line has %d bytes: use at most %d, the largest message that the server takes", size, longest)}
			case len(text) == 0:
				if err != nil {
					return
				}
				continue
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

// readLine reads a line and counts its bytes. It drops the bytes of a line that is too long.
func readLine(in *bufio.Reader, longest int) (text []byte, size int, err error) {
	for {
		part, err := in.ReadSlice('\n')
		size += len(part)
		if size <= longest+2 { // the end of the line does not count
			text = append(text, part...)
		} else {
			text = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			size -= len(part) - len(bytes.TrimRight(part, "\r\n"))
			return text, size, err
		}
	}
}
