package natsmodel

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// consumer reads a stream from a sequence on, for pull requests, without acknowledgements.
type consumer struct {
	stream    *Stream
	config    jetstream.ConsumerConfig
	created   time.Time
	seq       uint64 // of the next message in the stream
	delivered uint64 // messages
	waiting   []*pullRequest
	active    time.Time
}

// pullRequest is a request for messages. Times are by the steady clock, zero if there are none.
type pullRequest struct {
	reply   string
	left    int // messages
	bytes   int // left, 0 if there is no limit
	expires time.Time
	every   time.Duration // between heartbeats
	beat    time.Time     // the next one
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
	if o == nil && verb == "CREATE" {
		o = st.newConsumer(c, name)
	}
	switch {
	case o == nil:
		s.fail(c, kind, refused(404, 10014, "consumer not found"))
	case verb == "DELETE":
		o.delete()
		s.succeed(c, kind, `"success":true`)
	case verb != "CREATE" && verb != "INFO":
		panic("natsmodel: the request is not modelled: " + c.Subject)
	default:
		info := marshal(o.info())
		s.succeed(c, kind, "%s", info[1:len(info)-1])
	}
}

func (o *consumer) info() *jetstream.ConsumerInfo {
	st, at := o.stream, jetstream.SequenceInfo{Consumer: o.delivered, Stream: o.seq - 1}
	return &jetstream.ConsumerInfo{
		Stream: st.config.Name, Name: o.config.Name, Created: o.created, Config: o.config, Delivered: at, AckFloor: at,
		TimeStamp:  st.server.now(),
		NumWaiting: len(o.waiting), NumPending: uint64(len(st.messages) - st.from(o.seq)),
	}
}

// consumers handles a request for the names of all consumers of a stream, or for what is known of each.
func (s *Server) consumers(c *Command, verb, stream string) {
	kind := "consumer_" + strings.ToLower(verb)
	st := s.Stream(stream)
	if st == nil {
		s.fail(c, kind, errNoStream)
		return
	}
	all := make([]any, 0, len(st.consumers))
	for _, o := range st.consumers {
		if verb == "NAMES" {
			all = append(all, o.config.Name)
		} else {
			all = append(all, o.info())
		}
	}
	s.succeed(c, kind, `"total":%d,"offset":0,"limit":1024,"consumers":%s`, len(all), marshal(all))
}

// registers reports whether the consumer is a durable one that nobody reads: it is there until it is deleted.
func (o *consumer) registers() bool { return o.config.Durable != "" }

func (st *Stream) consumer(name string) *consumer {
	for _, o := range st.consumers {
		if o.config.Name == name {
			return o
		}
	}
	return nil
}

func (st *Stream) newConsumer(c *Command, name string) *consumer {
	f := decode[struct {
		Stream string `json:"stream_name"`
		Action string
		Config jetstream.ConsumerConfig
	}](c).Config
	registers := f.Durable == name && f.DeliverPolicy == jetstream.DeliverNewPolicy
	if f.AckPolicy != jetstream.AckNonePolicy || !registers &&
		(f.DeliverPolicy != jetstream.DeliverByStartSequencePolicy || f.Durable != "") || f.FilterSubject != "" ||
		f.FilterSubjects != nil {
		panic("natsmodel: the consumer is not modelled: " + string(c.Data))
	}
	f.Name, f.MaxDeliver, f.MaxWaiting = name, -1, 512
	s := st.server
	if registers {
		f.OptStartSeq = st.last + 1
	} else {
		f.InactiveThreshold = cmp.Or(f.InactiveThreshold, 5*time.Second)
	}
	o := &consumer{stream: st, config: f, created: s.now(), seq: max(f.OptStartSeq, st.first), active: s.steady()}
	st.consumers = append(st.consumers, o)
	return o
}

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
	if st == nil || st.consumer(name) == nil {
		return false
	}
	o, now := st.consumer(name), s.steady()
	p := decode[struct {
		Batch     int
		MaxBytes  int `json:"max_bytes"`
		Expires   time.Duration
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}](c)
	if p.Expires == 0 {
		panic("natsmodel: a pull request that does not expire is not modelled")
	}
	r := &pullRequest{reply: c.Reply, left: p.Batch, bytes: p.MaxBytes, expires: now.Add(p.Expires), every: p.Heartbeat}
	r.wait(now)
	o.active, o.waiting = now, append(o.waiting, r)
	o.deliver()
	return true
}

// wait begins the time to the next heartbeat.
func (r *pullRequest) wait(now time.Time) {
	if r.every > 0 {
		r.beat = now.Add(r.every)
	}
}

// deliver delivers messages while there are requests for them.
func (o *consumer) deliver() {
	st, s := o.stream, o.stream.server
	if s.Dry {
		return
	}
	for i := st.from(o.seq); i < len(st.messages) && len(o.waiting) > 0; i++ {
		m := &st.messages[i]
		ack := append(make([]byte, 0, 128), "$JS.ACK."+st.config.Name+"."+o.config.Name+".1"...)
		for _, n := range [4]int64{int64(m.Seq), int64(o.delivered) + 1, m.At.UnixNano(),
			int64(len(st.messages) - i - 1)} {
			ack = strconv.AppendInt(append(ack, '.'), n, 10)
		}
		r := o.taker(len(m.Subject) + len(ack) + len(m.raw) + len(m.Data))
		if r == nil {
			return
		}
		o.active, o.seq = s.steady(), m.Seq+1
		o.delivered++
		r.wait(o.active)
		s.send(r.reply, &Command{Subject: m.Subject, Reply: string(ack), raw: m.raw, Data: m.Data})
		if r.left <= 0 && r.bytes > 0 {
			o.end(r, "409 Batch Completed")
		}
	}
}

// taker takes the request that gets the next message, which has that many bytes; nil if there
// is none. Requests take turns.
func (o *consumer) taker(bytes int) *pullRequest {
	for len(o.waiting) > 0 {
		r := o.waiting[0]
		o.waiting = o.waiting[1:]
		switch {
		case o.over(r):
		case r.bytes > 0 && bytes > r.bytes:
			o.end(r, "409 Message Size Exceeds MaxBytes")
		default:
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
	}
	return nil
}

// over ends a request that has expired, or that nobody waits for any more.
func (o *consumer) over(r *pullRequest) bool {
	s := o.stream.server
	if s.steady().Before(r.expires) {
		for range s.subscribed(r.reply) {
			return false
		}
		return true
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
	next := o.active.Add(o.config.InactiveThreshold)
	for i, r := range o.waiting {
		if i == 0 || r.expires.Before(next) {
			next = r.expires
		}
		if !r.beat.IsZero() && r.beat.Before(next) {
			next = r.beat
		}
	}
	return next
}

func (o *consumer) timers() {
	s := o.stream.server
	now := s.steady()
	o.waiting = slices.DeleteFunc(o.waiting, o.over)
	for _, r := range o.waiting {
		if !r.beat.IsZero() && !now.Before(r.beat) {
			s.status(r.reply, "100 Idle Heartbeat", "Nats-Last-Consumer", o.delivered, "Nats-Last-Stream",
				max(o.seq-1, o.stream.last))
			r.wait(now)
		}
	}
	if !o.registers() && len(o.waiting) == 0 && now.Sub(o.active) >= o.config.InactiveThreshold {
		o.delete()
	}
}
