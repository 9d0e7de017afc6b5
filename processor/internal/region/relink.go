package region

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// relinker makes the mirrors go on soon after the link to the first region is up again. To go on, a mirror asks the
// first region for a consumer. If the link is down for more than 10 s, nats-server 2.15 may have sent such a
// request into the void, and waits 30 s for the answer before it asks again: then a mirror goes on up to 40 s after
// the link is up (measured: 30 to 40 s after cuts of 10, 11, 14, 20 and 60 s). The relinker hears the requests,
// and sends those again whose answer may have been lost: the mirrors go on within 0.2 s.
type relinker struct {
	nc     *nats.Conn
	domain string

	mu       sync.Mutex
	requests map[string]request // of each mirror, the last
}

type request struct {
	msg *nats.Msg
	at  time.Time
}

// answerWithin is how long a mirror waits for the answer to its request.
const answerWithin = 30 * time.Second

func newRelinker(nc *nats.Conn, domain string) *relinker {
	return &relinker{nc: nc, domain: domain, requests: map[string]request{}}
}

// listen hears the requests until ctx is done.
func (r *relinker) listen(ctx context.Context) error {
	sub, err := r.nc.Subscribe("$JS."+r.domain+".API.CONSUMER.CREATE.*", r.heard)
	if err != nil {
		return fmt.Errorf("listen to the requests of the mirrors: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	longer, err := r.nc.Subscribe("$JS."+r.domain+".API.CONSUMER.CREATE.*.>", r.heard)
	if err != nil {
		return fmt.Errorf("listen to the requests of the mirrors: %w", err)
	}
	defer func() { _ = longer.Unsubscribe() }()
	<-ctx.Done()
	return nil
}

func (r *relinker) heard(m *nats.Msg) {
	stream, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, "$JS."+r.domain+".API.CONSUMER.CREATE."), ".")
	if !strings.HasPrefix(m.Reply, "$JSC.R") {
		return // a client's
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.requests[stream]; ok && last.msg.Reply == m.Reply {
		return // sent again
	}
	r.requests[stream] = request{m, time.Now()}
}

// again sends the requests again whose answer the mirrors may still wait for.
func (r *relinker) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for stream, one := range r.requests {
		delete(r.requests, stream)
		if time.Since(one.at) < answerWithin {
			_ = r.nc.PublishMsg(&nats.Msg{Subject: one.msg.Subject, Reply: one.msg.Reply, Header: one.msg.Header, Data: one.msg.Data})
		}
	}
}
