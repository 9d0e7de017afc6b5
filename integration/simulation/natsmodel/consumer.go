package natsmodel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	inactiveAfter = 5 * time.Second // if the client does not say
	maxWaiting    = 512             // pull requests of a consumer
)

// consumer reads a stream from a sequence on, for pull requests, without acknowledgements.
type consumer struct {
	stream    *Stream
	name      string
	config    jetstream.ConsumerConfig
	created   time.Time
	seq       uint64 // of the next message in the stream
	delivered uint64 // messages
	waiting   []*pullRequest
	active    time.Time
}

// pullRequest is a request for messages.
type pullRequest struct {
	reply   string
	left    int       // messages
	bytes   int       // left; 0 if there is no limit
	expires time.Time // zero if it does not
	every   time.Duration
	beat    time.Time // when the next heartbeat is due; zero if none
	noWait  bool
}

// consumerRequest handles a request about one consumer.
func (s *Server) consumerRequest(c *Command, verb, stream, name string) {
	kind := "consumer_" + strings.ToLower(verb)
	st := s.Stream(stream)
	if st == nil {
		s.fail(c, kind, errNoStream)
		return
	}
	o := st.consumer(name)
	switch {
	case verb == "CREATE":
		if o == nil {
			o = st.newConsumer(c, name)
		}
	case o == nil:
		s.fail(c, kind, errNoConsumer)
		return
	case verb == "DELETE":
		o.delete()
		s.succeed(c, kind, `"success":true`)
		return
	case verb != "INFO":
		panic(fmt.Sprintf("natsmodel: a request to %s is not modelled", c.Subject))
	}
	s.succeed(c, kind, "%s", o.info())
}

func (st *Stream) consumer(name string) *consumer {
	for _, c := range st.consumers {
		if c.name == name {
			return c
		}
	}
	return nil
}

func (st *Stream) newConsumer(c *Command, name string) *consumer {
	var request struct{ Config jetstream.ConsumerConfig }
	decode(c, &request)
	f := request.Config
	if f.AckPolicy != jetstream.AckNonePolicy || f.DeliverPolicy != jetstream.DeliverByStartSequencePolicy && f.DeliverPolicy != jetstream.DeliverAllPolicy ||
		f.Durable != "" || f.FilterSubject != "" || f.FilterSubjects != nil || f.HeadersOnly || f.MaxRequestBatch != 0 {
		panic(fmt.Sprintf("natsmodel: the configuration of the consumer %s is not modelled", c.Data))
	}
	f.Name = name
	f.Metadata = static(f.Metadata, 0)
	f.MaxDeliver, f.MaxWaiting = -1, maxWaiting
	s := st.server
	o := &consumer{stream: st, name: name, config: f, created: s.now(), seq: max(f.OptStartSeq, st.first, 1), active: s.steady()}
	if o.config.InactiveThreshold == 0 {
		o.config.InactiveThreshold = inactiveAfter
	}
	st.consumers = append(st.consumers, o)
	return o
}

func (o *consumer) info() []byte {
	f := o.config
	f.Metadata = dynamic(f.Metadata)
	at := jetstream.SequenceInfo{Consumer: o.delivered, Stream: o.seq - 1}
	text, err := json.Marshal(&jetstream.ConsumerInfo{
		Stream: o.stream.config.Name, Name: o.name, Created: o.created, Config: f, Delivered: at, AckFloor: at,
		NumWaiting: len(o.waiting), NumPending: uint64(o.pending()), TimeStamp: o.stream.server.now(),
	})
	if err != nil {
		panic(err)
	}
	return text[1 : len(text)-1]
}

// pending is the number of messages that are still to be delivered.
func (o *consumer) pending() int { return len(o.stream.messages) - o.stream.from(o.seq) }

// delete deletes the consumer, and ends its pull requests.
func (o *consumer) delete() {
	for _, r := range o.waiting {
		o.stream.server.status(r.reply, "409 Consumer Deleted")
	}
	o.stream.consumers = slices.DeleteFunc(o.stream.consumers, func(other *consumer) bool { return other == o })
}

// pull handles a request for the next messages of a consumer.
func (s *Server) pull(c *Command, stream, name string) (heard bool) {
	st := s.Stream(stream)
	if st == nil {
		return false
	}
	o := st.consumer(name)
	if o == nil {
		return false
	}
	request := struct {
		Batch     int
		MaxBytes  int           `json:"max_bytes"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
		NoWait    bool          `json:"no_wait"`
	}{Batch: 1}
	if len(c.Data) > 0 {
		decode(c, &request)
	}
	now := s.steady()
	r := &pullRequest{reply: c.Reply, left: request.Batch, bytes: request.MaxBytes, every: request.Heartbeat, noWait: request.NoWait}
	if r.every > 0 {
		r.beat = now.Add(r.every)
	}
	if request.Expires > 0 {
		r.expires = now.Add(request.Expires)
	}
	switch {
	case r.every*2 > request.Expires:
		s.status(c.Reply, "400 Bad Request - heartbeat value too large")
		return true
	case len(o.waiting) >= maxWaiting:
		if r.every == 0 {
			s.status(c.Reply, "409 Exceeded MaxWaiting")
		}
		return true
	}
	o.active = now
	o.waiting = append(o.waiting, r)
	o.deliver()
	return true
}

// deliver gives new messages to the consumers.
func (st *Stream) deliver() {
	for _, o := range st.consumers {
		if len(o.waiting) > 0 {
			o.deliver()
		}
	}
}

// deliver delivers messages while there are any, and requests for them.
func (o *consumer) deliver() {
	st := o.stream
	for i := st.from(o.seq); i < len(st.messages); i++ {
		m := &st.messages[i]
		ack := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.%d", st.config.Name, o.name, m.Seq, o.delivered+1, m.At.UnixNano(), len(st.messages)-i-1)
		r := o.taker(len(m.Subject) + len(ack) + len(m.raw) + len(m.Data))
		if r == nil {
			return
		}
		now := st.server.steady()
		o.active = now
		o.seq = m.Seq + 1
		o.delivered++
		st.server.route(&Command{Subject: m.Subject, Reply: ack, raw: m.raw, Data: m.Data}, r.reply)
		if r.left > 0 && r.every > 0 {
			r.beat = now.Add(r.every)
		}
		if r.left <= 0 && r.bytes > 0 {
			st.server.status(r.reply, "409 Batch Completed", "Nats-Pending-Messages", 0, "Nats-Pending-Bytes", r.bytes)
		}
	}
	o.seq = max(o.seq, st.last+1)
	o.waiting = slices.DeleteFunc(o.waiting, func(r *pullRequest) bool {
		if r.noWait {
			st.server.status(r.reply, "404 No Messages")
		}
		return r.noWait
	})
}

// taker takes the request that gets the next message, which has that many bytes. Requests take
// turns. It returns nil if there is none.
func (o *consumer) taker(bytes int) *pullRequest {
	s := o.stream.server
	for len(o.waiting) > 0 {
		r := o.waiting[0]
		o.waiting = o.waiting[1:]
		switch {
		case o.expired(r):
			continue
		case r.bytes > 0 && bytes > r.bytes:
			o.end(r, "409 Message Size Exceeds MaxBytes")
			continue
		case len(s.subs.match(r.reply)) == 0:
			continue
		}
		r.left--
		if r.bytes > 0 {
			if r.bytes -= bytes; r.bytes == 0 {
				r.left = 0
			}
		}
		if r.left > 0 {
			o.waiting = append(o.waiting, r)
		}
		return r
	}
	return nil
}

// expired ends a request that has expired.
func (o *consumer) expired(r *pullRequest) bool {
	if r.expires.IsZero() || o.stream.server.steady().Before(r.expires) {
		return false
	}
	if r.expires.After(o.active) {
		o.active = r.expires
	}
	o.end(r, "408 Request Timeout")
	return true
}

func (o *consumer) end(r *pullRequest, status string) {
	o.stream.server.status(r.reply, status, "Nats-Pending-Messages", r.left, "Nats-Pending-Bytes", r.bytes)
}

// next is when timers has something to do.
func (o *consumer) next() time.Time {
	if len(o.waiting) == 0 {
		return o.active.Add(o.config.InactiveThreshold)
	}
	var next time.Time
	for _, r := range o.waiting {
		for _, at := range [2]time.Time{r.expires, r.beat} {
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	if next.IsZero() {
		return o.stream.server.steady().Add(time.Hour) // it only waits for messages
	}
	return next
}

func (o *consumer) timers() {
	s := o.stream.server
	now := s.steady()
	o.waiting = slices.DeleteFunc(o.waiting, func(r *pullRequest) bool {
		if o.expired(r) || len(s.subs.match(r.reply)) == 0 {
			return true
		}
		if !r.beat.IsZero() && !now.Before(r.beat) {
			s.status(r.reply, "100 Idle Heartbeat", "Nats-Last-Consumer", o.delivered, "Nats-Last-Stream", o.seq-1)
			r.beat = now.Add(r.every)
		}
		return false
	})
	if len(o.waiting) == 0 && now.Sub(o.active) >= o.config.InactiveThreshold {
		o.delete()
	}
}
