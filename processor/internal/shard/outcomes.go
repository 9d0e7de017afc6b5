package shard

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/fold"
)

const (
	// How often other shards are asked whether they have applied a configuration, and for how
	// long: by then the client has given up.
	elsewhereFirst  = 2 * time.Millisecond
	elsewhereAtMost = 100 * time.Millisecond
	elsewhereFor    = time.Minute
)

// Outcomes sends clients the outcomes of their messages: after the commit, and of a configuration or a drop after all
// shards have committed it. An outcome is lost if the process dies in between, or if nobody listens for 10 s, and may
// be sent twice after a rebuild.
type Outcomes struct {
	outbox    *outbox // nil in a region that follows another one: the first region sends them
	elsewhere Elsewhere
	here      chan fold.Outcome // of messages that this shard has applied, and perhaps not all others
}

// Elsewhere tells up to which sequence of the stream of configurations all shards have applied it.
type Elsewhere interface {
	Configured(ctx context.Context) (uint64, error)
}

// NewOutcomes makes the outcomes of a shard.
func NewOutcomes(nc *nats.Conn, elsewhere Elsewhere) *Outcomes {
	const room = 1024 // more would be lost
	return &Outcomes{outbox: newOutbox(nc), elsewhere: elsewhere, here: make(chan fold.Outcome, room)}
}

// NoOutcomes are those of a region that follows another one: it sends none.
func NoOutcomes() *Outcomes { return &Outcomes{} }

// Send sends outcomes, except those that were sent before a rebuild: they are at or before
// the checkpoint. Those of the stream of configurations wait for the other shards.
func (o *Outcomes) Send(checkpoint uint64, list []fold.Outcome) {
	if o.outbox == nil {
		return
	}
	for _, one := range list {
		switch {
		case one.Seq <= checkpoint:
		case one.Source == 0:
			o.send(one)
		default:
			select {
			case o.here <- one:
			default:
			}
		}
	}
}

func (o *Outcomes) send(one fold.Outcome) {
	if b, err := json.Marshal(one.Body); err == nil {
		o.outbox.send(one.ReplyTo, b)
	}
}

// Run sends again what nobody heard, and sends the outcomes of configurations that the other
// shards have applied too, until ctx is done.
func (o *Outcomes) Run(ctx context.Context) {
	if o.outbox == nil {
		return
	}
	end, err := o.outbox.listen()
	if err != nil {
		return // the connection is closed
	}
	defer end()
	var waiting []fold.Outcome
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-o.here:
			waiting = append(waiting, one)
		}
		wait, began := elsewhereFirst, time.Now()
		for time.Since(began) < elsewhereFor {
			if configured, err := o.elsewhere.Configured(ctx); err == nil {
				waiting = slices.DeleteFunc(waiting, func(one fold.Outcome) bool {
					if one.Source > configured {
						return false
					}
					o.send(one)
					return true
				})
			}
			if len(waiting) == 0 || !backoff.Wait(ctx, wait) {
				break
			}
			wait = min(2*wait, elsewhereAtMost)
			for len(o.here) > 0 {
				waiting, wait, began = append(waiting, <-o.here), elsewhereFirst, time.Now()
			}
		}
		waiting = nil
	}
}
