package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/simulation/natsmodel"
	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/sink/wire"
)

var errConnection = errors.New("the connection to Redis is lost")

const (
	prefix = wire.DefaultPrefix
	log    = "LAPSE_LOG"
	events = "LAPSE_EVENTS"
)

// number reads an argument of a step; 0 if it is not a number.
func (s Step) number(i int) int {
	n, _ := strconv.Atoi(s.Args[i])
	return n
}

func (s Step) duration(i int) time.Duration {
	d, _ := time.ParseDuration(s.Args[i])
	return d
}

// over is when a fault is over that begins now.
func (s Step) over(i int) time.Time { return time.Now().Add(s.duration(i)) }

// host is the index of a process.
func (w *World) host(s Step) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(s.Args[0], "p"))
	return n % len(w.hosts)
}

// do lets a step happen.
func (w *World) do(s Step) {
	w.trace.printf("--- %s", s)
	w.history.step(s)
	switch verb := s.Verb; {
	case verb == "write" || verb == "config" || verb == "drop" || verb == "raw" || verb == "repeat":
		w.send(s)
	case strings.HasPrefix(verb, "nats-"):
		w.breakNATS(s)
	case strings.HasPrefix(verb, "log-") || strings.HasPrefix(verb, "events-"):
		w.breakStream(s)
	case strings.HasPrefix(verb, "redis-"):
		w.breakRedis(s)
	default:
		w.breakProcess(s)
	}
	w.history.look()
}

// send lets a client send a message.
func (w *World) send(s Step) {
	h := w.history
	m := nats.NewMsg("")
	header := func(condition string, etag wire.Etag) {
		switch {
		case condition == "last" && etag != 0:
			m.Header.Set(wire.HeaderIfMatch, etag.String())
		case condition != "-" && condition != "last":
			m.Header.Set(wire.HeaderIfMatch, condition)
		}
	}
	switch s.Verb {
	case "write":
		m.Subject, m.Data = prefix.Write(wire.Op(s.Args[0]), s.Args[1], s.Args[2]), body(s.Args[4])
		header(s.Args[3], h.names.etag[oracle.Name{Collection: s.Args[1], ID: s.Args[2]}])
	case "config":
		m.Subject, m.Data = prefix.Config(s.Args[0]), []byte(s.Args[2])
		header(s.Args[1], h.model.Config(s.Args[0]).Etag)
	case "drop":
		m.Subject = prefix.Drop(s.Args[0])
		header(s.Args[1], h.model.Config(s.Args[0]).Etag)
	case "raw":
		m.Subject, m.Data = s.Args[0], []byte(s.Args[1])
	case "repeat":
		if h.last == nil {
			return
		}
		m = h.last
	}
	if s.Verb != "repeat" {
		h.sent++
		m.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("m%d", h.sent))
		m.Header.Set(wire.HeaderReplyTo, fmt.Sprintf("_INBOX.simulation.%d", h.sent))
		h.last = m
	}
	if w.nats.Stream(log) == nil {
		return
	}
	_, sent := w.nats.Append(m.Subject, m.Header, m.Data)
	h.look()
	w.deliver(sent)
}

// body is a body of the plan, where ~n~ stands for n bytes.
func body(text string) []byte {
	before, rest, _ := strings.Cut(text, "~")
	n, after, found := strings.Cut(rest, "~")
	if !found {
		return []byte(text)
	}
	size, _ := strconv.Atoi(n)
	return []byte(before + strings.Repeat("x", size) + after)
}

func (w *World) breakProcess(s Step) {
	i := w.host(s)
	p := w.hosts[i]
	switch s.Verb {
	case "start":
		w.again(i, p.OK(context.Background()) == nil)
	case "kill":
		p.kill()
	case "end":
		p.leaves = true
		p.stop()
	case "stand":
		p.stands = later(p.stands, s.over(1))
	case "believe":
		p.believe(s.Args[1] == "yes")
	case "disconnect":
		if p.conn != nil {
			p.conn.fate = s.duration(1)
			p.disconnect()
		}
	}
}

func (w *World) breakNATS(s Step) {
	switch s.Verb {
	case "nats-lose":
		w.toNATS.losing[side(s)] = fault{s.number(1), s.over(2)}
	case "nats-slow":
		w.toNATS.slow = fault{s.number(0), s.over(1)}
	case "nats-hang":
		w.toNATS.hangs = fault{1, later(w.toNATS.hangs.over, s.over(0))}
	case "nats-lag":
		w.nats.Lag = s.number(0)
		w.queue.add(s.over(1), func() { w.nats.Lag = 0 })
	case "nats-mute":
		over := s.over(0)
		w.nats.Mute = func(subject string) bool { return !strings.HasPrefix(subject, "$JS.") && time.Now().Before(over) }
	case "nats-clock":
		w.clocks.nats = s.duration(0)
	}
}

func side(s Step) direction {
	if s.Args[0] == "answers" {
		return answer
	}
	return request
}

func (w *World) breakStream(s Step) {
	name := events
	if strings.HasPrefix(s.Verb, "log-") {
		name = log
	}
	stream := w.nats.Stream(name)
	if stream == nil {
		return
	}
	switch s.Verb {
	case "log-tail":
		stream.LoseTail(s.number(0))
	case "log-truncate":
		if applied := w.applied(); applied > uint64(s.number(0)) {
			stream.Truncate(applied + 1 - uint64(s.number(0)))
		}
	case "log-anew":
		config := *stream.Config()
		w.nats.DeleteStream(log)
		w.nats.CreateStream(config)
	case "events-refuse":
		over := s.over(0)
		w.nats.Refuse = func(stream string, _ natsmodel.Command) error {
			if stream != events || time.Now().After(over) {
				return nil
			}
			return &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum messages exceeded"}
		}
	case "events-forget":
		stream.ForgetIDs()
	case "events-age":
		stream.Truncate(w.firstUnsettled(stream))
	case "events-size":
		stream.SetConfig(func(c *jetstream.StreamConfig) { c.MaxMsgSize = int32(s.number(0)) })
		w.queue.add(s.over(1), func() { stream.SetConfig(func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 }) })
	}
}

// firstUnsettled is the sequence of the first event that the checkpoints do not cover: older
// ones may age out of their stream.
func (w *World) firstUnsettled(stream *natsmodel.Stream) uint64 {
	points := make([]struct {
		Seq       uint64
		Watermark int64
	}, w.plan.Partitions)
	if bucket := w.nats.Stream("KV_" + prefix.CheckpointBucket()); bucket != nil {
		for _, m := range bucket.Messages() {
			i, err := strconv.Atoi(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
			if err == nil {
				_ = json.Unmarshal(m.Data, &points[i])
			}
		}
	}
	for _, m := range stream.Messages() {
		parts := strings.SplitN(m.Subject, ".", 4)
		if parts[1] == "fence" {
			continue
		}
		point := points[0] // which rejects configurations
		if len(parts) == 4 {
			point = points[wire.PartitionOfToken(w.plan.Partitions, parts[2], parts[3])]
		}
		seq, _ := strconv.ParseUint(m.Header.Get(wire.HeaderSeq), 10, 64)
		at, _ := time.Parse(time.RFC3339Nano, m.Header.Get("ce-time"))
		if seq > point.Seq || seq == 0 && at.UnixMilli() > point.Watermark {
			return m.Seq
		}
	}
	return stream.LastSeq() + 1
}

// applied is the offset up to which all partitions have applied the log.
func (w *World) applied() uint64 {
	least := ^uint64(0)
	for i := range w.plan.Partitions {
		state, ok := w.redis.Partition(i).State()
		if !ok {
			return 0
		}
		least = min(least, state.Offset)
	}
	return least
}

func (w *World) breakRedis(s Step) {
	switch s.Verb {
	case "redis-lose":
		w.toRedis.losing[side(s)] = fault{s.number(1), s.over(2)}
	case "redis-slow":
		w.toRedis.slow = fault{s.number(0), s.over(1)}
	case "redis-hang":
		w.toRedis.hangs = fault{1, later(w.toRedis.hangs.over, s.over(0))}
	case "redis-clock":
		w.setRedisClock(s.duration(0))
	case "redis-flush":
		w.history.loses()
		w.redis.Flush()
	case "redis-save":
		snapshot := w.redis.Save()
		w.saved = &snapshot
	case "redis-rollback":
		if w.saved != nil {
			w.history.loses()
			w.redis.Restore(*w.saved)
			w.saved = nil
		}
	case "redis-restart":
		w.redis.Restart()
	case "redis-full":
		w.redis.Full(true)
		w.queue.add(s.over(0), func() { w.redis.Full(false) })
	case "redis-damage":
		i := s.number(0) % w.plan.Partitions
		w.history.damaged[i] = true
		damage(w.redis.Partition(i), s)
	}
}

// setRedisClock sets how far Redis's clock is ahead of the processes'.
func (w *World) setRedisClock(ahead time.Duration) {
	if ahead < w.clocks.redis {
		w.history.unsure = time.Now().Add(clockFor + time.Second)
	}
	w.clocks.redis = ahead
}

func damage(p *redismodel.Partition, s Step) {
	switch n := s.number(2); s.Args[1] {
	case "document":
		p.LoseDocument(n)
	case "index":
		p.LoseIndexMember(n)
	case "config":
		p.LoseConfig(n)
	case "state":
		p.LoseState()
	}
}

// heal ends all faults, sets the clocks right, and lets one process own the partitions. It
// returns when nothing is wrong any more: what stands still goes on at its own time.
func (w *World) heal() (well time.Time) {
	well = later(time.Now(), later(w.toNATS.hangs.over, w.toRedis.hangs.over))
	w.toNATS.heal()
	w.toRedis.heal()
	w.clocks.nats = 0
	w.setRedisClock(0)
	w.nats.Lag, w.nats.Refuse, w.nats.Mute = 0, nil, nil
	w.redis.Full(false)
	if s := w.nats.Stream(events); s != nil {
		s.SetConfig(func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 })
	}
	for i, p := range w.hosts {
		p.believe(i == 0)
		if _, final := p.state(); final == nil {
			w.again(i, i == 0)
		}
		well = later(well, w.hosts[i].stands)
	}
	return well
}
