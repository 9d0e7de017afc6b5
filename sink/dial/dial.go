// Package dial dials NATS so that a message is sent on the connection that its sender means, or not at all.
//
// A NATS server that loses power may lose messages that it had acknowledged. Then the client reconnects by itself. A
// goroutine that had checked the connection before, and sends afterwards, would store its message in the place of a
// lost one. The client library has no call that checks and sends in one step. So a [Dialer] makes no new connection
// while somebody sends.
package dial

import (
	"errors"
	"net"
	"sync"

	"github.com/nats-io/nats.go"
)

// errSending: the library tries again after its ReconnectWait. What is being sent fails meanwhile.
var errSending = errors.New("a message is being sent on the former connection")

// Dialer is the dialer of one connection of the client library ([nats.SetCustomDialer]). The connection needs
// [nats.ReconnectBufSize] of -1: otherwise the library keeps what is sent while there is no connection, and sends it
// on the next one.
type Dialer struct {
	by nats.CustomDialer

	mu      sync.Mutex
	number  uint64 // of the connection
	senders int
}

// New makes a Dialer that dials by another one.
func New(by nats.CustomDialer) *Dialer { return &Dialer{by: by} }

// Dial implements [nats.CustomDialer]. It fails while somebody sends. The library holds a mutex meanwhile that the
// sender may need, so Dial does not wait for it.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	if !d.next() {
		return nil, errSending
	}
	return d.by.Dial(network, address)
}

// next begins with a new number, unless somebody sends.
func (d *Dialer) next() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.senders > 0 {
		return false
	}
	d.number++
	return true
}

// Number is the number of the connection. It changes each time before there is another one.
func (d *Dialer) Number() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.number
}

// Begin reports whether the connection still has a number. If so, what is sent until End was called is sent on that
// connection or fails.
func (d *Dialer) Begin(number uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.number != number {
		return false
	}
	d.senders++
	return true
}

// End ends what Begin has begun.
func (d *Dialer) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.senders--
}
