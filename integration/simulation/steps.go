package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/integration/simulation/natsmodel"
	"github.com/seed18712806/lapse/integration/simulation/observer"
	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/integration/simulation/transit"
	"github.com/seed18712806/lapse/sink/wire"
)

var errConnection = errors.New("the connection to Redis is lost")

const prefix = wire.DefaultPrefix

// over is when a fault is over that begins now.
func over(s plan.Step, i int) time.Time { return time.Now().Add(s.Duration(i)) }

// host is the index of a process.
func (w *World) host(s plan.Step) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(s.Args[0], "p"))
	return n % len(w.hosts)
}

// do lets a step happen.
func (w *World) do(s plan.Step) {
	w.trace.Printf("--- %s", s)
	held.Happened(kind(s))
	w.observer.Step(s)
	if w.second != nil {
		w.second.observer.StepOfFirst(s)
	}
	switch verb := s.Verb; {
	case verb == "write" || verb == "config" || verb == "drop" || verb == "raw" || verb == "repeat":
		w.send(s)
	case verb == "flood":
		for i := range s.Number(0) {
			w.send(plan.Step{Verb: "write", Args: []string{"upsert", s.Args[1], fmt.Sprint("f", i), "-", s.Args[2]}})
		}
	case strings.HasPrefix(verb, "nats-"):
		w.breakNATS(s)
	case strings.HasPrefix(verb, "log-") || strings.HasPrefix(verb, "events-"):
		w.breakStream(s)
	case strings.HasPrefix(verb, "redis-"):
		w.breakRedis(s)
	case verb == "power-loss" || verb == "leader-change":
		w.loseEnds(s)
	case strings.HasPrefix(verb, "snapshot"):
		w.snapshots(s)
	case verb == "read":
		w.get(s)
	case verb == "list":
		w.lists = append(w.lists, keptState{w.redis.Save(), w.redisClock()})
	case verb == "query":
		w.ask(s)
	case verb == "promote" || strings.HasPrefix(verb, "far-") || strings.HasPrefix(verb, "link-"):
		w.breakSecond(s)
	case verb == "says":
		w.says(s.Args[0])
	default:
		w.breakProcess(s)
	}
	w.observer.Look()
}

// kind is what a step lets happen within the operations that are in flight.
func kind(s plan.Step) held.Kind {
	switch s.Verb {
	case "write", "config", "drop", "raw", "repeat", "flood", "read", "list", "query", "says":
		return held.Write
	case "end", "believe", "promote":
		return held.Takeover
	case "disconnect", "nats-away", "link-cut":
		return held.Reconnection
	}
	return held.Restart
}

func (w *World) breakProcess(s plan.Step) {
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
		p.stands = transit.Later(p.stands, over(s, 1))
	case "believe":
		p.believe(s.Args[1] == "yes")
	case "disconnect":
		if p.conn != nil {
			p.conn.fate = s.Duration(1)
			p.disconnect()
		}
	}
}

func (w *World) breakNATS(s plan.Step) {
	switch s.Verb {
	case "nats-lose", "nats-slow", "nats-hang":
		breakLine(&w.lines.nats, s)
		breakLine(&w.lines.objects, s)
	case "nats-lag":
		w.nats.Lag = s.Number(0)
		w.queue.Add(over(s, 1), func() { w.nats.Lag = 0 })
	case "nats-mute":
		over := over(s, 0)
		w.nats.Mute = func(subject string) bool {
			return !strings.HasPrefix(subject, "$JS.") &&
				time.Now().Before(over)
		}
	case "nats-clock":
		w.clocks.nats = s.Duration(0)
	case "nats-away":
		w.setAway(over(s, 0))
		w.disconnectAll()
	case "nats-dry":
		w.nats.Dry = true
		w.queue.Add(over(s, 0), func() { w.nats.Dry = false })
	}
}

// setAway sets until when nobody can connect to NATS.
func (w *World) setAway(until time.Time) {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	w.inbox.away = until
}

// disconnectAll loses all connections to NATS, and what was sent on them.
func (w *World) disconnectAll() {
	for _, p := range w.processes() {
		if p.site == &w.site && p.conn != nil {
			p.conn.fate = 0
			p.disconnect()
		}
	}
}

// breakLine breaks what lies between the processes and one server.
func breakLine(n *transit.Network, s plan.Step) {
	switch _, fault, _ := strings.Cut(s.Verb, "-"); fault {
	case "lose":
		n.Losing[side(s)] = transit.Fault{Strength: s.Number(1), Over: over(s, 2)}
	case "slow":
		n.Slow = transit.Fault{Strength: s.Number(0), Over: over(s, 1)}
	case "hang":
		n.Hangs = transit.Fault{Strength: 1, Over: transit.Later(n.Hangs.Over, over(s, 0))}
	}
}

func side(s plan.Step) transit.Direction {
	if s.Args[0] == "answers" {
		return transit.Answer
	}
	return transit.Request
}

func (w *World) breakStream(s plan.Step) {
	name := observer.Events
	if strings.HasPrefix(s.Verb, "log-") {
		name = observer.Log
	}
	stream := w.nats.Stream(name)
	if stream == nil {
		return
	}
	switch s.Verb {
	case "log-tail":
		stream.LoseTail(s.Number(0))
	case "log-gap":
		stream.Delete(stream.LastSeq() - uint64(s.Number(0)))
	case "log-truncate":
		if applied := appliedIn(w.redis); applied > uint64(s.Number(0)) && time.Since(w.lost[name]) >= ageOut {
			stream.Truncate(applied + 1 - uint64(s.Number(0)))
		}
	case "log-anew":
		config := *stream.Config()
		w.nats.DeleteStream(observer.Log)
		w.nats.CreateStream(config)
	case "log-refuse", "events-refuse":
		over := over(s, 0)
		w.nats.Refuse = func(stream string, _ natsmodel.Command) error {
			if stream != name || time.Now().After(over) {
				return nil
			}
			return &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum messages exceeded"}
		}
	case "events-age":
		if time.Since(w.lost[name]) < ageOut {
			return
		}
		// What ages out is older than all that is not synced.
		if bucket := w.nats.Stream(observer.Checkpoints); bucket != nil {
			bucket.Sync()
		}
		stream.Truncate(w.firstUnsettled(stream))
	case "events-size":
		stream.SetConfig(func(c *jetstream.StreamConfig) { c.MaxMsgSize = int32(s.Number(0)) })
		w.queue.Add(over(s, 1), func() { stream.SetConfig(func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 }) })
	}
}

// ageOut is how long messages stay in a stream at least. Where a stream has just lost its end, lapse compares
// before anything ages out that was stored since: it could not tell that from what was lost.
const ageOut = time.Minute

// loseEnds puts streams back to an instant, each to its own.
func (w *World) loseEnds(s plan.Step) {
	lost := s.Lost()
	for stream, name := range map[string]string{"log": observer.Log, "events": observer.Events,
		"checkpoints": observer.Checkpoints} {
		if _, ok := lost[stream]; ok {
			w.lost[name] = time.Now()
		}
		if st := w.nats.Stream(name); st != nil {
			st.LoseEnd(lost[stream], w.plan.Sync)
		}
	}
	w.objects.loseEnd(lost["snapshots"], w.plan.Sync)
	if s.Verb == "power-loss" {
		w.inbox.mu.Lock()
		w.inbox.losses++
		w.inbox.mu.Unlock()
		w.disconnectAll()
	}
}

// firstUnsettled is the sequence of the first event that the checkpoints do not cover: older
// ones may age out of their stream.
func (w *World) firstUnsettled(stream *natsmodel.Stream) uint64 {
	var point struct {
		Seq       uint64
		Watermark int64
	}
	// A rebuild looks its events up, from an earlier checkpoint on.
	if state, ok := w.redis.State(); ok && state.Rebuild == 0 {
		if bucket := w.nats.Stream(observer.Checkpoints); bucket != nil {
			for _, m := range bucket.Messages() {
				if strings.HasSuffix(m.Subject, ".shard.0") {
					_ = json.Unmarshal(m.Data, &point)
				}
			}
		}
	}
	for _, m := range stream.Messages() {
		if strings.HasPrefix(m.Subject, string(prefix)+".fence.") {
			continue
		}
		seq, _ := strconv.ParseUint(m.Header.Get(wire.HeaderSeq), 10, 64)
		at, _ := time.Parse(time.RFC3339Nano, m.Header.Get("ce-time"))
		if seq > point.Seq || seq == 0 && at.UnixMilli() >= point.Watermark {
			return m.Seq
		}
	}
	return stream.LastSeq() + 1
}

// appliedIn is the offset up to which a shard has applied the log.
func appliedIn(redis *redismodel.Server) uint64 {
	state, _ := redis.State()
	return state.Offset
}

func (w *World) breakRedis(s plan.Step) {
	switch s.Verb {
	case "redis-lose", "redis-slow", "redis-hang":
		breakLine(&w.lines.redis, s)
	case "redis-clock":
		w.setRedisClock(s.Duration(0))
	case "redis-flush":
		w.observer.Loses(true)
		w.redis.Flush()
	case "redis-save":
		snapshot := w.redis.Save()
		w.saved = &snapshot
	case "redis-rollback":
		if w.saved != nil {
			w.observer.Loses(false)
			w.redis.Restore(*w.saved)
			w.saved = nil
		}
	case "redis-restart":
		w.redis.Restart()
	case "redis-full":
		w.redis.Full(true)
		w.queue.Add(over(s, 0), func() { w.redis.Full(false) })
	case "redis-evicts":
		w.redis.Evicts(true)
		w.queue.Add(over(s, 0), func() { w.redis.Evicts(false) })
	case "redis-damage":
		w.observer.Damaged()
		damage(w.redis, s)
	}
}

// setRedisClock sets how far Redis's clock is ahead of the processes'.
func (w *World) setRedisClock(ahead time.Duration) {
	if ahead < w.clocks.redis {
		for _, s := range w.sites() {
			s.observer.SetBack(redismodel.ClockFor + time.Second)
		}
	}
	w.clocks.redis = ahead
}

func damage(r *redismodel.Server, s plan.Step) {
	switch n := s.Number(1); s.Args[0] {
	case "document":
		r.LoseDocument(n)
	case "index":
		r.LoseIndexMember(n)
	case "entry":
		r.LoseEntry(n)
	case "config":
		r.LoseConfig(n)
	case "state":
		r.LoseState()
	}
}

// heal ends all faults, sets the clocks right, and lets one process own the shard. It
// returns when nothing is wrong any more: what stands still goes on at its own time.
func (w *World) heal() (well time.Time) {
	well = transit.Later(time.Now(), transit.Later(w.lines.nats.Hangs.Over, w.lines.redis.Hangs.Over))
	w.lines.nats.Heal()
	w.lines.objects.Heal()
	w.lines.redis.Heal()
	w.clocks.nats = 0
	w.setRedisClock(0)
	w.nats.Lag, w.nats.Refuse, w.nats.Mute, w.nats.Dry = 0, nil, nil, false
	w.setAway(time.Time{})
	w.redis.Full(false)
	w.redis.Evicts(false)
	if s := w.nats.Stream(observer.Events); s != nil {
		s.SetConfig(func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 })
	}
	if w.second != nil {
		w.second.link.heal()
		well = transit.Later(well, w.second.host.stands)
		if ended, final := w.second.host.state(); ended && final == nil {
			w.second.host = w.startAt(&w.second.site, w.second.host.name, true)
		}
	}
	for i, p := range w.hosts {
		p.believe(i == 0)
		if _, final := p.state(); final == nil {
			w.again(i, i == 0)
		}
		well = transit.Later(well, w.hosts[i].stands)
	}
	return well
}
