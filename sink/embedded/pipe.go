package embedded

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// mostUnread is how many bytes of commands wait in a connection within the process, before a
// client that writes more has to wait. Replies wait without a limit: a client that reads only once it
// has written all its commands would otherwise wait for ever.
const mostUnread = 128 << 10

// keptBuffer is the largest buffer that a connection keeps when it is empty.
const keptBuffer = 2 * mostUnread

// pipe makes a connection within the process. Unlike that of [net.Pipe], what one end writes waits
// until the other end reads it, so a pipeline costs as few turns as over a socket.
func pipe() (client, server net.Conn) {
	commands, replies := newHalf(mostUnread), newHalf(0)
	return &end{in: replies, out: commands}, &end{in: commands, out: replies}
}

// end is one end of a connection.
type end struct{ in, out *half }

func (e *end) Read(b []byte) (int, error)         { return e.in.read(b) }
func (e *end) Write(b []byte) (int, error)        { return e.out.write(b) }
func (e *end) LocalAddr() net.Addr                { return here{} }
func (e *end) RemoteAddr() net.Addr               { return here{} }
func (e *end) SetReadDeadline(t time.Time) error  { return e.in.change(func() { e.in.readBy = t }) }
func (e *end) SetWriteDeadline(t time.Time) error { return e.out.change(func() { e.out.writeBy = t }) }

func (e *end) SetDeadline(t time.Time) error {
	_ = e.SetReadDeadline(t) // neither fails
	return e.SetWriteDeadline(t)
}

func (e *end) Close() error {
	_ = e.in.change(func() { e.in.abandoned, e.in.data, e.in.from = true, nil, 0 })
	return e.out.change(func() { e.out.ended = true })
}

// here is the address of both ends.
type here struct{}

func (here) Network() string { return "pipe" }
func (here) String() string  { return "this process" }

// half is one direction of a connection.
type half struct {
	most int // bytes that wait in it; 0: any number

	mu              sync.Mutex
	changed         *sync.Cond
	data            []byte
	from            int  // the bytes before it were read
	ended           bool // nobody will write any more
	abandoned       bool // nobody will read any more
	readBy, writeBy time.Time
}

func newHalf(most int) *half {
	h := &half{most: most}
	h.changed = sync.NewCond(&h.mu)
	return h
}

func (h *half) change(do func()) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
	h.changed.Broadcast()
	return nil
}

func (h *half) read(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.from == len(h.data) {
		switch {
		case h.abandoned:
			return 0, net.ErrClosed
		case h.ended:
			return 0, io.EOF
		case late(h.readBy):
			return 0, os.ErrDeadlineExceeded
		}
		h.wait(h.readBy)
	}
	n := copy(b, h.data[h.from:])
	if h.from += n; h.from == len(h.data) {
		h.data, h.from = h.data[:0], 0
		if cap(h.data) > keptBuffer {
			h.data = nil
		}
	}
	h.changed.Broadcast()
	return n, nil
}

func (h *half) write(b []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.ended:
			return n, net.ErrClosed
		case h.abandoned:
			return n, io.ErrClosedPipe
		case late(h.writeBy):
			return n, os.ErrDeadlineExceeded
		}
		part := b[n:]
		if h.most > 0 {
			part = part[:min(len(part), h.most-(len(h.data)-h.from))]
		}
		if len(h.data)+len(part) > cap(h.data) && h.from > 0 {
			h.data, h.from = h.data[:copy(h.data, h.data[h.from:])], 0
		}
		h.data = append(h.data, part...)
		h.changed.Broadcast()
		if n += len(part); n == len(b) {
			return n, nil
		}
		h.wait(h.writeBy)
	}
}

// wait waits for a change, or for a time if it is not zero.
func (h *half) wait(until time.Time) {
	if !until.IsZero() {
		defer time.AfterFunc(time.Until(until), func() { _ = h.change(func() {}) }).Stop()
	}
	h.changed.Wait()
}

func late(by time.Time) bool { return !by.IsZero() && !time.Now().Before(by) }
