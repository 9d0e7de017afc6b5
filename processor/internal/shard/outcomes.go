package shard

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/wire"
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
	inboxes   []string
	elsewhere Elsewhere
	here      chan fold.Outcome // of messages that this shard has applied, and perhaps not all others
}

// Elsewhere tells up to which sequence of the stream of configurations all shards have applied it.
type Elsewhere interface {
	Configured(ctx context.Context) (uint64, error)
}

// NewOutcomes makes the outcomes of a shard. They go to inboxes under wire.ReplyPrefix and some prefixes alone: the log
// may allow others, by the rules of a client that may configure, but this process sends nothing there.
func NewOutcomes(nc *nats.Conn, elsewhere Elsewhere, replyPrefixes []string) *Outcomes {
	const room = 1024 // more would be lost
	return &Outcomes{outbox: newOutbox(nc), inboxes: wire.Inboxes(replyPrefixes), elsewhere: elsewhere,
		here: make(chan fold.Outcome, room)}
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
		case one.Seq <= checkpoint || !wire.IsInbox(one.ReplyTo, o.inboxes):
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

const (
	// An outcome that nobody heard is sent again after firstAgain, then after twice as long, and so
	// on: tries times, for 10 s in all. A client that reconnects is back by then.
	firstAgain = 5 * time.Millisecond
	tries      = 11

	// How many outcomes are kept until a server may have said that nobody heard them. The answer
	// comes within a round trip.
	kept = 4096
	// How many outcomes wait to be sent again at most. When it is crowded, those that were sent
	// more often give up first: their clients will hardly listen any more.
	waitAtMost = 1024
)

// outbox sends outcomes to the inboxes of clients. A NATS server that knows no subscriber of an inbox drops what is
// sent there, and says so to the sender. The outcome is then sent again. A server of a cluster may hear of the inbox
// later than lapse of the message: the inbox comes straight from the server of the client, the message over the server
// that stores it. Of a batch of writes that wait for their outcomes, that takes 2 to 6 % of the throughput.
type outbox struct {
	nc    *nats.Conn
	reply string // the subject of what the server says, up to the number of the outcome

	mu      sync.Mutex
	last    uint64 // the number of the outcome that was sent last
	sent    [kept]sent
	waiting int // to be sent again
}

type sent struct {
	number uint64
	to     string
	body   []byte
	tries  int
}

func newOutbox(nc *nats.Conn) *outbox { return &outbox{nc: nc, reply: nc.NewInbox() + "."} }

// listen listens to what the server says, until the function that it returns is called.
func (o *outbox) listen() (end func(), err error) {
	sub, err := o.nc.Subscribe(o.reply+"*", func(m *nats.Msg) {
		number, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, o.reply), 10, 64)
		if err == nil && m.Header.Get("Status") == "503" {
			o.again(number)
		}
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

func (o *outbox) send(to string, body []byte) { o.sendOnce(sent{to: to, body: body}) }

func (o *outbox) sendOnce(s sent) {
	o.mu.Lock()
	o.last++
	s.number = o.last
	s.tries++
	o.sent[s.number%kept] = s
	o.mu.Unlock()
	reply := strconv.AppendUint(append(make([]byte, 0, 64), o.reply...), s.number, 10)
	_ = o.nc.PublishRequest(s.to, string(reply), s.body)
}

// again sends an outcome again that nobody heard, after a while.
func (o *outbox) again(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.sent[number%kept]
	if s.number != number || s.tries > tries || o.waiting >= waitAtMost/s.tries {
		return
	}
	o.sent[number%kept] = sent{}
	o.waiting++
	time.AfterFunc(firstAgain<<(s.tries-1), func() {
		o.mu.Lock()
		o.waiting--
		o.mu.Unlock()
		o.sendOnce(s)
	})
}
