package load

import (
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Writer makes a write that publishes documents and does not wait, and a flush that waits
// until all are acknowledged.
func Writer(js jetstream.JetStream, message func(ld Load, i, ttl int) *nats.Msg) (write func(Load, int, int, int) error, flush func() error) {
	var waits []func() error
	write = func(ld Load, from, to, ttl int) error {
		w, err := Publish(js, from, to, func(i int) *nats.Msg { return message(ld, i, ttl) })
		waits = append(waits, w)
		return err
	}
	flush = func() error {
		for _, w := range waits {
			if err := w(); err != nil {
				return err
			}
		}
		waits = nil
		return nil
	}
	return write, flush
}
