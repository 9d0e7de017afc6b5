package client

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/seed18712806/lapse/sink/credentials"
)

// denials tells exchanges what the server does not permit them. The server sends no answer
// to a message that it denies, but a notice to the connection, some time later.
type denials struct {
	mu     sync.Mutex
	last   int
	tellTo map[int]exchange
}

// exchange is something that waits for the server.
type exchange struct {
	publishes func(subject string) bool // whether it does, to this subject
	tell      func(error)
}

// expect calls tell when the server denies a subject to which the exchange publishes, or any
// subscription, until forget is called: without its inbox no exchange gets an answer.
func (d *denials) expect(tell func(error), publishes func(subject string) bool) (forget func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	n := d.last
	if d.tellTo == nil {
		d.tellTo = make(map[int]exchange)
	}
	d.tellTo[n] = exchange{publishes, tell}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.tellTo, n)
	}
}

// handle handles an error of the connection. It reports whether an exchange waits for it.
func (d *denials) handle(err error) bool {
	denied := credentials.AsDenied(err)
	if denied == nil {
		return false
	}
	d.mu.Lock()
	exchanges := slices.Collect(maps.Values(d.tellTo))
	d.mu.Unlock()
	told := false
	for _, e := range exchanges {
		if denied.Subscribe || e.publishes(denied.Subject) {
			e.tell(deniedError(denied))
			told = true
		}
	}
	return told
}

func deniedError(d *credentials.Denied) error {
	text := d.Error()
	if d.Subscribe {
		text += ": give the prefix of the inboxes that it may use, such as _INBOX.orders"
	}
	return &classified{[]error{ErrDenied}, text}
}

func refused(where string, err error) error {
	return &classified{[]error{ErrDenied}, fmt.Sprintf("the NATS server at %s refuses these credentials (%s): use another user, or another file", where, err)}
}
